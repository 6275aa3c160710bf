//! `config.json` as GGUF metadata. This module checks each field by itself; [`crate::architectures`] checks that they fit
//! each other, as it does for GGUF files.

use super::Error;
use super::json::Object;
use super::rope::{self, Rotations};
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
    /// What rotates, and the factors of its frequencies.
    pub(super) rotations: Rotations,
    /// Whether the directory has a part that reads something other than text, which is left out.
    pub(super) partial: bool,
}

/// `config` with what its architecture has by default, and the architecture.
fn completed(config: &Object) -> Result<(Object, &'static Architecture), Error> {
    let mut config = config.clone();
    let architecture = Architecture::by_model_type(config.opt_str("model_type")?)
        .map_err(|supported| config.unsupported("model_type", supported))?;
    for &(field, value) in architecture.defaults {
        config.set_default(field, value);
    }
    if let Some(layers) = config.opt_u32("num_layers")? {
        config.set_default("num_hidden_layers", layers);
    }
    Ok((config, architecture))
}

/// The metadata of a model with this configuration, of which `text` is the [part about text](Object::text_part).
///
/// # Errors
/// A field is missing, has the wrong type or a value that is not supported; the error names it.
pub(super) fn metadata(text: &Object) -> Result<(Metadata, Shape), Error> {
    let (config, architecture) = completed(text)?;
    let config = &config;
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
        ("attention.head_count", n_heads),
        ("attention.head_count_kv", n_kv_heads),
        ("attention.key_length", head_dim),
        ("attention.value_length", head_dim),
        ("vocab_size", n_vocab),
    ] {
        m.set(format!("{prefix}.{key}"), value);
    }
    // Where all layers have experts, their width is said by a field of its own.
    if config.get("intermediate_size").is_some() || config.get("moe_intermediate_size").is_none() {
        m.set(format!("{prefix}.feed_forward_length"), size("intermediate_size")?);
    }
    let eps = match config.opt_positive("rms_norm_eps")? {
        Some(eps) => eps,
        None => config.opt_positive("layer_norm_epsilon")?.unwrap_or(1e-6),
    } as f32;
    m.set(format!("{prefix}.attention.layer_norm_rms_epsilon"), eps);
    (architecture.configure)(config, &mut m)?;
    let rotations = rope::set(config, architecture, head_dim as usize, &mut m)?;
    let shape = Shape {
        architecture,
        head_dim: head_dim as usize,
        n_vocab: n_vocab as usize,
        tied: config.opt_bool("tie_word_embeddings")?,
        rotations,
        partial: config.get("text_config").is_some(),
    };
    Ok((m, shape))
}
