//! OLMoE: experts, and norms over all heads of the queries and of the keys.

use halfbyte_cpu_kernels::RopeOrder;

use super::{Architecture, Layout, Reader, experts, olmo2};
use crate::model::{Description, Error, Gating};

pub(super) const OLMOE: Architecture = Architecture {
    name: "olmoe",
    model_types: &["olmoe"],
    rope_order: RopeOrder::Halves,
    modules: &experts::MODULES,
    configure: experts::configure,
    describe,
    ..Architecture::USUAL
};

fn describe(reader: &Reader<'_>) -> Result<Description, Error> {
    let layout = Layout { experts: Some(Gating::Softmax), ..Layout::LLAMA };
    reader.dense(layout, olmo2::add_wide_norms)
}
