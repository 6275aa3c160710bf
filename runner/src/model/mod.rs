//! The transformer: a model's layers as data ([`Description`]), with its weights ([`Transformer`]), and sequences of
//! tokens in its context ([`CpuSession`], `CudaSession`, [`Leader`]: each a [`Sequence`]).
//!
//! ```text
//! ids -> embedding rows -> per layer: norm -> q, k, v -> rope -> KV cache -> attention -> output + residual
//!                                     norm -> gate, up -> activation -> down + residual
//!     -> norm -> logits
//! ```
//!
//! A prompt takes the path in chunks of rows, a reply a row at a time. Every kernel on the way promises that a
//! row's bits do not depend on the rows beside it, so neither do the logits.

mod batch;
#[cfg(feature = "cuda")]
pub mod cuda;
mod description;
mod error;
mod experts;
mod forward;
mod layerwise;
mod profile;
mod ranks;
mod recurrent;
mod rope;
mod sequence;
mod session;
mod short_convolution;
mod state;
mod step;
mod transformer;
mod weights;

pub use batch::{Batch, Part, Row, Rows};
pub use description::{
    Activation, Attention, Dense, Description, Experts, FeedForward, GatedDelta, Gating, Layer, Linear,
    MatrixId, MatrixInfo, Mixer, Norm, RopeId, Scales, SharedExpert, ShortConvolution, Temperature, VectorId,
    VectorInfo,
};
pub use error::Error;
pub use layerwise::{Layerwise, Stage, Visitor};
pub use profile::{Phase, PhaseTotals, Profile};
#[cfg(feature = "mpi")]
pub use ranks::MpiWorld;
pub use ranks::{Leader, ModelShare, Ranks, agree, follow};
pub use rope::{LongFrequencies, LongRope, Rope};
pub use sequence::{Greedy, Sequence};
pub use session::{ActivationType, CpuSession, SessionOptions};
pub use state::{CannotCut, SavedState};
pub use transformer::Transformer;

pub use crate::compute::Compute;
#[cfg(feature = "quantize")]
pub(crate) use weights::tensor_matrix;
pub(crate) use weights::vector;
