//! Plain Rust twins of the small kernels, written from their formulas: what tests compare with, on any machine.
//!
//! They are in f64 and take exact inputs, so the distance of a kernel's result is the kernel's own rounding. Where a
//! kernel promises bits, its twin says so.

mod heads;
mod rows;
mod sample;
mod training;

pub use heads::{e4m3, e4m3_nearest, e4m3_row, rotate};
pub use rows::{rms_norm, swiglu};
pub use sample::{gumbel, noise, philox, sample};
pub use training::{adamw, cross_entropy, rms_norm_backward};
