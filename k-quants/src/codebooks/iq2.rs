//! IQ2_XXS, IQ2_XS and IQ2_S: eight weights name a point of eight magnitudes.
//!
//! In all three `w = d * (0.5 + sc) / 4 * level * sign`, with a scale `sc` of 4 bits for some weights.
//!
//! ```text
//! IQ2_XXS  byte 0   2                  66
//!               | d | 8 x 8 bytes      |    for each 32 weights two numbers of 32 bits:
//!                 four indices of 8 bits; then four times 7 bits of signs, and sc in bits 28-31
//! IQ2_XS   byte 0   2                  66       74
//!               | d | 32 x 2 bytes     | scales |
//!                 for each 8 weights a number of 16 bits: the index in bits 0-8, signs in bits 9-15;
//!                 nibble j of the scales: sc of weights 16 j..16 j + 16
//! IQ2_S    byte 0   2       34      66     74       82
//!               | d | low   | signs | high | scales |
//!                 low[k]: bits 0-7 of index k, high[k / 4]: bits 8 and 9, four indices a byte;
//!                 signs[k]: a bit for each of the 8 weights; scales as in IQ2_XS
//! ```
//!
//! Seven bits of signs stand for eight whose minus signs are even in number. Bit `i` is set where weight `i` is negative.

use super::{nibble, short, word};
use crate::block::{Block, SUPER, layout};
use crate::grids::{LEVELS_2, even_signs, level_2, sign, two};
use bytemuck::{Pod, Zeroable};
use half::f16;

/// One IQ2_XXS block of 256 weights. 66 bytes, alignment 2, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq2Xxs {
    /// Unit of the scales.
    pub d: f16,
    /// Indices, signs and scales, 8 bytes for each 32 weights.
    pub codes: [u8; SUPER / 4],
}

/// One IQ2_XS block of 256 weights. 74 bytes, alignment 2, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq2Xs {
    /// Unit of the scales.
    pub d: f16,
    /// Indices and signs, 2 bytes for each 8 weights.
    pub codes: [u8; SUPER / 4],
    /// A nibble for each 16 weights.
    pub scales: [u8; SUPER / 32],
}

/// One IQ2_S block of 256 weights. 82 bytes, alignment 2, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq2S {
    /// Unit of the scales.
    pub d: f16,
    /// Low eight bits of the indices, one for each 8 weights.
    pub low: [u8; SUPER / 8],
    /// A bit for each weight, set where it is negative.
    pub signs: [u8; SUPER / 8],
    /// High two bits of the indices, four a byte.
    pub high: [u8; SUPER / 32],
    /// A nibble for each 16 weights.
    pub scales: [u8; SUPER / 32],
}

layout!(BlockIq2Xxs, 66, 2);
layout!(BlockIq2Xs, 74, 2);
layout!(BlockIq2S, 82, 2);

/// The 256 weights: `parts(k)` gives the scale, the point and the signs of the `k`th eight.
fn decode(parts: impl Fn(usize) -> (f32, u16, u8)) -> [f32; SUPER] {
    let mut out = [0.0; SUPER];
    for (k, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let (scale, point, signs) = parts(k);
        for (i, w) in out.iter_mut().enumerate() {
            *w = scale * level_2(point, i, &LEVELS_2) * sign(signs, i);
        }
    }
    out
}

impl Block for BlockIq2Xxs {
    const NAME: &'static str = "IQ2_XXS";
    const WEIGHTS: usize = SUPER;
    type Weights = [f32; SUPER];

    fn dequantize(&self) -> [f32; SUPER] {
        let d = self.d.to_f32();
        decode(|k| {
            let at = k / 4 * 8;
            let second = word(&self.codes, at + 4);
            let scale = d * (0.5 + (second >> 28) as f32) * 0.25;
            let signs = even_signs((second >> (7 * (k % 4))) as u8);
            (scale, two::IQ2_XXS[usize::from(self.codes[at + k % 4])], signs)
        })
    }
}

impl Block for BlockIq2Xs {
    const NAME: &'static str = "IQ2_XS";
    const WEIGHTS: usize = SUPER;
    type Weights = [f32; SUPER];

    fn dequantize(&self) -> [f32; SUPER] {
        let d = self.d.to_f32();
        decode(|k| {
            let code = short(&self.codes, 2 * k);
            let scale = d * (0.5 + nibble(&self.scales, k / 2)) * 0.25;
            (scale, two::IQ2_XS[usize::from(code & 511)], even_signs((code >> 9) as u8))
        })
    }
}

impl Block for BlockIq2S {
    const NAME: &'static str = "IQ2_S";
    const WEIGHTS: usize = SUPER;
    type Weights = [f32; SUPER];

    fn dequantize(&self) -> [f32; SUPER] {
        let d = self.d.to_f32();
        decode(|k| {
            let high = usize::from(self.high[k / 4] >> (k % 4 * 2) & 3);
            let scale = d * (0.5 + nibble(&self.scales, k / 2)) * 0.25;
            (scale, two::IQ2_S[high << 8 | usize::from(self.low[k])], self.signs[k])
        })
    }
}
