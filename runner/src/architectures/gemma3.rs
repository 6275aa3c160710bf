//! Gemma 3, the part that reads text: Gemma 2's layer with norms over heads in place of soft caps, and windows in five of
//! six layers, whose rotations have a base of their own and are not scaled.

use halfbyte_cpu_kernels::RopeOrder;
use halfbyte_gguf::Metadata;

use super::gemma2::{attention_scale, set_attention_scale};
use super::{Architecture, Layout, Reader, gemma, set_windows};
use crate::model::{Activation, Description, Error};
use crate::source::{self, Object};

pub(super) const GEMMA3: Architecture = Architecture {
    name: "gemma3",
    model_types: &["gemma3_text", "gemma3"],
    rope_order: RopeOrder::Halves,
    modules: &[
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "post_attention_norm"),
        ("pre_feedforward_layernorm", "ffn_norm"),
        ("post_feedforward_layernorm", "post_ffw_norm"),
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
    // The text part of a directory that reads images leaves out what transformers has by default.
    defaults: &[
        ("max_position_embeddings", 131_072),
        ("num_attention_heads", 8),
        ("num_key_value_heads", 4),
        ("head_dim", 256),
        ("vocab_size", 262_208),
        ("rope_theta", 1_000_000),
    ],
    plain_in_windows: true,
    form: gemma::form,
    configure,
    describe,
    ..Architecture::USUAL
};

/// The base of the rotations in layers with a window.
const WINDOW_BASE: f32 = 10_000.0;

fn configure(config: &Object, metadata: &mut Metadata) -> Result<(), source::Error> {
    gemma::configure(config, metadata)?;
    if config.opt_bool("use_bidirectional_attention")? == Some(true) {
        return Err(config.unsupported("use_bidirectional_attention", "false"));
    }
    for (field, key) in [
        ("attn_logit_softcapping", "attn_logit_softcapping"),
        ("final_logit_softcapping", "final_logit_softcapping"),
        ("rope_local_base_freq", "rope.freq_base_swa"),
    ] {
        if let Some(value) = config.opt_positive(field)? {
            metadata.set(format!("gemma3.{key}"), value as f32);
        }
    }
    set_attention_scale(config, metadata, "gemma3", 256.0)?;
    set_windows(config, metadata, "gemma3", 6, Some(4096))
}

fn describe(reader: &Reader<'_>) -> Result<Description, Error> {
    let layout = Layout { activation: Activation::GeluTanh, after: true, ..Layout::LLAMA };
    let (window, windowed) = (reader.window(0)?, reader.windowed(6)?);
    let soft_cap = reader.opt_positive("attn_logit_softcapping")?;
    let mut local = None;
    let mut description = reader.dense(layout, |reader, description, i, attention| {
        attention.scale = attention_scale(reader, description.width, attention, 62)?;
        attention.head_norms = Some(reader.head_norms(description, i, attention.head_dim)?);
        attention.soft_cap = soft_cap;
        if window.is_some() && windowed[i] {
            attention.window = window;
            let rope = match local {
                Some(rope) => rope,
                None => reader.window_rope(description, attention.head_dim, Some(WINDOW_BASE))?,
            };
            local = Some(rope);
            attention.rope = Some(rope);
        }
        Ok(())
    })?;
    gemma::scale_embeddings(&mut description);
    description.scales.logit_cap = reader.opt_positive("final_logit_softcapping")?;
    Ok(description)
}
