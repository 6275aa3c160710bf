//! Where a kernel runs.

use crate::{Error, Isa};
use halfbyte_threadpool::ThreadPool;

/// The threads and the instruction set that a call uses. They decide its speed and nothing else: every kernel of this crate
/// gives the same bits with any of them.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The threads to work on.
    pub pool: &'a ThreadPool,
    /// The instruction set.
    pub isa: Isa,
}

impl<'a> Context<'a> {
    /// `pool` with the best ISA path of this machine.
    ///
    /// # Errors
    /// As [`Isa::best`]: an environment override that names an unknown or unavailable path.
    pub fn new(pool: &'a ThreadPool) -> Result<Self, Error> {
        Ok(Self { pool, isa: Isa::best()? })
    }
}
