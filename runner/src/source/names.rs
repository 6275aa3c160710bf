//! Hugging Face's names of tensors and GGUF's.

/// GGUF's name of the tensor that a checkpoint calls `name`, if the supported architectures have it.
pub(super) fn gguf_name(name: &str) -> Option<String> {
    match name {
        "model.embed_tokens.weight" => return Some("token_embd.weight".to_owned()),
        "model.norm.weight" => return Some("output_norm.weight".to_owned()),
        "lm_head.weight" => return Some("output.weight".to_owned()),
        _ => {}
    }
    let (layer, rest) = name.strip_prefix("model.layers.")?.split_once('.')?;
    // The number as written, if it is written as numbers are: no sign, no leading zeros.
    let number: u32 = layer.parse().ok().filter(|n: &u32| n.to_string() == layer)?;
    let (module, kind) = rest.rsplit_once('.')?;
    let part = match module {
        "input_layernorm" => "attn_norm",
        "post_attention_layernorm" => "ffn_norm",
        "self_attn.q_proj" => "attn_q",
        "self_attn.k_proj" => "attn_k",
        "self_attn.v_proj" => "attn_v",
        "self_attn.o_proj" => "attn_output",
        "self_attn.q_norm" => "attn_q_norm",
        "self_attn.k_norm" => "attn_k_norm",
        "mlp.gate_proj" => "ffn_gate",
        "mlp.up_proj" => "ffn_up",
        "mlp.down_proj" => "ffn_down",
        _ => return None,
    };
    matches!(kind, "weight" | "bias").then(|| format!("blk.{number}.{part}.{kind}"))
}

/// Whether a tensor says nothing that the hyperparameters do not say: old checkpoints store the rotations.
pub(super) fn is_redundant(name: &str) -> bool {
    name.ends_with(".rotary_emb.inv_freq")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (name, expected) in [
            ("model.embed_tokens.weight", Some("token_embd.weight")),
            ("model.layers.0.self_attn.q_proj.weight", Some("blk.0.attn_q.weight")),
            ("model.layers.31.self_attn.k_proj.bias", Some("blk.31.attn_k.bias")),
            ("model.layers.7.mlp.down_proj.weight", Some("blk.7.ffn_down.weight")),
            ("model.layers.7.mlp.down_proj.scales", None),
            ("model.layers.07.mlp.down_proj.weight", None),
            ("model.layers.+7.mlp.down_proj.weight", None),
            ("model.layers.0.block_sparse_moe.gate.weight", None),
            ("transformer.h.0.attn.weight", None),
        ] {
            assert_eq!(gguf_name(name).as_deref(), expected, "{name}");
        }
    }
}
