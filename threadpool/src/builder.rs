//! Pools that are not plain: names for threads, CPUs to run on.

use crate::{Error, ThreadPool};

/// Makes a [`ThreadPool`] with more said about its threads than their number.
///
/// ```
/// use halfbyte_threadpool::PoolBuilder;
///
/// let pool = PoolBuilder::new(2).name("decoder").build()?;
/// assert_eq!(pool.threads(), 2);
/// # Ok::<(), halfbyte_threadpool::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder makes a pool only when `build` is called"]
pub struct PoolBuilder {
    pub(crate) threads: usize,
    pub(crate) name: String,
    pub(crate) cpus: Option<Vec<usize>>,
}

impl PoolBuilder {
    /// A pool of `threads` threads, the caller's included, as [`ThreadPool::new`] makes it.
    pub fn new(threads: usize) -> Self {
        Self { threads, name: "halfbyte".to_owned(), cpus: None }
    }

    /// Names the workers `name-1`, `name-2`, ... instead of `halfbyte-1`, ... Linux shows the first 15 bytes.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Ties each worker to one CPU: worker `i` to `cpus[i]`. `cpus` has an entry for each thread; entry 0 stands
    /// for the caller's, which the pool leaves as it is, since it may be any thread.
    ///
    /// Numbers are the operating system's, as in `/proc/cpuinfo`. Linux only. Pinning makes a quiet machine a
    /// little steadier and a busy one much worse: a worker whose CPU is taken cannot move to a free one. Leave it
    /// out unless the CPUs are set aside for this program.
    pub fn pin(mut self, cpus: impl IntoIterator<Item = usize>) -> Self {
        self.cpus = Some(cpus.into_iter().collect());
        self
    }

    /// Starts the workers.
    ///
    /// # Errors
    ///
    /// As [`ThreadPool::new`]; [`Error::Name`] if the name holds a zero byte; [`Error::PinCount`] if the CPUs are not
    /// one for each thread; [`Error::Pin`] if the system does not let a worker run on its CPU (it does not exist, is
    /// offline, or outside the process's cpuset), or if the system is not Linux. On any error the workers started
    /// so far have been joined.
    pub fn build(self) -> Result<ThreadPool, Error> {
        ThreadPool::from_builder(self)
    }
}
