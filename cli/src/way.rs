//! How a context computes: on the CPU or on a CUDA device, and in which types.

use std::fmt;

use anyhow::{Result, bail};
use halfbyte::model::cuda::CudaOptions;
use halfbyte::model::{ActivationType, Description, SessionOptions};
use halfbyte_attention::KvType;
use halfbyte_cuda_kernels::PromptPrecision;
use halfbyte_cuda_kernels::attention::KvFormat;
use serde::Serialize;

use super::args::{ActivationsArg, GlobalArgs};

/// The context that is made when nobody asks for another: long models would take gigabytes for their keys.
const DEFAULT_CONTEXT: usize = 4096;

/// The options of a context, where it is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    Cpu(SessionOptions),
    Cuda(CudaOptions),
}

impl Way {
    /// The same for a context of so many tokens.
    pub(crate) fn with_context(self, context: usize) -> Self {
        match self {
            Self::Cpu(options) => Self::Cpu(SessionOptions { context, ..options }),
            Self::Cuda(options) => Self::Cuda(CudaOptions { context, ..options }),
        }
    }

    pub(crate) fn types(self) -> Types {
        match self {
            Self::Cpu(options) => Types {
                activations: Some(options.activations.name()),
                prompt_precision: None,
                kv_cache: options.kv_type.name().to_owned(),
            },
            Self::Cuda(options) => Types {
                activations: None,
                prompt_precision: Some(options.prompt_precision.to_string()),
                kv_cache: options.kv_format.to_string(),
            },
        }
    }
}

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

/// Tokens that the context holds.
pub(crate) fn context(config: &Description, global: &GlobalArgs) -> usize {
    global.ctx.unwrap_or(config.context.min(DEFAULT_CONTEXT))
}

/// The options of contexts on the CPU.
pub(crate) fn session_options(config: &Description, global: &GlobalArgs) -> SessionOptions {
    let activations = global.activations.map_or(ActivationType::default(), ActivationsArg::activations);
    let kv_type = global.kv_cache.map_or(activations.default_kv_type(), |kind| kind.kv_type());
    SessionOptions { activations, kv_type, ..SessionOptions::new(context(config, global)) }
}

/// The options of contexts on a CUDA device.
pub(crate) fn cuda_options(config: &Description, global: &GlobalArgs) -> Result<CudaOptions> {
    let kv_format = match global.kv_cache.map(|kind| kind.kv_type()) {
        None | Some(KvType::Bf16) => KvFormat::Bf16,
        Some(KvType::Fp8) => KvFormat::Fp8,
        Some(other) => bail!("--kv-cache {}: on a CUDA device expected bf16 or fp8", other.name()),
    };
    let prompt_precision = global.prompt_precision.map_or(PromptPrecision::Bf16, |p| p.precision());
    Ok(CudaOptions { prompt_precision, kv_format, ..CudaOptions::new(context(config, global)) })
}
