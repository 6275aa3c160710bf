//! Seed-OSS: Llama's layer with biases on queries, keys and values.

use halfbyte_cpu_kernels::RopeOrder;

use super::{Architecture, Layout, Reader, llama};
use crate::model::{Description, Error};

pub(super) const SEED_OSS: Architecture = Architecture {
    name: "seed_oss",
    model_types: &["seed_oss"],
    rope_order: RopeOrder::Halves,
    modules: &[
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "post_attention_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ],
    configure: llama::configure,
    describe,
    ..Architecture::USUAL
};

fn describe(reader: &Reader<'_>) -> Result<Description, Error> {
    // The name says "after attention", and the norm is before the feed-forward network.
    let layout = Layout { feed_forward_norm: "post_attention_norm", ..Layout::LLAMA };
    reader.dense(layout, |_, _, _, _| Ok(()))
}
