#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod activations;
mod block;
mod error;
mod rounding;

pub use activations::{Activations, Part, wide_words};
pub use block::{BlockQ8_0, dequantize_row, f16_reaching, quantize_row, quantize_row_fit};
pub use error::Error;
pub use rounding::{Group, OUTLIER_FACTOR, Precision, high_byte, low_byte, outlier_limit, quantize_group};

/// Numbers that share one scale, in weights and activations alike.
pub const GROUP: usize = 32;
