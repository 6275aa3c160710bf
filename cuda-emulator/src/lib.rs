#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod alu;
mod decode;
mod exec;
mod fault;
mod launch;
mod memory;
mod module;
mod ptx;

pub use fault::{Fault, FaultKind};
pub use launch::{Checks, LaunchConfig, LaunchStats, Options, launch};
pub use memory::{GlobalMemory, MemoryError};
pub use module::{Kernel, LoadedModule, Module, Parameter, PtxError, Variable};
