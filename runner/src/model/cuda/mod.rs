//! The model on a CUDA device: a GPU, or the emulator in its place.
//!
//! ```text
//! ids -> embedding rows -> per layer: norm (+ sums) -> q, k, v -> rope, KV write -> attention -> output -> + residual
//!                                     norm (+ sums) -> gate, up -> SwiGLU (+ sums) -> down -> + residual
//!     -> norm -> logits
//! ```
//!
//! Activations and the residual stream are bf16. A prompt's rows take the prompt's kernels, however few they are, and a
//! reply's rows the window's kernels: a row's bits depend on which of the two it takes, and not on the rows beside it, so
//! that neither a prompt's chunks nor a window that verifies drafts change a token. A window's products do what stands
//! behind them, SwiGLU and the residual sums, themselves.
//!
//! Sessions of one model share its weights alone: each has its caches, its working memory and its stream, and any number
//! of them may be fed at once, each from a thread of its own if that suits.

mod session;
mod upload;

pub use session::{CudaOptions, CudaSession};
pub use upload::CudaModel;

use thiserror::Error;

/// Why a model can't be put on a device, or run there.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The model has something that there are no CUDA kernels for.
    #[error("{what} is {got}: on a CUDA device expected {expected}")]
    Unsupported {
        /// What it is.
        what: &'static str,
        /// What there is.
        expected: &'static str,
        /// What the model has.
        got: String,
    },
    /// The logits of a row are all infinite or not numbers.
    #[error("no logit after token {position} of the context is a finite number: the weights may be broken")]
    NoToken {
        /// The token's place, from 0.
        position: usize,
    },
    /// A launcher refused its arguments, or the driver failed.
    #[error(transparent)]
    Cuda(#[from] halfbyte_cuda_kernels::Error),
    /// The driver failed.
    #[error(transparent)]
    Driver(#[from] halfbyte_cuda_driver::Error),
}

/// The model has `got` where there are kernels for `expected` alone.
fn unsupported(what: &'static str, expected: &'static str, got: impl ToString) -> CudaError {
    CudaError::Unsupported { what, expected, got: got.to_string() }
}
