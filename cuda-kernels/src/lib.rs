#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

pub mod attention;
mod check;
mod elementwise;
mod error;
mod kernels;
mod matmul;
mod precision;
mod products;
pub mod profiler;
mod prompt;
pub mod ptx;
mod streams;
pub mod tiles;
mod weights;

pub use elementwise::{add, swiglu, swiglu_backward};
pub use error::Error;
pub use kernels::Kernels;
pub use matmul::{Layout, Output, matmul};
pub use precision::PromptPrecision;
pub use profiler::{Profiler, Queue};
pub use prompt::{Exceptions, MAX_ROWS, Prepared, PromptInputs};
pub use streams::{Mark, Streams};
pub use weights::{Affine, Format, Weights};
