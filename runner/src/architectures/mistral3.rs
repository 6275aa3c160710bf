//! Mistral Small 3.1 and Ministral 3, the part that reads text: Llama's layer, with YaRN and scores that grow with the
//! position in Ministral.

use std::num::NonZero;

use halfbyte_cpu_kernels::RopeOrder;
use halfbyte_gguf::Metadata;

use super::{Architecture, Layout, Reader, llama, set_windows};
use crate::model::{Description, Error, Temperature};
use crate::source::{self, Object};

pub(super) const MISTRAL3: Architecture = Architecture {
    name: "mistral3",
    model_types: &["ministral3", "mistral3"],
    rope_order: RopeOrder::Adjacent,
    modules: &llama::MODULES,
    configure,
    describe,
    ..Architecture::USUAL
};

/// Ministral's window is in its layer types, and in use where there are any with one.
fn configure(config: &Object, metadata: &mut Metadata) -> Result<(), source::Error> {
    llama::configure(config, metadata)?;
    if config.get("layer_types").is_some() {
        set_windows(config, metadata, "mistral3", 1, None)?;
    } else if let Some(window) = config.opt_u32("sliding_window")? {
        metadata.set("mistral3.attention.sliding_window", window);
    }
    for field in ["rope_parameters", "rope_scaling"] {
        if let Some(parameters) = config.opt_object(field)?
            && let Some(scale) = parameters.opt_positive("llama_4_scaling_beta")?
        {
            metadata.set("mistral3.attention.temperature_scale", scale as f32);
            break;
        }
    }
    Ok(())
}

fn describe(reader: &Reader<'_>) -> Result<Description, Error> {
    let (window, windowed) = (reader.window(0)?, reader.windowed(0)?);
    let temperature = match reader.opt_scale("attention.temperature_scale")? {
        None => None,
        Some(scale) => {
            let length = match reader.opt_size("rope.scaling.original_context_length")? {
                Some(length) => length,
                None => reader.size("context_length")?,
            };
            NonZero::new(length).map(|length| Temperature { scale, length })
        }
    };
    reader.dense(Layout::LLAMA, |_, _, i, attention| {
        attention.window = window.filter(|_| windowed[i]);
        attention.temperature = temperature;
        Ok(())
    })
}
