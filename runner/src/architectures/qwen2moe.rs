//! Qwen1.5 and Qwen2 with experts: Qwen2's attention, and an expert that every token goes through.

use halfbyte_cpu_kernels::RopeOrder;

use super::{Architecture, Layout, Reader, experts, qwen2};
use crate::model::{Description, Error, Gating};

pub(super) const QWEN2MOE: Architecture = Architecture {
    name: "qwen2moe",
    model_types: &["qwen2_moe"],
    rope_order: RopeOrder::Halves,
    modules: &experts::MODULES,
    configure: experts::configure,
    describe,
    ..Architecture::USUAL
};

fn describe(reader: &Reader<'_>) -> Result<Description, Error> {
    let layout = Layout { experts: Some(Gating::Softmax), ..Layout::LLAMA };
    reader.dense(layout, |_, description, i, attention| {
        qwen2::add_biases(description, i, attention);
        Ok(())
    })
}
