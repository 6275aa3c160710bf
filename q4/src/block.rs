//! Q4_0 and Q4_1, GGUF's 4-bit weight formats: 32 weights to a block.
//!
//! ```text
//! Q4_0  byte 0        2                 18      w = scale * (code - 8)
//!            | scale  | 16 x 2 nibbles |
//! Q4_1  byte 0        2        4                 20      w = scale * code + min
//!            | scale  | min    | 16 x 2 nibbles |
//! ```
//!
//! Scale and min are f16, little-endian on disk; a big-endian host has to swap them.

use bytemuck::{Pod, Zeroable};
use half::f16;

use crate::error::{Error, check_len};
use crate::{GROUP, unpack_nibbles};

/// One Q4_0 group of 32 weights, `w = scale * (code - 8)`. 18 bytes, alignment 2, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ4_0 {
    /// Step between neighbouring codes; may be negative.
    pub scale: f16,
    /// Packed codes: byte `i` holds weight `i` (low nibble) and weight `i + 16` (high nibble).
    pub codes: [u8; GROUP / 2],
}

/// One Q4_1 group of 32 weights, `w = scale * code + min`. 20 bytes, alignment 2, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ4_1 {
    /// Step between neighbouring codes.
    pub scale: f16,
    /// The weight of code 0.
    pub min: f16,
    /// Packed codes, as in [`BlockQ4_0`].
    pub codes: [u8; GROUP / 2],
}

const _: () = assert!(size_of::<BlockQ4_0>() == 18 && align_of::<BlockQ4_0>() == 2);
const _: () = assert!(size_of::<BlockQ4_1>() == 20 && align_of::<BlockQ4_1>() == 2);

impl BlockQ4_0 {
    /// Thirty-two zeros: scale +0 and codes 8, bytes `0x88`.
    pub const ZERO: Self = Self { scale: f16::ZERO, codes: [0x88; GROUP / 2] };

    /// The stored codes, 0..=15, in the order of the weights.
    #[must_use]
    pub fn codes(&self) -> [u8; GROUP] {
        unpack_nibbles(&self.codes)
    }

    /// The 32 weights, `scale * (code - 8)`; exact in f32, 11 bits times 4.
    #[must_use]
    pub fn dequantize(&self) -> [f32; GROUP] {
        let d = self.scale.to_f32();
        self.codes().map(|q| d * (f32::from(q) - 8.0))
    }
}

impl BlockQ4_1 {
    /// The stored codes, 0..=15, in the order of the weights.
    #[must_use]
    pub fn codes(&self) -> [u8; GROUP] {
        unpack_nibbles(&self.codes)
    }

    /// The 32 weights, `scale * code + min` in f32: the product is exact, the sum rounds once.
    #[must_use]
    pub fn dequantize(&self) -> [f32; GROUP] {
        let (d, m) = (self.scale.to_f32(), self.min.to_f32());
        self.codes().map(|q| d * f32::from(q) + m)
    }
}

/// Expands Q4_0 blocks into `out`, `32 * blocks.len()` weights; exact.
///
/// # Errors
///
/// [`Error::Length`] when `out` has another length; nothing is written then.
pub fn dequantize_row_q4_0(blocks: &[BlockQ4_0], out: &mut [f32]) -> Result<(), Error> {
    check_len("out", blocks.len() * GROUP, out.len())?;
    for (group, block) in out.as_chunks_mut::<GROUP>().0.iter_mut().zip(blocks) {
        *group = block.dequantize();
    }
    Ok(())
}

/// Expands Q4_1 blocks into `out`, `32 * blocks.len()` weights; one f32 rounding each.
///
/// # Errors
///
/// [`Error::Length`] when `out` has another length; nothing is written then.
pub fn dequantize_row_q4_1(blocks: &[BlockQ4_1], out: &mut [f32]) -> Result<(), Error> {
    check_len("out", blocks.len() * GROUP, out.len())?;
    for (group, block) in out.as_chunks_mut::<GROUP>().0.iter_mut().zip(blocks) {
        *group = block.dequantize();
    }
    Ok(())
}
