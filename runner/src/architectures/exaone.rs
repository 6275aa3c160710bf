//! EXAONE 3 and 3.5: Llama's layer, by other names in directories.

use halfbyte_cpu_kernels::RopeOrder;
use halfbyte_gguf::Metadata;

use super::{Architecture, Layout, Reader, Roots, llama};
use crate::model::{Description, Error};
use crate::source::{self, Object};

pub(super) const EXAONE: Architecture = Architecture {
    name: "exaone",
    model_types: &["exaone"],
    rope_order: RopeOrder::Halves,
    roots: Roots { embedding: "transformer.wte", norm: "transformer.ln_f", layers: "transformer.h." },
    modules: &[
        ("ln_1", "attn_norm"),
        ("ln_2", "ffn_norm"),
        ("attn.attention.q_proj", "attn_q"),
        ("attn.attention.k_proj", "attn_k"),
        ("attn.attention.v_proj", "attn_v"),
        ("attn.attention.out_proj", "attn_output"),
        ("mlp.c_fc_0", "ffn_gate"),
        ("mlp.c_fc_1", "ffn_up"),
        ("mlp.c_proj", "ffn_down"),
    ],
    configure,
    describe,
    ..Architecture::USUAL
};

fn configure(config: &Object, metadata: &mut Metadata) -> Result<(), source::Error> {
    llama::configure(config, metadata)
}

fn describe(reader: &Reader<'_>) -> Result<Description, Error> {
    reader.dense(Layout::LLAMA, |_, _, _, _| Ok(()))
}
