//! A model on several processes, each with a part of every matrix's rows (`docs/scaling.md`).
//!
//! ```text
//! q, k, v      rows of a rank's own heads -> rope, KV cache, attention of those heads -> gather
//! output       a rank's own rows          -> gather -> residual
//! gate, up     a rank's own rows          -> SwiGLU -> gather
//! down         a rank's own rows          -> gather -> residual
//! logits       a rank's own rows          -> gather, on rank 0 alone
//! ```
//!
//! An output is a whole row times a whole input, computed by one rank as a single process would: so every value has the
//! same bits, however many ranks there are. The price is twice as many messages: gathers in place of sums.
//!
//! All ranks make the same forward passes. Rank 0 decides which, in a [`Leader`]; the others [`follow`] it.

mod lead;
#[cfg(feature = "mpi")]
mod mpi;
mod split;

pub use lead::{Leader, agree, follow};
#[cfg(feature = "mpi")]
pub use mpi::MpiWorld;
pub use split::ModelShare;
pub(super) use split::{RankLink, Shares, To};

use super::Error;
use std::fmt::Debug;

/// What connects the processes that share a model, numbered from 0.
///
/// Every rank makes the same calls in the same order, each from one thread at a time.
pub trait Ranks: Debug + Send + Sync {
    /// The number of this process.
    fn rank(&self) -> usize;

    /// The number of processes.
    fn count(&self) -> usize;

    /// Gathers every rank's numbers, rank after rank, into `all`, on every rank. `own` are this one's; rank `r` has `counts[r]`,
    /// which is the same list everywhere, and `all` has room for their sum.
    ///
    /// # Errors
    /// [`Error::Link`] if a rank can't be reached.
    fn all_gather(&self, own: &[f32], counts: &[usize], all: &mut [f32]) -> Result<(), Error>;

    /// As [`Self::all_gather`], but on rank 0 alone: elsewhere `all` is empty.
    ///
    /// # Errors
    /// [`Error::Link`] if a rank can't be reached.
    fn gather(&self, own: &[f32], counts: &[usize], all: &mut [f32]) -> Result<(), Error>;

    /// Copies rank `from`'s message to all ranks.
    ///
    /// # Errors
    /// [`Error::Link`] if a rank can't be reached.
    fn broadcast(&self, from: usize, message: &mut Vec<u8>) -> Result<(), Error>;

    /// Reports why this rank can't go on, and ends all ranks, so that none waits for it.
    fn fail(&self, why: &str);
}
