//! Threads and an instruction set that models and sessions share.

use std::sync::Arc;

use halfbyte_cpu_kernels::{Context, Isa};
use halfbyte_threadpool::{ThreadPool, default_threads};

use crate::Error;

/// Threads and an instruction set. A clone uses the same threads.
///
/// Sessions that share one value take turns: a forward pass uses all of its threads.
#[derive(Clone, Debug)]
pub struct Compute {
    pool: Arc<ThreadPool>,
    isa: Isa,
}

impl Compute {
    /// `threads` threads, the caller's included, and the best instruction set of this machine.
    ///
    /// # Errors
    /// No threads or more than a pool can have, or the system's refusal to start them; an environment override that names
    /// an unknown or unavailable instruction set.
    pub fn new(threads: usize) -> Result<Self, Error> {
        Ok(Self { pool: Arc::new(ThreadPool::new(threads)?), isa: Isa::best()? })
    }

    /// As many threads as this process may use well, and the best instruction set.
    ///
    /// # Errors
    /// As [`Self::new`], and a value of `HALFBYTE_THREADS` that is no number of threads.
    pub fn detect() -> Result<Self, Error> {
        Self::new(default_threads()?.count)
    }

    /// The same threads with another instruction set. Results have the same bits.
    #[must_use]
    pub fn with_isa(self, isa: Isa) -> Self {
        Self { isa, ..self }
    }

    /// The number of threads, the caller's included.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// The instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// What the kernels take.
    pub fn context(&self) -> Context<'_> {
        Context { pool: &self.pool, isa: self.isa }
    }

    /// Whether both use the same threads and the same instruction set.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pool, &other.pool) && self.isa == other.isa
    }
}
