//! The transformer: hyperparameters and weights of a file ([`Model`]), and one conversation with it ([`Session`]).
//!
//! ```text
//! ids -> embedding rows -> per layer: norm -> q, k, v -> rope -> KV cache -> attention -> output + residual
//!                                     norm -> gate, up -> SwiGLU -> down + residual
//!     -> norm -> logits
//! ```
//!
//! A prompt takes the path in chunks of rows, a reply a row at a time. Every kernel on the way promises that a
//! row's bits do not depend on the rows beside it, so neither do the logits.

mod batch;
mod config;
#[cfg(feature = "cuda")]
pub mod cuda;
mod error;
mod feed;
mod forward;
mod layerwise;
mod profile;
mod ranks;
mod session;
mod step;
mod weights;

pub use batch::{Batch, Part};
pub use config::{Architecture, Config};
pub use error::Error;
pub use feed::{Feed, Greedy};
pub use layerwise::{Layerwise, Stage, Visitor};
pub use profile::{Phase, PhaseTotals, Profile};
pub use ranks::{Leader, ModelShare, Ranks, agree, follow};
pub use session::{ActivationType, Session, SessionOptions};

use crate::source::Source;
use halfbyte_cpu_kernels::Context;
use halfbyte_gguf::Gguf;
use weights::ModelWeights;
#[cfg(feature = "quantize")]
pub(crate) use weights::tensor_matrix;

/// A model: its hyperparameters, and its weights where they lie in an open file or packed for the kernels.
#[derive(Debug)]
pub struct Model<'a> {
    source: &'a dyn Source,
    config: Config,
    weights: ModelWeights<'a>,
}

impl<'a> Model<'a> {
    /// The model in `gguf`, every tensor found and checked; no weight is copied but norms and biases,
    /// until [`Model::pack`].
    ///
    /// # Errors
    /// As [`Config::from_source`]; a tensor that is missing, superfluous, of the wrong shape or of an unsupported
    /// type, by its name.
    pub fn from_gguf(gguf: &'a Gguf) -> Result<Self, Error> {
        Self::from_source(gguf)
    }

    /// The model in `source`, whatever its format, as [`Self::from_gguf`].
    ///
    /// # Errors
    /// As [`Self::from_gguf`].
    pub fn from_source(source: &'a dyn Source) -> Result<Self, Error> {
        let config = Config::from_source(source)?;
        let weights = ModelWeights::from_source(source, &config)?;
        Ok(Self { source, config, weights })
    }

    /// Copies the matrices, but those of Q4_K, Q6_K and MLX's 8 bits, into huge pages where the system has them, quantized ones in
    /// the order in which the kernels read them: prompts and replies are computed faster, with the same bits. It takes
    /// as much memory as those matrices have bytes in the file, whose pages are given back to the system; other programs
    /// that map the file share them no more with this one.
    ///
    /// # Errors
    /// None for a model that could be made.
    pub fn pack(&mut self, ctx: Context<'_>) -> Result<(), Error> {
        let source = self.source;
        self.weights.pack(ctx, || source.release_pages())
    }

    /// The sizes and constants.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether logits are made with the embedding matrix.
    pub fn is_tied(&self) -> bool {
        self.weights.tied
    }

    /// Bytes of weights that each decoded token reads.
    pub fn bytes_per_token(&self) -> usize {
        self.weights.matrices().map(|m| m.bytes()).sum()
    }

    /// Weights in all matrices that a token is multiplied by.
    pub fn weights_per_token(&self) -> usize {
        self.weights.matrices().map(|m| m.rows() * m.cols()).sum()
    }

    /// Matrices that int8 activations are multiplied by when asked for, and the number of all matrices; the rest
    /// (F32, F16, BF16, Q4_K, Q6_K, MLX's 8 bits) always takes f32 activations.
    pub fn int8_matrices(&self) -> (usize, usize) {
        (self.weights.matrices().filter(|m| m.supports_int8()).count(), self.weights.matrices().count())
    }
}
