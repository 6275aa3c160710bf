//! The settings of an emulated machine: its devices, its driver, and how its streams run.

use crate::Options;
use halfbyte_cuda_driver::{ComputeCapability, DriverVersion};
use std::collections::BTreeMap;

/// In which order the work of several streams runs. Every schedule keeps the rules: a stream's own order, events,
/// and the
/// default stream's. A program whose results differ between schedules lacks a dependency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// Work runs in the order in which it was queued: no missing dependency shows.
    InOrder,
    /// Work runs in an order drawn from the seed; some of it at once, the rest when the host waits.
    Random,
    /// Work runs as early as the rules allow, the newest stream first and before the host goes on. This shows
    /// when a side stream does not wait for what it reads.
    SideStreamsEarly,
    /// Nothing runs before the host waits for it, and then only what the host waits for, the oldest stream first. This
    /// shows when a wait for a side stream is missing.
    SideStreamsLate,
}

/// A machine to emulate. The default is one GPU like an RTX A6000 (sm_86, 84 multiprocessors) with 2 GB of memory,
/// a driver for CUDA 13.0, streams in random order from seed 0.
#[derive(Debug, Clone)]
pub struct EmulatorConfig {
    /// The number of devices, which are all alike.
    pub devices: usize,
    /// Their name.
    pub name: String,
    /// Their compute capability; it decides the limits of shared memory, registers and threads.
    pub compute_capability: ComputeCapability,
    /// Their multiprocessors.
    pub multiprocessors: u32,
    /// The memory of each in bytes. Host memory is taken as it is allocated, with a bit a byte besides.
    pub memory: u64,
    /// The CUDA version that the driver reports. It refuses PTX of a newer version.
    pub driver_version: DriverVersion,
    /// The seed of the order of streams and of warps. The same program on the same seed runs the same way, if it calls the
    /// driver
    /// from one thread.
    pub seed: u64,
    /// How streams are interleaved.
    pub schedule: Schedule,
    /// How kernels run and what is checked; its seed is replaced by one for each launch.
    pub options: Options,
    /// Registers a thread of kernels, by name, for occupancy and the limit on threads, as `ptxas` reports them.
    /// PTX does not say: a
    /// kernel that is not here counts as using 64, or as many as its `.maxntid` leaves it if that is less.
    pub registers: BTreeMap<String, u32>,
}

impl Default for EmulatorConfig {
    fn default() -> EmulatorConfig {
        EmulatorConfig {
            devices: 1,
            name: "halfbyte emulator".to_owned(),
            compute_capability: ComputeCapability { major: 8, minor: 6 },
            multiprocessors: 84,
            memory: 2 << 30,
            driver_version: DriverVersion::new(13, 0),
            seed: 0,
            schedule: Schedule::Random,
            options: Options::default(),
            registers: BTreeMap::new(),
        }
    }
}

/// What a multiprocessor holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) threads: u32,
    pub(super) blocks: u32,
    /// Bytes of shared memory.
    pub(super) shared: u32,
    /// 32-bit registers, of a multiprocessor and of a block.
    pub(super) registers: u32,
    /// Bytes of shared memory that the system takes of each block.
    pub(super) reserved_shared: u32,
}

impl Limits {
    /// From the table of technical specifications in NVIDIA's *CUDA C++ Programming Guide* (13.0). A capability that
    /// is not there counts as the nearest one below.
    pub(super) fn of(capability: ComputeCapability) -> Limits {
        let kib = 1 << 10;
        let (threads, blocks, shared) = match (capability.major, capability.minor) {
            (0..=7, _) => (1024, 16, 64 * kib),
            (8, 0..=5) => (2048, 32, 164 * kib),
            (8, 6) => (1536, 16, 100 * kib),
            (8, 7 | 8) => (1536, 16, 164 * kib),
            (8, _) => (1536, 24, 100 * kib),
            (9..=11, _) => (2048, 32, 228 * kib),
            (12.., _) => (1536, 24, 100 * kib),
        };
        Limits { threads, blocks, shared, registers: 64 * kib, reserved_shared: kib }
    }

    /// Bytes of shared memory that a block may opt in to.
    pub(super) fn shared_block_optin(&self) -> u32 {
        self.shared - self.reserved_shared
    }
}

/// Bytes of shared memory that a block has without opting in.
pub(super) const SHARED_BLOCK_DEFAULT: u32 = 48 << 10;
