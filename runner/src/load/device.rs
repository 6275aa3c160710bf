//! The device that a model computes on, and the options of its sequences.

use crate::model::SessionOptions;
#[cfg(feature = "cuda")]
use crate::model::cuda::{CudaError, CudaOptions};

/// Where a model computes.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Device {
    /// On this CPU.
    #[default]
    Cpu,
    /// On a CUDA device, or on the emulator if that is installed in the place of the driver.
    #[cfg(feature = "cuda")]
    Cuda(halfbyte_cuda_kernels::Kernels),
}

impl Device {
    /// Opens the CUDA device with this number, counted from 0.
    ///
    /// # Errors
    /// [`CudaError::Driver`] if the driver or the device is missing or can't be used, [`CudaError::Cuda`] if the kernels
    /// can't be loaded.
    #[cfg(feature = "cuda")]
    pub fn cuda(ordinal: usize) -> Result<Self, CudaError> {
        let device = halfbyte_cuda_driver::Driver::load()?.device(ordinal)?;
        let context = halfbyte_cuda_driver::Context::primary(device)?;
        Ok(Self::Cuda(halfbyte_cuda_kernels::Kernels::new(&context)?))
    }
}

/// The options of a sequence, for the device that it computes on.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum SequenceOptions {
    /// Of a sequence on the CPU.
    Cpu(SessionOptions),
    /// Of a sequence on a CUDA device.
    #[cfg(feature = "cuda")]
    Cuda(CudaOptions),
}

impl SequenceOptions {
    /// Tokens that the context holds, prompt and reply together.
    pub fn context(&self) -> usize {
        match self {
            Self::Cpu(options) => options.context,
            #[cfg(feature = "cuda")]
            Self::Cuda(options) => options.context,
        }
    }

    /// The same options with a context of `context` tokens.
    #[must_use]
    pub fn with_context(self, context: usize) -> Self {
        match self {
            Self::Cpu(options) => Self::Cpu(SessionOptions { context, ..options }),
            #[cfg(feature = "cuda")]
            Self::Cuda(options) => Self::Cuda(CudaOptions { context, ..options }),
        }
    }

    /// The options of a sequence on the CPU; `None` for those of a device.
    pub fn cpu(&self) -> Option<SessionOptions> {
        match self {
            Self::Cpu(options) => Some(*options),
            #[cfg(feature = "cuda")]
            Self::Cuda(_) => None,
        }
    }

    /// The options of a sequence on a CUDA device; `None` for those of the CPU.
    #[cfg(feature = "cuda")]
    pub fn cuda(&self) -> Option<CudaOptions> {
        match self {
            Self::Cpu(_) => None,
            Self::Cuda(options) => Some(*options),
        }
    }

    /// The name of the type that keys and values have, such as `f16`.
    pub fn kv_type_name(&self) -> String {
        match self {
            Self::Cpu(options) => options.kv_type.name().to_owned(),
            #[cfg(feature = "cuda")]
            Self::Cuda(options) => options.kv_format.to_string(),
        }
    }
}
