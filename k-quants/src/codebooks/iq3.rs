//! IQ3_XXS and IQ3_S: four weights name a point of four magnitudes, with a scale `sc` of 4 bits for each 32 weights.
//!
//! ```text
//! IQ3_XXS  byte 0   2              66                 98    w = d * (0.5 + sc) / 2 * level * sign
//!               | d | 64 indices   | 8 x 4 bytes      |
//!                 for each 32 weights a number of 32 bits: four times 7 bits of signs, and sc in bits 28-31
//! IQ3_S    byte 0   2      66     74      106      110      w = d * (1 + 2 sc) * level * sign
//!               | d | low  | high | signs | scales |
//!                 low[k]: bits 0-7 of index k, bit k % 8 of high[k / 8]: its bit 8;
//!                 signs: a bit for each weight; nibble j of the scales: sc of weights 32 j..32 j + 32
//! ```
//!
//! Seven bits of signs stand for the eight of two points, whose minus signs are even in number. Bit `i` is set where weight
//! `i` is negative.

use super::{nibble, word};
use crate::block::{Block, SUPER, layout};
use crate::grids::{LEVELS_3_S, LEVELS_3_XXS, even_signs, level_3, sign, three};
use bytemuck::{Pod, Zeroable};
use half::f16;

/// One IQ3_XXS block of 256 weights. 98 bytes, alignment 2, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq3Xxs {
    /// Unit of the scales.
    pub d: f16,
    /// Indices, one for each 4 weights.
    pub codes: [u8; SUPER / 4],
    /// Signs and scales, 4 bytes for each 32 weights.
    pub signs_scales: [u8; SUPER / 8],
}

/// One IQ3_S block of 256 weights. 110 bytes, alignment 2, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq3S {
    /// Unit of the scales.
    pub d: f16,
    /// Low eight bits of the indices, one for each 4 weights.
    pub low: [u8; SUPER / 4],
    /// Bit 8 of the indices.
    pub high: [u8; SUPER / 32],
    /// A bit for each weight, set where it is negative.
    pub signs: [u8; SUPER / 8],
    /// A nibble for each 32 weights.
    pub scales: [u8; SUPER / 64],
}

layout!(BlockIq3Xxs, 98, 2);
layout!(BlockIq3S, 110, 2);

/// The 256 weights: `parts(k)` gives the scale, the point and the signs, in the low four bits, of the `k`th four.
fn decode(levels: &[f32; 8], parts: impl Fn(usize) -> (f32, u16, u8)) -> [f32; SUPER] {
    let mut out = [0.0; SUPER];
    for (k, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let (scale, point, signs) = parts(k);
        for (i, w) in out.iter_mut().enumerate() {
            *w = scale * level_3(point, i, levels) * sign(signs, i);
        }
    }
    out
}

impl Block for BlockIq3Xxs {
    const NAME: &'static str = "IQ3_XXS";
    const WEIGHTS: usize = SUPER;
    type Weights = [f32; SUPER];

    fn dequantize(&self) -> [f32; SUPER] {
        let d = self.d.to_f32();
        decode(&LEVELS_3_XXS, |k| {
            let second = word(&self.signs_scales, k / 8 * 4);
            let scale = d * (0.5 + (second >> 28) as f32) * 0.5;
            let signs = even_signs((second >> (7 * (k % 8 / 2))) as u8) >> (k % 2 * 4);
            (scale, three::IQ3_XXS[usize::from(self.codes[k])], signs)
        })
    }
}

impl Block for BlockIq3S {
    const NAME: &'static str = "IQ3_S";
    const WEIGHTS: usize = SUPER;
    type Weights = [f32; SUPER];

    fn dequantize(&self) -> [f32; SUPER] {
        let d = self.d.to_f32();
        decode(&LEVELS_3_S, |k| {
            let high = usize::from(self.high[k / 8] >> (k % 8) & 1);
            let scale = d * (1.0 + 2.0 * nibble(&self.scales, k / 8));
            let signs = self.signs[k / 2] >> (k % 2 * 4);
            (scale, three::IQ3_S[high << 8 | usize::from(self.low[k])], signs)
        })
    }
}
