//! gpt-oss: experts with biases and a clamped activation, sinks in every head, windows in every other layer.

use halfbyte_cpu_kernels::RopeOrder;
use halfbyte_gguf::Metadata;

use super::{Architecture, Layout, Reader, experts, set_windows};
use crate::model::{Activation, Description, Error, Gating};
use crate::source::{self, Object};

pub(super) const GPT_OSS: Architecture = Architecture {
    name: "gpt-oss",
    model_types: &["gpt_oss"],
    rope_order: RopeOrder::Halves,
    modules: &[
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "post_attention_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.sinks", "attn_sinks"),
        ("mlp.router", "ffn_gate_inp"),
        ("mlp.experts.gate_proj", "ffn_gate_exps"),
        ("mlp.experts.up_proj", "ffn_up_exps"),
        ("mlp.experts.down_proj", "ffn_down_exps"),
    ],
    defaults: &[("max_position_embeddings", 131_072)],
    configure,
    describe,
    ..Architecture::USUAL
};

fn configure(config: &Object, metadata: &mut Metadata) -> Result<(), source::Error> {
    experts::configure(config, metadata)?;
    set_windows(config, metadata, "gpt-oss", 2, Some(128))
}

fn describe(reader: &Reader<'_>) -> Result<Description, Error> {
    let layout = Layout {
        feed_forward_norm: "post_attention_norm",
        activation: Activation::ClampedSilu,
        experts: Some(Gating::SoftmaxOfChosen),
        ..Layout::LLAMA
    };
    let (window, windowed) = (reader.window(128)?, reader.windowed(2)?);
    reader.dense(layout, |_, description, i, attention| {
        let sinks = description.add_vector(format!("blk.{i}.attn_sinks.weight"), attention.n_heads);
        attention.sinks = Some(sinks);
        attention.window = window.filter(|_| windowed[i]);
        Ok(())
    })
}
