//! Qwen2 and Qwen2.5: Llama's layer with biases on queries, keys and values.

use halfbyte_cpu_kernels::RopeOrder;

use super::{Architecture, Reader, llama};
use crate::model::{Description, Error, Mixer};

pub(super) const QWEN2: Architecture = Architecture {
    name: "qwen2",
    model_type: "qwen2",
    rope_order: RopeOrder::Halves,
    modules: &llama::MODULES,
    configure: llama::configure,
    describe,
};

fn describe(reader: &Reader<'_>) -> Result<Description, Error> {
    reader.refuse_experts()?;
    reader.dense(|_, description, i, layer| {
        let Mixer::Attention(attention) = &mut layer.mixer else { return Ok(()) };
        for (linear, part) in
            [(&mut attention.q, "attn_q"), (&mut attention.k, "attn_k"), (&mut attention.v, "attn_v")]
        {
            let rows = description.matrix(linear.matrix).tensor_rows;
            linear.bias.get_or_insert_with(|| description.add_vector(format!("blk.{i}.{part}.bias"), rows));
        }
        Ok(())
    })
}
