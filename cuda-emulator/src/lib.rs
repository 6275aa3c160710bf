#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "the driver's functions take C's pointers")]
mod driver;
mod fault;
mod launch;
mod memory;
mod module;

pub use driver::{Emulator, EmulatorConfig, Entered, LaunchRecord, Leaks, Schedule, UnsupportedCalls};
pub use fault::{Fault, FaultKind};
pub use launch::{Checks, LaunchConfig, LaunchStats, Options, launch};
pub use memory::{GlobalMemory, MemoryError};
pub use module::{Kernel, LoadedModule, Module, Parameter, PtxError, Variable};
