//! Q2_K: sixteen sub-blocks of 16 weights with a 4-bit scale `sc` and a 4-bit minimum `m`,
//! `w = (d * sc) * q - (dmin * m)`.
//!
//! ```text
//! byte 0        16             80  82     84
//!      | scales | codes        | d | dmin |
//!
//! scales[j]          low nibble: sc of weights 16 j..16 j + 16    high nibble: their m
//! codes[32 h + i]    bits 2 r and 2 r + 1: weight 128 h + 32 r + i
//! ```

use crate::block::{Block, SUPER, layout, two_bits};
use bytemuck::{Pod, Zeroable};
use half::f16;

/// One Q2_K super-block of 256 weights. 84 bytes, alignment 2, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ2K {
    /// Scale (low nibble) and minimum (high nibble) of each 16 weights.
    pub scales: [u8; SUPER / 16],
    /// Four codes a byte.
    pub codes: [u8; SUPER / 4],
    /// Unit of the scales.
    pub d: f16,
    /// Unit of the minima.
    pub dmin: f16,
}

layout!(BlockQ2K, 84, 2);

impl Block for BlockQ2K {
    const NAME: &'static str = "Q2_K";
    const WEIGHTS: usize = SUPER;
    type Weights = [f32; SUPER];

    fn dequantize(&self) -> [f32; SUPER] {
        let (d, dmin) = (self.d.to_f32(), self.dmin.to_f32());
        std::array::from_fn(|n| {
            let sub = self.scales[n / 16];
            let (scale, min) = (d * f32::from(sub & 15), dmin * f32::from(sub >> 4));
            scale * f32::from(two_bits(&self.codes, n)) - min
        })
    }
}
