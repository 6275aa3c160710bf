#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod block;
mod codebooks;
mod error;
mod fit;
mod floats;
pub mod grids;
mod k_quants;
mod levels;
mod simple;
mod ternary;

pub use block::{Block, GROUP, SUPER, dequantize_row};
pub use codebooks::{BlockIq1M, BlockIq1S, BlockIq2S, BlockIq2Xs, BlockIq2Xxs, BlockIq3S, BlockIq3Xxs};
pub use error::Error;
pub use fit::{Fit, Weighted, quantize_row, quantize_row_weighted};
pub use floats::{BlockMxfp4, BlockNvfp4, FP4_LEVELS};
pub use k_quants::{BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K, pack_scales_min, unpack_scale_min};
pub use levels::{BlockIq4Nl, BlockIq4Xs, IQ4_LEVELS};
pub use simple::{BlockQ1_0, BlockQ2_0, BlockQ5_0, BlockQ5_1, pack_fives};
pub use ternary::{BlockTq1_0, BlockTq2_0};
