//! A launch: its shape, what is checked during it, and what was counted.

use std::collections::BTreeMap;

use crate::fault::{Fault, FaultKind};
use crate::memory::GlobalMemory;
use crate::module::LoadedModule;

/// The shape of a launch.
#[derive(Debug, Clone, Copy)]
pub struct LaunchConfig<'a> {
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads a block along x, y and z; at most 1,024 together.
    pub block: [u32; 3],
    /// Bytes of shared memory beyond what the kernel declares.
    pub dynamic_shared: u32,
    /// The parameters' bytes at the offsets that [`Kernel::parameters`](crate::Kernel::parameters) says.
    pub params: &'a [u8],
}

/// How a launch runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Decides the order in which a block's warps run between barriers, and how long each runs at a time.
    pub seed: u64,
    /// Host threads for the blocks; 0 for all that rayon's global pool has.
    pub threads: usize,
    /// What is checked.
    pub checks: Checks,
    /// Instructions a warp may execute before the launch is given up.
    pub warp_budget: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 0, threads: 0, checks: Checks::default(), warp_budget: 1 << 28 }
    }
}

/// The checks that can be switched off. Bounds, alignment, barriers and partial warps are always checked.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checks {
    /// Reads of memory that nobody wrote.
    pub uninitialised: bool,
    /// Races between warps on shared memory.
    pub shared_races: bool,
    /// Counting of memory traffic: sectors and bank conflicts in [`LaunchStats`].
    pub traffic: bool,
}

impl Default for Checks {
    fn default() -> Self {
        Self { uninitialised: true, shared_races: true, traffic: true }
    }
}

/// What a launch executed. All counts are sums over blocks and do not depend on threads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaunchStats {
    /// Instructions, each counted once a warp that executes it (with any of its threads).
    pub warp_instructions: u64,
    /// The same by opcode, with all its modifiers.
    pub histogram: BTreeMap<String, u64>,
    /// Instructions executed by part of a warp that has diverged.
    pub divergent: u64,
    /// `mma` instructions.
    pub mma: u64,
    /// Bytes that threads loaded from global memory.
    pub global_loaded: u64,
    /// Bytes that threads stored to global memory.
    pub global_stored: u64,
    /// 32-byte sectors of global memory, each counted once a warp access that touches it.
    pub global_sectors: u64,
    /// Warp accesses to global memory.
    pub global_accesses: u64,
    /// Bytes that threads loaded from shared memory.
    pub shared_loaded: u64,
    /// Bytes that threads stored to shared memory.
    pub shared_stored: u64,
    /// Extra cycles that accesses to shared memory would take because lanes meet in a bank.
    pub bank_conflicts: u64,
    /// Barriers completed, summed over blocks.
    pub barriers: u64,
}

/// Runs a kernel to its end.
///
/// # Errors
/// The [`Fault`] of the lowest block that has one. Global memory then holds what was written until then.
pub fn launch(
    _module: &LoadedModule,
    kernel: &str,
    _config: &LaunchConfig<'_>,
    _memory: &GlobalMemory,
    _options: &Options,
) -> Result<LaunchStats, Box<Fault>> {
    Err(Box::new(Fault {
        kind: FaultKind::InvalidLaunch,
        kernel: kernel.into(),
        ptx_line: 0,
        source_line: None,
        block: [0; 3],
        thread: [0; 3],
        detail: "the interpreter is not here yet".into(),
    }))
}
