//! Ranks by MPI.

use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result, bail};
use halfbyte::model::{Error, Ranks};
use mpi::Threading;
use mpi::datatype::PartitionMut;
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Root};

use super::super::output::note;

pub(super) const BUILT_IN: bool = true;

/// MPI from its beginning to its end.
pub(super) struct World {
    ranks: Arc<MpiRanks>,
    /// Ends MPI when it is dropped.
    _universe: Universe,
}

impl World {
    pub(super) fn start() -> Result<Self> {
        let started = mpi::initialize_with_threading(Threading::Serialized);
        let (universe, threading) = started.context("MPI was begun before")?;
        if threading < Threading::Serialized {
            bail!("MPI's library gives the threading level {threading:?}: expected at least Serialized");
        }
        let world = universe.world();
        let ranks = Arc::new(MpiRanks {
            rank: world.rank().try_into().context("MPI's rank")?,
            count: world.size().try_into().context("MPI's size")?,
            one_at_a_time: Mutex::new(()),
        });
        Ok(Self { ranks, _universe: universe })
    }

    pub(super) fn ranks(&self) -> Arc<dyn Ranks> {
        Arc::clone(&self.ranks) as Arc<dyn Ranks>
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // The end of MPI waits for all ranks, of which some wait for this one.
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
    /// As [`Threading::Serialized`] asks for.
    one_at_a_time: Mutex<()>,
}

impl MpiRanks {
    /// `call` with the communicator. MPI ends all processes when one of its calls fails.
    fn call<T>(&self, call: impl FnOnce(SimpleCommunicator) -> T) -> T {
        let _lock = self.one_at_a_time.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        call(SimpleCommunicator::world())
    }
}

/// `counts` and where each part begins, as MPI takes them.
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
        note!("error: rank {}: {why}", self.rank);
        SimpleCommunicator::world().abort(1);
    }
}
