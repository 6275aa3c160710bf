#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod alu;
mod decode;
#[allow(unsafe_code, reason = "the driver's functions take C's pointers")]
pub mod driver;
mod exec;
mod fault;
mod launch;
mod memory;
mod module;
mod ptx;

pub use driver::{Emulator, EmulatorConfig, Entered, LaunchRecord, Leaks, Schedule, UnsupportedCalls};
pub use fault::{Fault, FaultKind};
pub use launch::{Checks, LaunchConfig, LaunchStats, Options, launch};
pub use memory::{GlobalMemory, MemoryError};
pub use module::{Kernel, LoadedModule, Module, Parameter, PtxError, Variable};
