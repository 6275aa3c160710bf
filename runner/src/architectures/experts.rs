//! What architectures with experts have in common: names of tensors, and fields of `config.json`.

use halfbyte_gguf::Metadata;

use super::llama;
use crate::source::{self, Object};

/// The modules of a layer of Qwen's models with experts, and of those that follow their names. `*` stands for a number. Where
/// the experts of a checkpoint are stacked, as MLX has them, they are called `switch_mlp`.
pub(super) const MODULES: [(&str, &str); 22] = [
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
    ("mlp.gate", "ffn_gate_inp"),
    ("mlp.experts.*.gate_proj", "ffn_gate.*"),
    ("mlp.experts.*.up_proj", "ffn_up.*"),
    ("mlp.experts.*.down_proj", "ffn_down.*"),
    ("mlp.switch_mlp.gate_proj", "ffn_gate_exps"),
    ("mlp.switch_mlp.up_proj", "ffn_up_exps"),
    ("mlp.switch_mlp.down_proj", "ffn_down_exps"),
    ("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
    ("mlp.shared_expert.up_proj", "ffn_up_shexp"),
    ("mlp.shared_expert.down_proj", "ffn_down_shexp"),
    ("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
];

/// Llama's fields, and the numbers and sizes of experts.
pub(super) fn configure(config: &Object, metadata: &mut Metadata) -> Result<(), source::Error> {
    llama::configure(config, metadata)?;
    let prefix = metadata.str("general.architecture").unwrap_or_default().to_owned();
    let count = match config.opt_u32("num_experts")? {
        Some(count) => count,
        None => config.u32("num_local_experts")?,
    };
    metadata.set(format!("{prefix}.expert_count"), count);
    metadata.set(format!("{prefix}.expert_used_count"), config.u32("num_experts_per_tok")?);
    for (field, key) in [
        ("moe_intermediate_size", "expert_feed_forward_length"),
        ("shared_expert_intermediate_size", "expert_shared_feed_forward_length"),
    ] {
        if let Some(length) = config.opt_u32(field)? {
            metadata.set(format!("{prefix}.{key}"), length);
        }
    }
    if let Some(normalised) = config.opt_bool("norm_topk_prob")? {
        metadata.set(format!("{prefix}.expert_weights_norm"), normalised);
    }
    Ok(())
}
