//! What a test asks of the emulator afterwards.

use crate::LaunchStats;
use std::collections::BTreeMap;
use std::fmt;

/// A launch that ran to its end.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LaunchRecord {
    /// The kernel's name.
    pub kernel: String,
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory a block.
    pub dynamic_shared: u32,
    /// The stream: 0 for a context's default stream, otherwise the machine's streams from 1 in the order of creation.
    pub stream: u64,
    /// The launch's place in the order in which the machine's work was queued.
    pub queued: u64,
    /// What it executed.
    pub stats: LaunchStats,
}

/// What is still alive: allocations, and how many of each thing.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct Leaks {
    /// Addresses and bytes of device memory.
    pub device: Vec<(u64, usize)>,
    /// Addresses and bytes of pinned host memory.
    pub host: Vec<(usize, usize)>,
    /// Streams.
    pub streams: usize,
    /// Events.
    pub events: usize,
    /// Modules.
    pub modules: usize,
    /// Contexts, with counts on primary ones each.
    pub contexts: usize,
}

impl Leaks {
    /// Whether nothing is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Leaks::default()
    }
}

impl fmt::Display for Leaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |sizes: &mut dyn Iterator<Item = usize>| sizes.sum::<usize>();
        write!(
            f,
            "leaked {} device allocations ({} bytes), {} pinned ones ({} bytes), {} streams, {} events, {} modules, \
             {} contexts",
            self.device.len(),
            bytes(&mut self.device.iter().map(|a| a.1)),
            self.host.len(),
            bytes(&mut self.host.iter().map(|a| a.1)),
            self.streams,
            self.events,
            self.modules,
            self.contexts,
        )
    }
}

/// Calls of driver functions that the emulator lacks, by name.
pub type UnsupportedCalls = BTreeMap<&'static str, u64>;
