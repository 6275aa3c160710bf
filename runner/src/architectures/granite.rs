//! Granite 3 and 4 without experts and state: Llama's layer with four multipliers.

use halfbyte_cpu_kernels::RopeOrder;
use halfbyte_gguf::Metadata;

use super::{Architecture, Layout, Reader, llama};
use crate::model::{Description, Error};
use crate::source::{self, Object};

pub(super) const GRANITE: Architecture = Architecture {
    name: "granite",
    model_types: &["granite"],
    rope_order: RopeOrder::Adjacent,
    modules: &llama::MODULES,
    configure,
    describe,
    ..Architecture::USUAL
};

fn configure(config: &Object, metadata: &mut Metadata) -> Result<(), source::Error> {
    llama::configure(config, metadata)?;
    set_multipliers(config, metadata, "granite")
}

/// Sets the four multipliers.
pub(super) fn set_multipliers(
    config: &Object,
    metadata: &mut Metadata,
    prefix: &str,
) -> Result<(), source::Error> {
    for (field, key) in [
        ("embedding_multiplier", "embedding_scale"),
        ("attention_multiplier", "attention.scale"),
        ("residual_multiplier", "residual_scale"),
        ("logits_scaling", "logit_scale"),
    ] {
        metadata.set(format!("{prefix}.{key}"), config.opt_positive(field)?.unwrap_or(1.0) as f32);
    }
    Ok(())
}

fn describe(reader: &Reader<'_>) -> Result<Description, Error> {
    describe_with(reader, Layout::LLAMA)
}

/// A model of such layers with the multipliers.
pub(super) fn describe_with(reader: &Reader<'_>, layout: Layout) -> Result<Description, Error> {
    // A multiplier of 0 stands for none, as in llama.cpp.
    let scale = reader.opt_scale("attention.scale")?;
    // GGUF has this key as the switch of rotations in granite.
    let rotates = reader.metadata.opt_bool(&reader.key("rope.scaling.finetuned"))? != Some(false);
    let mut description = reader.dense(layout, |_, _, _, attention| {
        attention.scale = scale.unwrap_or(attention.scale);
        attention.rope = attention.rope.filter(|_| rotates);
        Ok(())
    })?;
    description.scales.embedding = reader.opt_scale("embedding_scale")?.unwrap_or(1.0);
    description.scales.residual = reader.opt_scale("residual_scale")?.unwrap_or(1.0);
    // Files have the divisor.
    description.scales.logits = 1.0 / reader.positive("logit_scale", None)?;
    Ok(description)
}
