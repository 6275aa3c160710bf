#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod affine;
mod block;
mod error;
pub mod fit;
#[cfg(feature = "gptq")]
pub mod gptq;
mod importance;
mod least_squares;
mod nibbles;
mod optimal;
mod quantize;
mod rounding;

pub use block::{BlockQ4_0, BlockQ4_1, dequantize_row_q4_0, dequantize_row_q4_1};
pub use error::Error;
pub use importance::{Weighted, q4_1_row_weighted, q4_row_fit_weighted, q4_row_optimal_weighted};
pub use nibbles::{pack_nibbles, unpack_nibbles};
pub use quantize::{q4_1_row, q4_row, q4_row_fit, q4_row_max, q4_row_optimal};

/// Weights in a Q4_0 or Q4_1 group. MLX affine groups have their own sizes, [`affine::GroupSize`].
pub const GROUP: usize = 32;
