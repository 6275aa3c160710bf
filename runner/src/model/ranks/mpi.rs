//! Ranks that are the processes which `mpirun` has started.

use std::fmt;
use std::sync::{Arc, Mutex};

use mpi::Threading;
use mpi::datatype::PartitionMut;
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Root};

use super::super::Error;
use super::Ranks;

/// MPI, initialized. A process has one of these at most in its life, and drops it after its last call to MPI.
pub struct MpiWorld {
    ranks: Arc<MpiRanks>,
    /// Finalizes MPI when it is dropped.
    _universe: Universe,
}

impl MpiWorld {
    /// Initializes MPI.
    ///
    /// # Errors
    /// [`Error::Link`] if MPI was initialized before, or if its library does not support calls from several threads that
    /// take turns.
    pub fn start() -> Result<Self, Error> {
        let link = |why: &str| Error::Link { why: why.to_owned() };
        let started = mpi::initialize_with_threading(Threading::Serialized);
        let (universe, threading) = started.ok_or_else(|| link("MPI was initialized before"))?;
        if threading < Threading::Serialized {
            let got = format!("{threading:?}");
            return Err(link(&format!(
                "MPI supports the threading level {got}: expected at least Serialized"
            )));
        }
        let world = universe.world();
        let number = |n: i32| usize::try_from(n).map_err(|_| link("MPI gives a negative rank or size"));
        let (rank, count) = (number(world.rank())?, number(world.size())?);
        let ranks = Arc::new(MpiRanks { rank, count, calls: Mutex::new(()) });
        Ok(Self { ranks, _universe: universe })
    }

    /// All processes that `mpirun` has started.
    pub fn ranks(&self) -> Arc<dyn Ranks> {
        Arc::clone(&self.ranks) as Arc<dyn Ranks>
    }
}

impl fmt::Debug for MpiWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MpiWorld").field("ranks", &self.ranks).finish_non_exhaustive()
    }
}

impl Drop for MpiWorld {
    fn drop(&mut self) {
        // Finalizing MPI waits for all ranks, and some of them wait for this one.
        if std::thread::panicking() {
            SimpleCommunicator::world().abort(101);
        }
    }
}

/// All processes that `mpirun` has started.
#[derive(Debug)]
struct MpiRanks {
    rank: usize,
    count: usize,
    /// Held during a call to MPI: with [`Threading::Serialized`] one thread at a time may make one.
    calls: Mutex<()>,
}

impl MpiRanks {
    /// Calls `call` with the communicator of all processes. MPI ends all processes when one of its calls fails.
    fn call<T>(&self, call: impl FnOnce(SimpleCommunicator) -> T) -> T {
        let _lock = self.calls.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        call(SimpleCommunicator::world())
    }
}

/// Returns `counts` and the index at which each part begins, as MPI takes them.
fn layout(counts: &[usize]) -> Result<[Vec<i32>; 2], Error> {
    let mut end = 0;
    let mut starts = Vec::new();
    let mut lengths = Vec::new();
    for &count in counts {
        starts.push(to_i32(end)?);
        lengths.push(to_i32(count)?);
        end += count;
    }
    to_i32(end)?;
    Ok([lengths, starts])
}

fn to_i32(n: usize) -> Result<i32, Error> {
    i32::try_from(n)
        .map_err(|_| Error::Link { why: format!("{n} elements: MPI takes up to {} at once", i32::MAX) })
}

impl Ranks for MpiRanks {
    fn rank(&self) -> usize {
        self.rank
    }

    fn count(&self) -> usize {
        self.count
    }

    fn all_gather(&self, own: &[f32], counts: &[usize], all: &mut [f32]) -> Result<(), Error> {
        let [lengths, starts] = layout(counts)?;
        let mut parts = PartitionMut::new(all, lengths, starts);
        self.call(|world| world.all_gather_varcount_into(own, &mut parts));
        Ok(())
    }

    fn gather(&self, own: &[f32], counts: &[usize], all: &mut [f32]) -> Result<(), Error> {
        if self.rank > 0 {
            to_i32(own.len())?;
            self.call(|world| world.process_at_rank(0).gather_varcount_into(own));
            return Ok(());
        }
        let [lengths, starts] = layout(counts)?;
        let mut parts = PartitionMut::new(all, lengths, starts);
        self.call(|world| world.process_at_rank(0).gather_varcount_into_root(own, &mut parts));
        Ok(())
    }

    fn broadcast(&self, from: usize, message: &mut Vec<u8>) -> Result<(), Error> {
        let root = to_i32(from)?;
        self.call(|world| {
            let mut length = message.len() as u64;
            world.process_at_rank(root).broadcast_into(&mut length);
            to_i32(length as usize)?;
            message.resize(length as usize, 0);
            // An empty slice's address may be one that means something else to MPI.
            if length > 0 {
                world.process_at_rank(root).broadcast_into(message.as_mut_slice());
            }
            Ok(())
        })
    }

    fn fail(&self, why: &str) {
        // All processes end with this call, so that nobody could return the error.
        eprintln!("error: rank {}: {why}", self.rank);
        SimpleCommunicator::world().abort(1);
    }
}
