//! EXAONE 4: norms after each half of a layer and none before, norms over heads, and in the model of 32 billion weights
//! windows in three of four layers and no rotations in the fourth.

use halfbyte_cpu_kernels::RopeOrder;
use halfbyte_gguf::Metadata;

use super::olmo2::AFTER_MODULES;
use super::{Architecture, Layout, Reader, llama, set_windows};
use crate::model::{Description, Error};
use crate::source::{self, Object};

pub(super) const EXAONE4: Architecture = Architecture {
    name: "exaone4",
    model_types: &["exaone4"],
    rope_order: RopeOrder::Halves,
    modules: &AFTER_MODULES,
    configure,
    describe,
    ..Architecture::USUAL
};

fn configure(config: &Object, metadata: &mut Metadata) -> Result<(), source::Error> {
    llama::configure(config, metadata)?;
    if config.opt_u32("sliding_window")?.is_some() {
        set_windows(config, metadata, "exaone4", 4, None)?;
    }
    Ok(())
}

fn describe(reader: &Reader<'_>) -> Result<Description, Error> {
    let layout = Layout { before: false, after: true, ..Layout::LLAMA };
    // Files of the large model need not name the window, and those of the small one have none.
    let usual = if reader.n_layers()? == 64 { 4096 } else { 0 };
    let (window, windowed) = (reader.window(usual)?, reader.windowed(4)?);
    reader.dense(layout, |reader, description, i, attention| {
        attention.head_norms = Some(reader.head_norms(description, i, attention.head_dim)?);
        attention.window = window.filter(|_| windowed[i]);
        attention.rope = attention.rope.filter(|_| window.is_none() || windowed[i]);
        Ok(())
    })
}
