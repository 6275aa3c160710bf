//! What can go wrong when a pool is made or sized. A pool that exists has no errors.

use std::io;

use crate::MAX_THREADS;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A pool of no threads, or of more than [`MAX_THREADS`].
    #[error("a pool has 1 to {max} threads, got {got}", max = MAX_THREADS)]
    ThreadCount {
        /// The number of threads asked for.
        got: usize,
    },

    /// The operating system refused to start a worker. Those already started have been joined.
    #[error("could not start worker {worker} of a pool of {threads} threads")]
    Spawn {
        /// The worker's number; the caller's thread is number 0.
        worker: usize,
        /// The number of threads asked for.
        threads: usize,
        /// What the operating system said.
        source: io::Error,
    },

    /// The environment variable that overrides the number of threads does not hold one.
    #[error("{variable} must be a whole number from 1 to {max}, got {got:?}", max = MAX_THREADS)]
    Override {
        /// The variable's name, [`THREADS_VARIABLE`](crate::THREADS_VARIABLE).
        variable: &'static str,
        /// Its value.
        got: String,
    },
}
