//! Gemma 1: Llama's layer with GELU, embeddings times the root of the width, and norm weights that directories store
//! less 1.

use halfbyte_cpu_kernels::RopeOrder;
use halfbyte_gguf::Metadata;

use super::{Architecture, Form, Layout, Reader, llama};
use crate::model::{Activation, Description, Error};
use crate::source::{self, Object};

pub(super) const GEMMA: Architecture = Architecture {
    name: "gemma",
    model_types: &["gemma"],
    rope_order: RopeOrder::Halves,
    modules: &llama::MODULES,
    form,
    configure,
    describe,
    ..Architecture::USUAL
};

/// Directories, of whatever program, store weights of norms less 1.
pub(super) fn form(known: &str, _: bool) -> Form {
    if known.ends_with("norm.weight") { Form::PlusOne } else { Form::AsStored }
}

/// The multiplier of embeddings: in float32, as llama.cpp has it and transformers for float32 weights. Transformers rounds
/// it to bfloat16 where the weights are bfloat16, which differs by less than 0.4%.
pub(super) fn scale_embeddings(description: &mut Description) {
    description.scales.embedding = (description.width as f32).sqrt();
}

/// Refuses activations other than GELU by its approximation with `tanh`, and biases.
pub(super) fn configure(config: &Object, _: &mut Metadata) -> Result<(), source::Error> {
    // Gemma 1's files say "gelu" under the older name, and mean the approximation.
    for (field, names) in [
        ("hidden_activation", &["gelu_pytorch_tanh"][..]),
        ("hidden_act", &["gelu_pytorch_tanh", "gelu_tanh", "gelu"]),
    ] {
        if let Some(name) = config.opt_str(field)? {
            if !names.contains(&name) {
                return Err(config.unsupported(field, "gelu_pytorch_tanh"));
            }
            break;
        }
    }
    Ok(())
}

fn describe(reader: &Reader<'_>) -> Result<Description, Error> {
    let layout = Layout { activation: Activation::GeluTanh, ..Layout::LLAMA };
    let mut description = reader.dense(layout, |_, _, _, _| Ok(()))?;
    scale_embeddings(&mut description);
    Ok(description)
}
