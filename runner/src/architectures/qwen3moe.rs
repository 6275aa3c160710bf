//! Qwen3 with experts: Qwen3's attention, and experts whose shares add up to 1.

use halfbyte_cpu_kernels::RopeOrder;

use super::{Architecture, Layout, Reader, experts, qwen3};
use crate::model::{Description, Error, Gating};

pub(super) const QWEN3MOE: Architecture = Architecture {
    name: "qwen3moe",
    model_types: &["qwen3_moe"],
    rope_order: RopeOrder::Halves,
    modules: &experts::MODULES,
    configure: experts::configure,
    describe,
    ..Architecture::USUAL
};

fn describe(reader: &Reader<'_>) -> Result<Description, Error> {
    let layout = Layout { experts: Some(Gating::SoftmaxOfChosen), ..Layout::LLAMA };
    reader.dense(layout, qwen3::add_head_norms)
}
