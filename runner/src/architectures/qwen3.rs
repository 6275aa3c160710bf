//! Qwen3: Llama's layer with a norm over every head of queries and keys.

use halfbyte_cpu_kernels::RopeOrder;

use super::{Architecture, Layout, Reader, llama};
use crate::model::{Attention, Description, Error};

pub(super) const QWEN3: Architecture = Architecture {
    name: "qwen3",
    model_types: &["qwen3"],
    rope_order: RopeOrder::Halves,
    modules: &[
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ],
    configure: llama::configure,
    describe,
    ..Architecture::USUAL
};

fn describe(reader: &Reader<'_>) -> Result<Description, Error> {
    reader.dense(Layout::LLAMA, add_head_norms)
}

/// Norms over every head of queries and keys.
pub(super) fn add_head_norms(
    reader: &Reader<'_>,
    description: &mut Description,
    i: usize,
    attention: &mut Attention,
) -> Result<(), Error> {
    attention.head_norms = Some(reader.head_norms(description, i, attention.head_dim)?);
    Ok(())
}
