#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod activations;
mod block;
mod error;

pub use activations::{Activations, quantize_group};
pub use block::{BlockQ8_0, dequantize_row, f16_reaching, quantize_row, quantize_row_fit};
pub use error::Error;

/// Numbers that share one scale, in weights and activations alike.
pub const GROUP: usize = 32;
