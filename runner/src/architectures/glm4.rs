//! GLM 4 (0414): norms before and after each half, gate and up in one tensor, and rotations of half of each head, whose
//! pairs lie side by side in directories, too.

use halfbyte_cpu_kernels::RopeOrder;
use halfbyte_gguf::Metadata;

use super::{Architecture, Layout, Reader, llama};
use crate::model::{Description, Error};
use crate::source::{self, Object};

pub(super) const GLM4: Architecture = Architecture {
    name: "glm4",
    model_types: &["glm4"],
    rope_order: RopeOrder::Adjacent,
    directory_rope_order: RopeOrder::Adjacent,
    modules: &[
        ("input_layernorm", "attn_norm"),
        ("post_self_attn_layernorm", "post_attention_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("post_mlp_layernorm", "post_ffw_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("mlp.gate_up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ],
    partial_rotary: 0.5,
    configure,
    describe,
    ..Architecture::USUAL
};

fn configure(config: &Object, metadata: &mut Metadata) -> Result<(), source::Error> {
    llama::configure(config, metadata)
}

fn describe(reader: &Reader<'_>) -> Result<Description, Error> {
    reader.refuse("rope.dimension_sections", "text models, which have none")?;
    let layout = Layout { after: true, gate_in_up: true, ..Layout::LLAMA };
    reader.dense(layout, |_, _, _, _| Ok(()))
}
