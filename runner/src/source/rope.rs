//! The rotary embedding's entries of `config.json` as GGUF metadata, and the factors that GGUF keeps as tensors.

use std::f64::consts::TAU;

use super::Error;
use super::json::Object;
use crate::architectures::Architecture;
use halfbyte_gguf::Metadata;

const SUPPORTED: &str = "default, linear, dynamic, yarn, longrope, llama3";

/// What a model's rotations need beyond metadata.
#[derive(Debug)]
pub(super) struct Rotations {
    /// Elements of a head that rotate.
    pub(super) dims: usize,
    /// Factors of the frequencies: tensors of GGUF by name, one number for each pair.
    pub(super) factors: Vec<(&'static str, Vec<f32>)>,
}

/// Sets the metadata of the rotations of a model whose heads have `head_dim` elements.
///
/// # Errors
/// A field has a wrong value, or one that there is no code for.
pub(super) fn set(
    config: &Object,
    architecture: &Architecture,
    head_dim: usize,
    metadata: &mut Metadata,
) -> Result<Rotations, Error> {
    let prefix = architecture.name;
    // Newer files have one object for all of these fields, under either name.
    let field = if config.get("rope_parameters").is_some() { "rope_parameters" } else { "rope_scaling" };
    let scaling = match config.opt_object(field)? {
        Some(object) if architecture.plain_in_windows => Some(of_full_layers(object, prefix, metadata)?),
        Some(object) => Some(of_all_layers(object)?),
        None => None,
    };
    let field = "partial_rotary_factor";
    let says = scaling.as_ref().filter(|scaling| scaling.get(field).is_some()).unwrap_or(config);
    let part = says.opt_positive(field)?.unwrap_or(architecture.partial_rotary);
    let dims = (head_dim as f64 * part) as usize;
    if part > 1.0 || dims == 0 || !dims.is_multiple_of(2) {
        return Err(
            says.wrong(field, format!("a part of {head_dim} elements that is an even number of them"))
        );
    }
    metadata.set(format!("{prefix}.rope.dimension_count"), dims as u32);
    let base = match &scaling {
        Some(scaling) if scaling.get("rope_theta").is_some() => positive(scaling, "rope_theta", None)?,
        _ => positive(config, "rope_theta", Some(10_000.0))?,
    };
    metadata.set(format!("{prefix}.rope.freq_base"), base as f32);
    let mut rotations = Rotations { dims, factors: Vec::new() };
    let Some(scaling) = scaling else { return Ok(rotations) };
    let key = if scaling.get("rope_type").is_some() { "rope_type" } else { "type" };
    let kind = scaling.opt_str(key)?;
    let mut set = |key: &str, value: f64| metadata.set(format!("{prefix}.rope.scaling.{key}"), value as f32);
    match kind {
        None | Some("default") => {}
        Some("linear") => {
            set("factor", positive(&scaling, "factor", None)?);
            metadata.set(format!("{prefix}.rope.scaling.type"), "linear");
        }
        Some("dynamic") => {
            let factor = positive(&scaling, "factor", None)?;
            set("factor", factor);
            metadata.set(format!("{prefix}.rope.scaling.type"), "dynamic");
            let original = config.u32("max_position_embeddings")?;
            set_contexts(prefix, original, f64::from(original) * factor, metadata);
        }
        Some("yarn") => yarn(config, &scaling, prefix, metadata)?,
        Some("longrope" | "su") => {
            let factors = longrope(config, &scaling, prefix, dims, metadata)?;
            rotations.factors.extend(factors);
        }
        Some("llama3") => rotations.factors.push(("rope_freqs.weight", llama3(&scaling, base, dims)?)),
        Some(_) => return Err(scaling.unsupported(key, SUPPORTED)),
    }
    Ok(rotations)
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

/// The parameters of layers without a window. Those of the others give their base, and nothing else.
fn of_full_layers(object: Object, prefix: &str, metadata: &mut Metadata) -> Result<Object, Error> {
    if let Some(windows) = object.opt_object("sliding_attention")? {
        if windows.opt_str("rope_type")?.is_some_and(|name| name != "default") {
            return Err(windows.unsupported("rope_type", "default"));
        }
        if let Some(base) = windows.opt_positive("rope_theta")? {
            metadata.set(format!("{prefix}.rope.freq_base_swa"), base as f32);
        }
    }
    Ok(object.opt_object("full_attention")?.unwrap_or(object))
}

/// Sets the original context, and the longest one if it is more than the file says.
fn set_contexts(prefix: &str, original: u32, longest: f64, metadata: &mut Metadata) {
    metadata.set(format!("{prefix}.rope.scaling.original_context_length"), original);
    let key = format!("{prefix}.context_length");
    let known = metadata.opt_u32(&key).ok().flatten().unwrap_or(original);
    metadata.set(key, known.max(longest as u32));
}

/// The context that a model was trained with before its rotations were scaled.
fn original_context(config: &Object, scaling: &Object) -> Result<u32, Error> {
    let field = "original_max_position_embeddings";
    let original = match scaling.opt_u32(field)? {
        Some(original) => Some(original),
        None => config.opt_u32(field)?,
    };
    match original {
        Some(0) => Err(scaling.wrong(field, "at least 1")),
        Some(original) => Ok(original),
        None => config.u32("max_position_embeddings"),
    }
}

fn yarn(config: &Object, scaling: &Object, prefix: &str, metadata: &mut Metadata) -> Result<(), Error> {
    let original = original_context(config, scaling)?;
    let context = f64::from(config.u32("max_position_embeddings")?);
    let factor = scaling.opt_positive("factor")?.unwrap_or(context / f64::from(original));
    metadata.set(format!("{prefix}.rope.scaling.type"), "yarn");
    set_contexts(prefix, original, f64::from(original) * factor, metadata);
    let mut set = |key: &str, value: f64| metadata.set(format!("{prefix}.rope.scaling.{key}"), value as f32);
    set("factor", factor);
    for (field, key) in [
        ("beta_fast", "yarn_beta_fast"),
        ("beta_slow", "yarn_beta_slow"),
        ("extrapolation_factor", "yarn_ext_factor"),
    ] {
        if let Some(value) = scaling.opt_positive(field)? {
            set(key, value);
        }
    }
    let [mscale, all_dims] =
        [scaling.opt_f64("mscale")?, scaling.opt_f64("mscale_all_dim")?].map(|m| m.unwrap_or(0.0));
    if let Some(magnitude) = scaling.opt_positive("attention_factor")? {
        set("yarn_attn_factor", magnitude);
    } else if mscale == 1.0 && all_dims != 0.0 {
        set("yarn_log_multiplier", all_dims);
    } else if mscale != 0.0 && all_dims != 0.0 && factor > 1.0 {
        let magnitude = |multiplier: f64| 0.1 * multiplier * factor.ln() + 1.0;
        set("yarn_attn_factor", magnitude(mscale) / magnitude(all_dims));
    }
    if scaling.opt_bool("truncate")? == Some(false) {
        metadata.set(format!("{prefix}.rope.scaling.yarn_truncate"), false);
    }
    Ok(())
}

fn longrope(
    config: &Object,
    scaling: &Object,
    prefix: &str,
    dims: usize,
    metadata: &mut Metadata,
) -> Result<[(&'static str, Vec<f32>); 2], Error> {
    for field in ["short_mscale", "long_mscale"] {
        if scaling.get(field).is_some() {
            return Err(scaling.unsupported(field, "no such field"));
        }
    }
    let original = original_context(config, scaling)?;
    let factor = f64::from(config.u32("max_position_embeddings")?) / f64::from(original);
    let factor = scaling.opt_positive("factor")?.unwrap_or(factor);
    let magnitude = match scaling.opt_positive("attention_factor")? {
        Some(magnitude) => magnitude,
        None if factor <= 1.0 || original <= 1 => 1.0,
        None => (1.0 + factor.ln() / f64::from(original).ln()).sqrt(),
    };
    metadata.set(format!("{prefix}.rope.scaling.type"), "longrope");
    metadata.set(format!("{prefix}.rope.scaling.attn_factor"), magnitude as f32);
    metadata.set(format!("{prefix}.rope.scaling.original_context_length"), original);
    let factors = |field: &str| {
        let factors = scaling.opt_factors(field)?.filter(|factors| factors.len() == dims / 2);
        factors.ok_or_else(|| scaling.wrong(field, format!("{} positive numbers", dims / 2)))
    };
    Ok([
        ("rope_factors_long.weight", factors("long_factor")?),
        ("rope_factors_short.weight", factors("short_factor")?),
    ])
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
    object.opt_positive(field)?.or(default).ok_or_else(|| object.wrong(field, "a positive number"))
}
