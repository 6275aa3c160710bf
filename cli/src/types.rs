//! The types in which a model computes, as the program shows them.

use std::fmt;

use halfbyte::SequenceOptions;
use serde::Serialize;

/// The types' names, as the options take them.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Types {
    /// Of the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    activations: Option<&'static str>,
    /// Of a CUDA device.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_precision: Option<String>,
    kv_cache: String,
}

impl Types {
    pub(crate) fn new(options: SequenceOptions) -> Self {
        Self {
            activations: options.cpu().map(|options| options.activations.name()),
            prompt_precision: options.cuda().map(|options| options.prompt_precision.to_string()),
            kv_cache: options.kv_type_name(),
        }
    }
}

impl fmt::Display for Types {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(activations) = self.activations {
            write!(f, "{activations} activations, ")?;
        }
        if let Some(precision) = &self.prompt_precision {
            write!(f, "{precision} prompts, ")?;
        }
        write!(f, "{} KV cache", self.kv_cache)
    }
}
