//! Llama 2 and 3, SmolLM2, Mistral 7B, and others that were converted to it.

use halfbyte_cpu_kernels::RopeOrder;
use halfbyte_gguf::Metadata;

use super::{Architecture, Layout, Reader, experts};
use crate::model::{Description, Error, Gating};
use crate::source::{self, Object};

pub(super) const LLAMA: Architecture = Architecture {
    name: "llama",
    model_types: &["llama", "mistral"],
    rope_order: RopeOrder::Adjacent,
    modules: &MODULES,
    configure: configure_llama,
    describe,
    ..Architecture::USUAL
};

/// Mixtral, which GGUF files know as llama.
pub(super) const MIXTRAL: Architecture = Architecture {
    model_types: &["mixtral"],
    modules: &MIXTRAL_MODULES,
    configure: experts::configure,
    ..LLAMA
};

const MIXTRAL_MODULES: [(&str, &str); 13] = [
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("block_sparse_moe.gate", "ffn_gate_inp"),
    ("block_sparse_moe.experts.*.w1", "ffn_gate.*"),
    ("block_sparse_moe.experts.*.w3", "ffn_up.*"),
    ("block_sparse_moe.experts.*.w2", "ffn_down.*"),
    ("block_sparse_moe.switch_mlp.gate_proj", "ffn_gate_exps"),
    ("block_sparse_moe.switch_mlp.up_proj", "ffn_up_exps"),
    ("block_sparse_moe.switch_mlp.down_proj", "ffn_down_exps"),
];

/// The modules of a layer that most architectures have.
pub(super) const MODULES: [(&str, &str); 9] = [
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// Refuses activations other than SiLU, and sliding windows.
pub(super) fn configure(config: &Object, _: &mut Metadata) -> Result<(), source::Error> {
    require_silu(config)?;
    if config.opt_bool("use_sliding_window")? == Some(true) {
        return Err(config.unsupported("use_sliding_window", "false"));
    }
    Ok(())
}

/// Refuses activations other than SiLU.
pub(super) fn require_silu(config: &Object) -> Result<(), source::Error> {
    for field in ["hidden_act", "activation_function"] {
        if config.opt_str(field)?.is_some_and(|name| name != "silu") {
            return Err(config.unsupported(field, "silu"));
        }
    }
    Ok(())
}

fn configure_llama(config: &Object, metadata: &mut Metadata) -> Result<(), source::Error> {
    configure(config, metadata)?;
    // Mistral's files name a window where all layers have one; Llama's have none.
    if config.opt_str("model_type")? == Some("mistral")
        && let Some(window) = config.opt_u32("sliding_window")?
    {
        metadata.set("llama.attention.sliding_window", window);
    }
    Ok(())
}

fn describe(reader: &Reader<'_>) -> Result<Description, Error> {
    let window = reader.window(0)?;
    // Mixtral's layers are Llama's with experts.
    let layout = Layout { experts: Some(Gating::SoftmaxOfChosen), ..Layout::LLAMA };
    reader.dense(layout, |_, _, _, attention| {
        attention.window = window;
        Ok(())
    })
}
