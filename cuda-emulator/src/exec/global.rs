//! Global memory as a launch sees it: the allocations that were live when it began.

use std::sync::Arc;

use super::Problem;
use super::global_race::GlobalRaces;
use crate::fault::FaultKind;
use crate::memory::{Allocation, GlobalMemory, MemoryError};

/// The allocations, by address.
#[derive(Debug)]
pub(crate) struct GlobalView<'a> {
    allocations: Vec<Arc<Allocation>>,
    memory: &'a GlobalMemory,
    /// Reads of uninitialised bytes are faults.
    check_initialised: bool,
    pub(crate) races: Option<GlobalRaces>,
}

impl<'a> GlobalView<'a> {
    /// `blocks` is the number of blocks whose races are looked for; `None` if they are not.
    pub(crate) fn new(memory: &'a GlobalMemory, check_initialised: bool, blocks: Option<u64>) -> Self {
        let allocations = memory.snapshot();
        let sizes = allocations.iter().map(|a| a.size);
        let races = blocks.and_then(|blocks| GlobalRaces::new(sizes, blocks));
        Self { allocations, memory, check_initialised, races }
    }

    /// The allocation that holds an aligned access. `hint` is the index that was right last time.
    #[inline]
    pub(crate) fn find(
        &self,
        address: u64,
        size: u32,
        hint: &mut usize,
    ) -> Result<&Allocation, Box<Problem>> {
        let hit = self.allocations.get(*hint).filter(|a| a.contains(address, u64::from(size)));
        let allocation = match hit {
            Some(allocation) => allocation,
            None => self.search(address, size, hint)?,
        };
        if address & u64::from(size - 1) != 0 {
            return Err(misaligned(address, size));
        }
        Ok(allocation)
    }

    #[cold]
    fn search(&self, address: u64, size: u32, hint: &mut usize) -> Result<&Arc<Allocation>, Box<Problem>> {
        let after = self.allocations.partition_point(|a| a.base <= address);
        let found = after.checked_sub(1).map(|index| (index, &self.allocations[index]));
        match found {
            Some((index, allocation)) if allocation.contains(address, u64::from(size)) => {
                *hint = index;
                Ok(allocation)
            }
            _ => {
                let error = self.memory.explain(address, u64::from(size));
                let kind = match error {
                    MemoryError::Freed { .. } => FaultKind::UseAfterFree,
                    _ => FaultKind::OutOfBounds,
                };
                Err(Problem::new(kind, error.to_string()))
            }
        }
    }

    /// Bytes of an allocation by its index.
    pub(crate) fn size(&self, allocation: usize) -> u64 {
        self.allocations[allocation].size
    }

    /// Refuses a read of bytes that were not written.
    #[inline]
    pub(crate) fn check_read(
        &self,
        allocation: &Allocation,
        address: u64,
        size: u32,
    ) -> Result<(), Box<Problem>> {
        if self.check_initialised && !allocation.initialised(address - allocation.base, size) {
            return Err(Problem::new(
                FaultKind::Uninitialised,
                format!(
                    "{size} bytes at {address:#x} (offset {} of an allocation of {}) were never written",
                    address - allocation.base,
                    allocation.size
                ),
            ));
        }
        Ok(())
    }
}

/// The fault of an address that is no multiple of its access's size.
#[cold]
pub(super) fn misaligned(address: u64, size: u32) -> Box<Problem> {
    Problem::new(FaultKind::Misaligned, format!("address {address:#x} is not a multiple of {size}"))
}
