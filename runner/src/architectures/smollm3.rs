//! SmolLM3: Llama's layer, without rotations in every fourth.

use halfbyte_cpu_kernels::RopeOrder;
use halfbyte_gguf::{Array, Metadata, Value};

use super::{Architecture, Layout, Reader, llama};
use crate::model::{Description, Error};
use crate::source::{self, Object};

pub(super) const SMOLLM3: Architecture = Architecture {
    name: "smollm3",
    model_types: &["smollm3"],
    rope_order: RopeOrder::Adjacent,
    modules: &llama::MODULES,
    configure,
    describe,
    ..Architecture::USUAL
};

/// One layer in this many has no rotations.
const DISTANCE: usize = 4;

/// Notes which layers rotate, unless it is all but every fourth, which GGUF files do not say.
fn configure(config: &Object, metadata: &mut Metadata) -> Result<(), source::Error> {
    llama::configure(config, metadata)?;
    let n_layers = config.u32("num_hidden_layers")? as usize;
    let interval = config.opt_u32("no_rope_layer_interval")?.map_or(DISTANCE, |n| n as usize);
    if interval == 0 {
        return Err(config.wrong("no_rope_layer_interval", "at least 1"));
    }
    let rotates = match config.opt_ids("no_rope_layers", n_layers)? {
        Some(layers) => layers.into_iter().map(|rotates| rotates != 0).collect(),
        None => every(n_layers, interval),
    };
    if rotates != every(n_layers, DISTANCE) {
        metadata.set("smollm3.attention.rope_pattern", Value::Array(Array::Bool(rotates)));
    }
    Ok(())
}

/// Whether each layer rotates, where one in `distance` does not.
fn every(n_layers: usize, distance: usize) -> Vec<bool> {
    (1..=n_layers).map(|i| !i.is_multiple_of(distance)).collect()
}

fn describe(reader: &Reader<'_>) -> Result<Description, Error> {
    let n_layers = reader.n_layers()?;
    let rotates =
        reader.flags("attention.rope_pattern", n_layers)?.unwrap_or_else(|| every(n_layers, DISTANCE));
    reader.dense(Layout::LLAMA, |_, _, i, attention| {
        attention.rope = attention.rope.filter(|_| rotates[i]);
        Ok(())
    })
}
