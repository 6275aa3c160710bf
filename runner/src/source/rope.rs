//! The rotary embedding's entries of `config.json` as GGUF metadata.

use std::f64::consts::TAU;

use super::Error;
use super::json::Object;
use crate::architectures::Architecture;
use halfbyte_gguf::Metadata;

const SUPPORTED: &str = "default, linear, llama3";

/// Sets the metadata of the rotations of heads of `head_dim` elements, and returns Llama 3's factors, one for each pair, if
/// the model has them: GGUF keeps them as a tensor.
pub(super) fn set(
    config: &Object,
    architecture: &Architecture,
    head_dim: usize,
    metadata: &mut Metadata,
) -> Result<Option<Vec<f32>>, Error> {
    let prefix = architecture.name;
    // Newer files have one object for all of these fields, under either name.
    let field = if config.get("rope_parameters").is_some() { "rope_parameters" } else { "rope_scaling" };
    let scaling = config.opt_object(field)?.map(of_all_layers).transpose()?;
    let (mut part, any) = architecture.partial_rotary();
    for object in [config].into_iter().chain(&scaling) {
        let Some(factor) = object.opt_f64("partial_rotary_factor")? else { continue };
        if !any && factor != 1.0 {
            return Err(object.unsupported("partial_rotary_factor", "1"));
        }
        part = factor;
    }
    let dims = (head_dim as f64 * part) as usize;
    if !(0.0..=1.0).contains(&part) || dims == 0 || !dims.is_multiple_of(2) {
        let expected = format!("a part of {head_dim} elements that is an even number of them");
        return Err(config.wrong("partial_rotary_factor", expected));
    }
    metadata.set(format!("{prefix}.rope.dimension_count"), u32::try_from(dims).unwrap_or(u32::MAX));
    let base = match &scaling {
        Some(scaling) if scaling.get("rope_theta").is_some() => positive(scaling, "rope_theta", None)?,
        _ => positive(config, "rope_theta", Some(10_000.0))?,
    };
    metadata.set(format!("{prefix}.rope.freq_base"), base as f32);
    let Some(scaling) = scaling else { return Ok(None) };
    let key = if scaling.get("rope_type").is_some() { "rope_type" } else { "type" };
    match scaling.opt_str(key)? {
        None | Some("default") => Ok(None),
        Some("linear") => {
            metadata.set(format!("{prefix}.rope.scaling.type"), "linear");
            let factor = positive(&scaling, "factor", None)?;
            metadata.set(format!("{prefix}.rope.scaling.factor"), factor as f32);
            Ok(None)
        }
        Some("llama3") => Ok(Some(llama3(&scaling, base, dims)?)),
        Some(_) => Err(scaling.unsupported(key, SUPPORTED)),
    }
}

/// The parameters of every layer, if `object` has an object for each type of layer and they all say the same.
fn of_all_layers(object: Object) -> Result<Object, Error> {
    let nested: Vec<String> =
        object.iter().filter(|(_, value)| value.is_object()).map(|(name, _)| name.clone()).collect();
    let Some((first, others)) = nested.split_first() else { return Ok(object) };
    if let Some(other) = others.iter().find(|other| object.get(other) != object.get(first)) {
        return Err(
            object.unsupported(other, format!("the same rotations in all layers, as {first} has them"))
        );
    }
    Ok(object.opt_object(first)?.unwrap_or(object))
}

/// The divisor of each frequency: 1 for those that make many turns within the original context, `factor` for those that
/// make few, and a value interpolated between the two for the frequencies between.
fn llama3(scaling: &Object, base: f64, dims: usize) -> Result<Vec<f32>, Error> {
    let factor = positive(scaling, "factor", None)?;
    let low = positive(scaling, "low_freq_factor", Some(1.0))?;
    let high = positive(scaling, "high_freq_factor", Some(4.0))?;
    let original = positive(scaling, "original_max_position_embeddings", Some(8192.0))?;
    if low >= high {
        return Err(scaling.wrong("high_freq_factor", format!("more than low_freq_factor, {low}")));
    }
    Ok((0..dims / 2)
        .map(|i| {
            let turns = original * base.powf(-2.0 * i as f64 / dims as f64) / TAU;
            let share = ((turns - low) / (high - low)).clamp(0.0, 1.0);
            (1.0 / ((1.0 - share) / factor + share)) as f32
        })
        .collect())
}

fn positive(object: &Object, field: &str, default: Option<f64>) -> Result<f64, Error> {
    object
        .opt_f64(field)?
        .or(default)
        .filter(|&v| v > 0.0 && v as f32 > 0.0)
        .ok_or_else(|| object.wrong(field, "a positive number"))
}
