//! Phi 3, Phi 3.5 and Phi 4: Llama's layer with queries, keys and values in one tensor and gate and up in another,
//! LongRoPE, rotations of a part of each head in Phi 4 mini, and a window in all layers of some.
//!
//! llama.cpp leaves the window out, and so does mlx-lm. Transformers computes it, and the model was trained with it, so it
//! is in use here: texts of no more tokens than the window, 2047 at least, have the same logits everywhere.

use halfbyte_cpu_kernels::RopeOrder;
use halfbyte_gguf::Metadata;

use super::{Architecture, Layout, Reader, llama};
use crate::model::{Description, Error};
use crate::source::{self, Object};

pub(super) const PHI3: Architecture = Architecture {
    name: "phi3",
    model_types: &["phi3"],
    rope_order: RopeOrder::Halves,
    modules: &[
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.qkv_proj", "attn_qkv"),
        ("self_attn.o_proj", "attn_output"),
        ("mlp.gate_up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ],
    configure,
    describe,
    ..Architecture::USUAL
};

fn configure(config: &Object, metadata: &mut Metadata) -> Result<(), source::Error> {
    llama::configure(config, metadata)?;
    if let Some(window) = config.opt_u32("sliding_window")? {
        metadata.set("phi3.attention.sliding_window", window);
    }
    Ok(())
}

fn describe(reader: &Reader<'_>) -> Result<Description, Error> {
    let layout = Layout { gate_in_up: true, ..Layout::LLAMA };
    let window = reader.window(0)?;
    reader.dense(layout, |_, _, _, attention| {
        attention.window = window;
        Ok(())
    })
}
