//! TQ1_0 and TQ2_0: 256 weights of -1, 0 and 1 times one scale.
//!
//! # TQ1_0, 54 bytes
//!
//! Five codes of 0..=2 share a byte. Read as a fraction of 256, the byte holds them in base 3, the first behind the point:
//! the code at place `l` is the whole part of `3 * frac(byte / 256 * 3^l)`.
//!
//! ```text
//! codes[0..32]   place l of byte i: weight 32 l + i          l in 0..5
//! codes[32..48]  place l of byte 32 + i: weight 160 + 16 l + i
//! high[0..4]     place l of byte i: weight 240 + 4 l + i     l in 0..4
//! ```
//!
//! # TQ2_0, 66 bytes
//!
//! Codes of 2 bits; code 3, which no quantizer writes, is 2. Bits `2r` and `2r + 1` of byte `32 h + i` hold weight
//! `128 h + 32 r + i`.
//!
//! In both `w = d * (code - 1)`. The layouts are those of ggml (`ggml-common.h`, `ggml-quants.c`).

use crate::block::{Block, SUPER, layout, two_bits};
use bytemuck::{Pod, Zeroable};
use half::f16;

/// One TQ1_0 block of 256 weights. 54 bytes, alignment 2, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockTq1_0 {
    /// Five codes a byte: weights 0..240.
    pub codes: [u8; 48],
    /// Four codes a byte: weights 240..256.
    pub high: [u8; 4],
    /// The magnitude of the weights that are not 0.
    pub d: f16,
}

/// One TQ2_0 block of 256 weights. 66 bytes, alignment 2, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockTq2_0 {
    /// Four codes a byte.
    pub codes: [u8; SUPER / 4],
    /// The magnitude of the weights that are not 0.
    pub d: f16,
}

layout!(BlockTq1_0, 54, 2);
layout!(BlockTq2_0, 66, 2);

/// The code at `place` of a byte in base 3, 0..=2.
fn base_3(byte: u8, place: usize) -> u8 {
    let shifted = byte.wrapping_mul([1, 3, 9, 27, 81][place]);
    ((u16::from(shifted) * 3) >> 8) as u8
}

impl Block for BlockTq1_0 {
    const NAME: &'static str = "TQ1_0";
    const WEIGHTS: usize = SUPER;
    type Weights = [f32; SUPER];

    fn dequantize(&self) -> [f32; SUPER] {
        let d = self.d.to_f32();
        std::array::from_fn(|n| {
            let code = match n {
                0..160 => base_3(self.codes[n % 32], n / 32),
                160..240 => base_3(self.codes[32 + n % 16], (n - 160) / 16),
                _ => base_3(self.high[n % 4], (n - 240) / 4),
            };
            d * (f32::from(code) - 1.0)
        })
    }
}

impl Block for BlockTq2_0 {
    const NAME: &'static str = "TQ2_0";
    const WEIGHTS: usize = SUPER;
    type Weights = [f32; SUPER];

    fn dequantize(&self) -> [f32; SUPER] {
        let d = self.d.to_f32();
        std::array::from_fn(|n| d * (f32::from(two_bits(&self.codes, n)) - 1.0))
    }
}
