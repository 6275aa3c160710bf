//! The rotary embedding's entries of `config.json` as GGUF metadata.

use std::f64::consts::TAU;

use super::Error;
use super::json::Object;
use halfbyte_gguf::Metadata;

const SUPPORTED: &str = "default, linear, llama3";

/// Sets the metadata of the rotations of `dims` elements a head, and returns Llama 3's factors, one for each pair, if
/// the model has them: GGUF keeps them as a tensor.
pub(super) fn set(
    config: &Object,
    prefix: &str,
    dims: usize,
    metadata: &mut Metadata,
) -> Result<Option<Vec<f32>>, Error> {
    if config.opt_f64("partial_rotary_factor")?.is_some_and(|factor| factor != 1.0) {
        return Err(config.unsupported("partial_rotary_factor", "1"));
    }
    // Newer files have one object for all of these fields.
    let parameters = config.opt_object("rope_parameters")?;
    let scaling = match &parameters {
        Some(parameters) => Some(parameters.clone()),
        None => config.opt_object("rope_scaling")?,
    };
    let base = match &parameters {
        Some(parameters) if parameters.get("rope_theta").is_some() => {
            positive(parameters, "rope_theta", None)?
        }
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
