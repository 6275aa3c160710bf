//! The codebook formats: blocks of 256 weights whose groups of eight or four name a point of a grid, with signs apart.
//!
//! The grids are in [`grids`](crate::grids). An index has exactly as many bits as its grid has points, so no block can name
//! a point that is not there.
//!
//! Layouts and grids are those of ggml (`ggml-common.h`, `ggml-quants.c`). Numbers of more than one byte are kept as bytes
//! here, the lowest first, so that they are read alike on every machine.

mod iq1;
mod iq2;
mod iq3;

pub use iq1::{BlockIq1M, BlockIq1S};
pub use iq2::{BlockIq2S, BlockIq2Xs, BlockIq2Xxs};
pub use iq3::{BlockIq3S, BlockIq3Xxs};

/// The 32-bit number at byte `at`, the lowest byte first.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The 16-bit number at byte `at`, the lowest byte first.
fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Nibble `j` of `bytes`, the low one of the first byte first.
fn nibble(bytes: &[u8], j: usize) -> f32 {
    f32::from(bytes[j / 2] >> (j % 2 * 4) & 15)
}
