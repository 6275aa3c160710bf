#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod fault;
mod launch;
mod memory;
mod module;

pub use fault::{Fault, FaultKind};
pub use launch::{Checks, LaunchConfig, LaunchStats, Options, launch};
pub use memory::{GlobalMemory, MemoryError};
pub use module::{Kernel, LoadedModule, Module, Parameter, PtxError, Variable};
