//! Gemma 2: Gemma's layer with norms before and after each half, soft caps on scores and logits, and a window in every
//! other layer.

use halfbyte_cpu_kernels::RopeOrder;
use halfbyte_gguf::Metadata;

use super::{Architecture, Layout, Reader, gemma, set_windows};
use crate::model::{Activation, Attention, Description, Error};
use crate::source::{self, Object};

pub(super) const GEMMA2: Architecture = Architecture {
    name: "gemma2",
    model_types: &["gemma2"],
    rope_order: RopeOrder::Halves,
    modules: &MODULES,
    form: gemma::form,
    configure,
    describe,
    ..Architecture::USUAL
};

/// The modules of a layer with norms before and after its halves.
pub(super) const MODULES: [(&str, &str); 11] = [
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// The window of files that name none, as in llama.cpp.
const WINDOW: u32 = 4096;

fn configure(config: &Object, metadata: &mut Metadata) -> Result<(), source::Error> {
    gemma::configure(config, metadata)?;
    for (field, default) in [("attn_logit_softcapping", 50.0), ("final_logit_softcapping", 30.0)] {
        // `null` is no cap, and a missing field is the usual one.
        if !config.has(field) {
            metadata.set(format!("gemma2.{field}"), default as f32);
        } else if let Some(cap) = config.opt_positive(field)? {
            metadata.set(format!("gemma2.{field}"), cap as f32);
        }
    }
    set_attention_scale(config, metadata, "gemma2", 256.0)?;
    set_windows(config, metadata, "gemma2", 2, Some(WINDOW))
}

/// Sets what scores are multiplied by: the inverse root of `query_pre_attn_scalar`.
pub(super) fn set_attention_scale(
    config: &Object,
    metadata: &mut Metadata,
    prefix: &str,
    default: f64,
) -> Result<(), source::Error> {
    let scalar = config.opt_positive("query_pre_attn_scalar")?.unwrap_or(default);
    metadata.set(format!("{prefix}.attention.scale"), (1.0 / scalar.sqrt()) as f32);
    Ok(())
}

/// What scores are multiplied by: what the file says, else what all models of the family have but the one of 27 billion
/// weights, which is known by its number of layers, `largest`.
pub(super) fn attention_scale(
    reader: &Reader<'_>,
    width: usize,
    attention: &Attention,
    largest: usize,
) -> Result<f32, Error> {
    if let Some(scale) = reader.opt_positive("attention.scale")? {
        return Ok(scale);
    }
    let dim = if reader.n_layers()? == largest { width / attention.n_heads } else { attention.head_dim };
    Ok(1.0 / (dim as f32).sqrt())
}

fn describe(reader: &Reader<'_>) -> Result<Description, Error> {
    let layout = Layout { activation: Activation::GeluTanh, after: true, ..Layout::LLAMA };
    let window = reader.window(WINDOW)?;
    let windowed = reader.windowed(2)?;
    let soft_cap = reader.opt_positive("attn_logit_softcapping")?;
    let mut description = reader.dense(layout, |reader, description, i, attention| {
        attention.scale = attention_scale(reader, description.width, attention, 46)?;
        attention.window = window.filter(|_| windowed[i]);
        attention.soft_cap = soft_cap;
        Ok(())
    })?;
    gemma::scale_embeddings(&mut description);
    description.scales.logit_cap = reader.opt_positive("final_logit_softcapping")?;
    Ok(description)
}
