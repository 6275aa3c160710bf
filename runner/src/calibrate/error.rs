//! Why a calibration failed or was stopped.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::{model, requantize};
use halfbyte_gguf::imatrix;

/// Why a calibration failed or was stopped.
#[non_exhaustive]
#[derive(Debug, Error)]
pub enum Error {
    /// The model cannot be run.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// The weights cannot be read or written.
    #[error(transparent)]
    Requantize(#[from] requantize::Error),
    /// The inputs of some matrices cannot be used.
    #[error("the inputs of {tensors}: {source}")]
    Moments {
        /// The tensors that read them.
        tensors: String,
        /// What is wrong with their second moments.
        source: halfbyte_q4::Error,
    },
    /// Squares of activations cannot be added up.
    #[error(transparent)]
    Imatrix(#[from] imatrix::Error),
    /// The file at the checkpoint's path is not the checkpoint of this run.
    #[error(
        "{} is not from this run (another input, text or option, or no checkpoint at all): remove it to begin anew",
        path.display()
    )]
    Checkpoint {
        /// Its path.
        path: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The caller stopped the calibration.
    #[error("stopped")]
    Stopped,
}
