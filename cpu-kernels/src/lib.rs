#![doc = include_str!("../README.md")]

mod arch;
mod context;
mod error;
mod isa;
pub mod simd;

pub use context::Context;
pub use error::Error;
pub use isa::{ISA_VARIABLE, Isa};
