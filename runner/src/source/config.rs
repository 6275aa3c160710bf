//! `config.json` as GGUF metadata. This module checks each field by itself; [`crate::architectures`] checks that they fit
//! each other, as it does for GGUF files.

use super::Error;
use super::json::Object;
use super::rope;
use crate::architectures::Architecture;
use halfbyte_gguf::Metadata;

/// The sizes that the tensors' shapes and the order of their rows depend on.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) architecture: &'static Architecture,
    pub(super) head_dim: usize,
    pub(super) n_vocab: usize,
    /// Whether the output matrix is the embedding, if the file says so.
    pub(super) tied: Option<bool>,
    /// Llama 3's factors of the rotation frequencies.
    pub(super) rope_factors: Option<Vec<f32>>,
}

/// The metadata of a model with this configuration.
///
/// # Errors
/// A field is missing, has the wrong type or a value that is not supported; the error names it.
pub(super) fn metadata(config: &Object) -> Result<(Metadata, Shape), Error> {
    let architecture = Architecture::by_model_type(config.opt_str("model_type")?)
        .map_err(|supported| config.unsupported("model_type", supported))?;
    let prefix = architecture.name;
    let size = |field: &str| {
        let n = config.u32(field)?;
        if n == 0 { Err(config.wrong(field, "at least 1")) } else { Ok(n) }
    };
    let opt_size = |field: &str| config.get(field).map(|_| size(field)).transpose();
    let (width, n_heads) = (size("hidden_size")?, size("num_attention_heads")?);
    let n_kv_heads = opt_size("num_key_value_heads")?.unwrap_or(n_heads);
    let head_dim = match opt_size("head_dim")? {
        Some(n) => n,
        None if width.is_multiple_of(n_heads) => width / n_heads,
        None => {
            return Err(config.wrong("hidden_size", format!("a multiple of num_attention_heads, {n_heads}")));
        }
    };
    if !head_dim.is_multiple_of(2) || head_dim > 1 << 20 {
        return Err(config.wrong("head_dim", format!("an even number, and it is {head_dim}")));
    }
    let n_vocab = size("vocab_size")?;
    let mut m = Metadata::new();
    m.set("general.architecture", prefix);
    for (key, value) in [
        ("context_length", size("max_position_embeddings")?),
        ("embedding_length", width),
        ("block_count", size("num_hidden_layers")?),
        ("feed_forward_length", size("intermediate_size")?),
        ("attention.head_count", n_heads),
        ("attention.head_count_kv", n_kv_heads),
        ("attention.key_length", head_dim),
        ("attention.value_length", head_dim),
        ("vocab_size", n_vocab),
    ] {
        m.set(format!("{prefix}.{key}"), value);
    }
    let eps = config.opt_f64("rms_norm_eps")?.unwrap_or(1e-6) as f32;
    if eps <= 0.0 {
        return Err(config.wrong("rms_norm_eps", "a positive number"));
    }
    m.set(format!("{prefix}.attention.layer_norm_rms_epsilon"), eps);
    (architecture.configure)(config, &mut m)?;
    let rope_factors = rope::set(config, architecture, head_dim as usize, &mut m)?;
    let shape = Shape {
        architecture,
        head_dim: head_dim as usize,
        n_vocab: n_vocab as usize,
        tied: config.opt_bool("tie_word_embeddings")?,
        rope_factors,
    };
    Ok((m, shape))
}
