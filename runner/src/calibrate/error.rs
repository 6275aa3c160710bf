//! Why a calibration ended.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::{model, requantize};
use halfbyte_gguf::imatrix;

/// What went wrong, or that somebody stopped it.
#[non_exhaustive]
#[derive(Debug, Error)]
pub enum Error {
    /// The model.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// The weights.
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
    /// Something that is there is not the checkpoint of this run.
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
    /// Whoever was asked whether to go on said no.
    #[error("stopped")]
    Stopped,
}
