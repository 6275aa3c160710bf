//! Granite with experts: Granite's multipliers, and a shared expert in some.

use halfbyte_cpu_kernels::RopeOrder;
use halfbyte_gguf::Metadata;

use super::{Architecture, Layout, Reader, experts, granite};
use crate::model::{Description, Error, Gating};
use crate::source::{self, Object};

pub(super) const GRANITEMOE: Architecture = Architecture {
    name: "granitemoe",
    model_types: &["granitemoe"],
    rope_order: RopeOrder::Adjacent,
    modules: &[
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("block_sparse_moe.router.layer", "ffn_gate_inp"),
        ("block_sparse_moe.input_linear", "ffn_gate_up_exps"),
        ("block_sparse_moe.output_linear", "ffn_down_exps"),
        ("block_sparse_moe.switch_mlp.gate_proj", "ffn_gate_exps"),
        ("block_sparse_moe.switch_mlp.up_proj", "ffn_up_exps"),
        ("block_sparse_moe.switch_mlp.down_proj", "ffn_down_exps"),
    ],
    configure,
    describe,
    ..Architecture::USUAL
};

fn configure(config: &Object, metadata: &mut Metadata) -> Result<(), source::Error> {
    experts::configure(config, metadata)?;
    granite::set_multipliers(config, metadata, "granitemoe")
}

fn describe(reader: &Reader<'_>) -> Result<Description, Error> {
    granite::describe_with(reader, Layout { experts: Some(Gating::SoftmaxOfChosen), ..Layout::LLAMA })
}
