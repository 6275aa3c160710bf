//! The driver API, executed in this process.
//!
//! [`Emulator::install`] fills the slots of [`halfbyte_cuda_driver`], and everything above them (its own layer,
//! `cust`, launchers of kernels)
//! then runs here: devices, contexts, modules from PTX, memory, streams, events, launches, occupancy. What is
//! missing returns `CUDA_ERROR_NOT_SUPPORTED` and is
//! counted ([`Emulator::unsupported_calls`]).
//!
//! ```
//! use halfbyte_cuda_driver::{Context, DeviceBuffer, Driver};
//! use halfbyte_cuda_emulator::{Emulator, EmulatorConfig};
//!
//! let emulator = Emulator::install(EmulatorConfig::default())?;
//! let context = Context::primary(Driver::load()?.device(0)?)?;
//! let buffer = DeviceBuffer::from_slice(&context, &[1u32, 2, 3])?;
//! assert_eq!(buffer.to_vec()?, [1, 2, 3]);
//! drop((buffer, context));
//! emulator.check_leaks()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Machines
//!
//! The slots are filled once in a process, but a process may have many machines. A handle knows its machine; calls
//! without a handle go to the machine that the
//! thread has entered ([`Emulator::enter`]), else to that of its current context, else to the installed one. So
//! tests of one binary run side by side,
//! each on its own machine with its own seed.
//!
//! # Time and order
//!
//! Work is queued, and runs when the host waits for it (or earlier, where the [`Schedule`] says so), in an order
//! that keeps what the driver
//! promises and nothing more. See `queue.rs` for the rules. Memory that the host reads too early holds wrong values.
//! Elapsed times are virtual: 2 µs an operation, 16 GB/s between host and device, 500 GB/s within it, six warp
//! instructions a nanosecond
//! a multiprocessor. They make profilers testable and predict nothing.
//!
//! # Faults
//!
//! A kernel that does something wrong ends its context as on a GPU: what is queued is dropped, and the next wait
//! and every
//! call after it return `CUDA_ERROR_ILLEGAL_ADDRESS` or its like. [`Emulator::faults`] has the full report.

mod api;
mod config;
mod handle;
mod machine;
mod occupancy;
mod queue;
mod report;
mod state;

pub use config::{EmulatorConfig, Schedule};
pub use report::{LaunchRecord, Leaks, UnsupportedCalls};

use crate::Fault;
use halfbyte_cuda_driver::Error;
use machine::Machine;
use std::marker::PhantomData;
use std::sync::Arc;

/// The name of the emulator in errors.
const NAME: &str = "the CUDA emulator";

/// An emulated machine. Dropping it makes its handles invalid: drop what was made on it first.
#[derive(Debug)]
pub struct Emulator {
    machine: Arc<Machine>,
}

impl Emulator {
    /// A machine for the threads that [`enter`](Emulator::enter) it. The driver's slots are filled if they are not.
    ///
    /// # Errors
    /// [`Error::AlreadyLoaded`] if the process uses a real driver, or another emulator.
    pub fn new(config: EmulatorConfig) -> Result<Emulator, Error> {
        // SAFETY: every function that `sys` has a type for was checked against it, and keeps the driver's contract.
        // The others have no type there: they are reached by C's jumps alone, and ignore their arguments.
        unsafe { halfbyte_cuda_driver::install(NAME, &api::table()) }?;
        Ok(Emulator { machine: Machine::new(config) })
    }

    /// [`new`](Emulator::new), for all threads of the process that have entered no other machine.
    ///
    /// # Errors
    /// As [`new`](Emulator::new).
    pub fn install(config: EmulatorConfig) -> Result<Emulator, Error> {
        let emulator = Emulator::new(config)?;
        emulator.machine.make_default();
        Ok(emulator)
    }

    /// Makes it this thread's machine until the guard is dropped.
    #[must_use = "the thread leaves the machine when the guard is dropped"]
    pub fn enter(&self) -> Entered<'_> {
        self.machine.enter();
        Entered { machine: &self.machine, thread: PhantomData }
    }

    /// The settings of the machine.
    #[must_use]
    pub fn config(&self) -> &EmulatorConfig {
        &self.machine.config
    }

    /// Reports of everything that went wrong, in the order in which it did.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        self.machine.state().faults.clone()
    }

    /// The launches that have run, in the order in which they did.
    #[must_use]
    pub fn launches(&self) -> Vec<LaunchRecord> {
        self.machine.state().records.clone()
    }

    /// The launches so far, which are forgotten: the next call gives those after it.
    #[must_use]
    pub fn take_launches(&self) -> Vec<LaunchRecord> {
        std::mem::take(&mut self.machine.state().records)
    }

    /// Calls of functions that the emulator lacks, by name.
    #[must_use]
    pub fn unsupported_calls(&self) -> UnsupportedCalls {
        self.machine.state().unsupported.clone()
    }

    /// What is alive now: at the end of a program, what it leaked. Memory freed in a stream's order counts as freed.
    #[must_use]
    pub fn leaks(&self) -> Leaks {
        let state = self.machine.state();
        Leaks {
            device: state.device_memory.iter().map(|(&(_, address), &bytes)| (address, bytes)).collect(),
            host: state.host_memory.iter().map(|(&address, memory)| (address, memory.bytes)).collect(),
            streams: state
                .streams
                .values()
                .filter(|s| !s.destroyed && s.kind != state::Kind::Default)
                .count(),
            events: state.events.values().filter(|e| !e.destroyed).count(),
            modules: state.modules.len(),
            contexts: state.contexts.len(),
        }
    }

    /// Fails if anything is alive.
    ///
    /// # Errors
    /// What is.
    pub fn check_leaks(&self) -> Result<(), Leaks> {
        let leaks = self.leaks();
        if leaks.is_empty() { Ok(()) } else { Err(leaks) }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.machine.retire();
    }
}

/// A guard: while it lives, the thread's calls go to the machine that it has entered.
#[derive(Debug)]
pub struct Entered<'a> {
    machine: &'a Arc<Machine>,
    /// It belongs to the thread.
    thread: PhantomData<*const ()>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.machine.leave();
    }
}
