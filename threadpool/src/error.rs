//! What can go wrong when a pool is made or sized. A pool that exists has no errors.

use std::io;

use crate::MAX_THREADS;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A pool was asked to have no threads, or more than [`MAX_THREADS`].
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

    /// A name for threads that no thread can have.
    #[error("a thread's name cannot hold a zero byte, got {got:?}")]
    Name {
        /// The name asked for.
        got: String,
    },

    /// Not one CPU for each thread.
    #[error("a pool of {expected} threads is pinned to as many CPUs, got {got}")]
    PinCount {
        /// The number of threads.
        expected: usize,
        /// The number of CPUs.
        got: usize,
    },

    /// The operating system did not tie a worker to a CPU. The workers have been joined.
    #[error("could not pin worker {worker} to CPU {cpu}")]
    Pin {
        /// The worker's number; the caller's thread is number 0.
        worker: usize,
        /// The CPU asked for.
        cpu: usize,
        /// What the operating system said; of kind `Unsupported` on systems other than Linux.
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
