//! Qwen2 and Qwen2.5: Llama's layer with biases on queries, keys and values.

use halfbyte_cpu_kernels::RopeOrder;

use super::{Architecture, Layout, Reader, llama};
use crate::model::{Attention, Description, Error};

pub(super) const QWEN2: Architecture = Architecture {
    name: "qwen2",
    model_types: &["qwen2"],
    rope_order: RopeOrder::Halves,
    modules: &llama::MODULES,
    configure: llama::configure,
    describe,
    ..Architecture::USUAL
};

fn describe(reader: &Reader<'_>) -> Result<Description, Error> {
    reader.dense(Layout::LLAMA, |_, description, i, attention| {
        add_biases(description, i, attention);
        Ok(())
    })
}

/// Biases on queries, keys and values.
pub(super) fn add_biases(description: &mut Description, i: usize, attention: &mut Attention) {
    for (linear, part) in
        [(&mut attention.q, "attn_q"), (&mut attention.k, "attn_k"), (&mut attention.v, "attn_v")]
    {
        let rows = description.matrix(linear.matrix).tensor_rows;
        linear.bias.get_or_insert_with(|| description.add_vector(format!("blk.{i}.{part}.bias"), rows));
    }
}
