//! A launch: its shape, what is checked during it, and what was counted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::exec::GlobalView;
use crate::exec::block::{Block, Env, shared_bytes};
use crate::fault::{Fault, FaultKind};
use crate::memory::GlobalMemory;
use crate::module::{Kernel, LoadedModule};

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
    /// Reads of memory that was not written.
    pub uninitialised: bool,
    /// Races between warps on shared memory.
    pub shared_races: bool,
    /// Races between blocks, and between warps of a block, on global memory.
    pub global_races: bool,
    /// Reads of registers that were not written.
    pub registers: bool,
    /// Counting of memory traffic: sectors and bank conflicts in [`LaunchStats`].
    pub traffic: bool,
    /// Lets an aligned barrier pass when threads of the same warp have exited. PTX leaves that undefined, and it
    /// is a fault by default; devices since Volta accept it.
    pub exited_lanes_pass_barriers: bool,
}

impl Default for Checks {
    fn default() -> Self {
        Self {
            uninitialised: true,
            shared_races: true,
            global_races: true,
            registers: true,
            traffic: true,
            exited_lanes_pass_barriers: false,
        }
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

/// Most threads of a block.
const MAX_THREADS: u64 = 1024;
/// Most shared memory of a block: that of the largest devices.
const MAX_SHARED: u64 = 227 * 1024;

/// Runs a kernel to its end.
///
/// # Errors
/// The [`Fault`] of the lowest block that has one. Global memory then holds what was written until then.
pub fn launch(
    module: &LoadedModule,
    kernel: &str,
    config: &LaunchConfig<'_>,
    memory: &GlobalMemory,
    options: &Options,
) -> Result<LaunchStats, Box<Fault>> {
    let refuse = |detail: String| {
        Box::new(Fault {
            kind: FaultKind::InvalidLaunch,
            kernel: kernel.to_owned(),
            ptx_line: 0,
            source_line: None,
            block: [0; 3],
            thread: [0; 3],
            detail,
        })
    };
    let Some(found) = module.module().kernel(kernel) else {
        return Err(refuse("the module has no such kernel".to_owned()));
    };
    check(found, config).map_err(refuse)?;
    let env = Env {
        kernel: found,
        config,
        options,
        global: GlobalView::new(memory, options.checks.uninitialised, races_among(config, options)),
        variables: &module.addresses,
    };
    run_blocks(&env)
}

/// The number of blocks whose races on global memory are looked for.
fn races_among(config: &LaunchConfig<'_>, options: &Options) -> Option<u64> {
    options.checks.global_races.then(|| config.grid.iter().map(|&n| u64::from(n)).product())
}

/// What is wrong with a launch's shape.
fn check(kernel: &Kernel, config: &LaunchConfig<'_>) -> Result<(), String> {
    let threads: u64 = config.block.iter().map(|&n| u64::from(n)).product();
    if config.grid.contains(&0) || threads == 0 {
        return Err(format!("grid {:?} of blocks {:?} is empty", config.grid, config.block));
    }
    if threads > MAX_THREADS || config.block[2] > 64 {
        return Err(format!("block {:?}: at most {MAX_THREADS} threads, 64 along z", config.block));
    }
    if config.grid[0] > i32::MAX as u32 || config.grid[1].max(config.grid[2]) > 65535 {
        return Err(format!("grid {:?}: at most 2^31 - 1 blocks along x, 65535 along y and z", config.grid));
    }
    if let Some(most) = kernel.max_threads
        && threads > most.iter().map(|&n| u64::from(n)).product()
    {
        return Err(format!("block {:?} of a kernel bounded to {most:?}", config.block));
    }
    if let Some(required) = kernel.required_threads
        && config.block != required
    {
        return Err(format!("block {:?} of a kernel that requires {required:?}", config.block));
    }
    let shared = shared_bytes(kernel, config);
    if shared > MAX_SHARED {
        return Err(format!("{shared} bytes of shared memory, at most {MAX_SHARED}"));
    }
    if config.params.len() != kernel.parameter_bytes as usize {
        return Err(format!(
            "{} bytes of parameters, expected {}",
            config.params.len(),
            kernel.parameter_bytes
        ));
    }
    Ok(())
}

/// Hands blocks to host threads in order. After a fault, blocks below it still run: one of them may fault too.
fn run_blocks(env: &Env<'_>) -> Result<LaunchStats, Box<Fault>> {
    let blocks: u64 = env.config.grid.iter().map(|&n| u64::from(n)).product();
    let next = AtomicU64::new(0);
    let lowest = AtomicU64::new(u64::MAX);
    let outcome = Mutex::new((LaunchStats::default(), None::<(u64, Box<Fault>)>));
    let work = || {
        let mut block = Block::new(env);
        loop {
            let number = next.fetch_add(1, Relaxed);
            // Relaxed: a stale value only means that a block runs in vain.
            if number >= blocks || number > lowest.load(Relaxed) {
                break;
            }
            if let Err(fault) = block.run(number) {
                lowest.fetch_min(number, Relaxed);
                let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
                if outcome.1.as_ref().is_none_or(|(other, _)| number < *other) {
                    outcome.1 = Some((number, fault));
                }
            }
        }
        let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
        block.counters.add_to(&env.kernel.program, &mut outcome.0);
    };
    let most = if env.options.threads == 0 { rayon::current_num_threads() } else { env.options.threads };
    let threads = (most as u64).min(blocks);
    if threads <= 1 {
        work();
    } else {
        rayon::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|_| work());
            }
        });
    }
    match outcome.into_inner().unwrap_or_else(PoisonError::into_inner) {
        (_, Some((_, fault))) => Err(fault),
        (stats, None) => Ok(stats),
    }
}
