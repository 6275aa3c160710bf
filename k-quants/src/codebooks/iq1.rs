//! IQ1_S and IQ1_M: eight weights name a point of eight numbers -1, 0 and 1, which are all shifted by an eighth up or down.
//!
//! In both `w = d * (2 sc + 1) * (level + shift)`, with a scale `sc` of 3 bits and a shift of 0.125 or -0.125.
//!
//! ```text
//! IQ1_S  byte 0   2      34                50
//!             | d | low  | 8 x 2 bytes     |    for each 32 weights a number of 16 bits:
//!               bits 8-10 of four indices, sc in bits 12-14, and bit 15, set where the shift is down
//! IQ1_M  byte 0      32      48               56
//!             | low  | high  | 4 x 2 bytes    |
//!               high: for each 8 weights a nibble, bits 8-10 of the index and bit 3, set where the shift is down;
//!               for each 64 weights a number of 16 bits: sc of each 16 weights in bits 0-11, and in bits 12-15
//!               four bits of d, the lowest in the first number
//! ```

use super::short;
use crate::block::{Block, SUPER, layout};
use crate::grids::{LEVELS_1, level_2, one};
use bytemuck::{Pod, Zeroable};
use half::f16;

/// One IQ1_S block of 256 weights. 50 bytes, alignment 2, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq1S {
    /// Unit of the scales.
    pub d: f16,
    /// Low eight bits of the indices, one for each 8 weights.
    pub low: [u8; SUPER / 8],
    /// High bits of the indices, scale and shift, 2 bytes for each 32 weights.
    pub high: [u8; SUPER / 16],
}

/// One IQ1_M block of 256 weights. 56 bytes, alignment 1, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq1M {
    /// Low eight bits of the indices, one for each 8 weights.
    pub low: [u8; SUPER / 8],
    /// High bits of the indices and shift, a nibble for each 8 weights.
    pub high: [u8; SUPER / 16],
    /// Scales, and the unit of them in the high nibbles of every other byte.
    pub scales: [u8; SUPER / 32],
}

layout!(BlockIq1S, 50, 2);
layout!(BlockIq1M, 56, 1);

impl BlockIq1M {
    /// The unit of the scales, from its four parts.
    #[must_use]
    pub fn d(&self) -> f16 {
        f16::from_bits((0..4).fold(0, |bits, k| bits | short(&self.scales, 2 * k) >> 12 << (4 * k)))
    }
}

/// The 256 weights: `parts(k)` gives the scale, the point and whether the shift is down, of the `k`th eight.
fn decode(parts: impl Fn(usize) -> (f32, u16, bool)) -> [f32; SUPER] {
    let mut out = [0.0; SUPER];
    for (k, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let (scale, point, down) = parts(k);
        let shift = if down { -0.125 } else { 0.125 };
        for (i, w) in out.iter_mut().enumerate() {
            *w = scale * (level_2(point, i, &LEVELS_1) + shift);
        }
    }
    out
}

impl Block for BlockIq1S {
    const NAME: &'static str = "IQ1_S";
    const WEIGHTS: usize = SUPER;
    type Weights = [f32; SUPER];

    fn dequantize(&self) -> [f32; SUPER] {
        let d = self.d.to_f32();
        decode(|k| {
            let high = short(&self.high, k / 4 * 2);
            let index = usize::from(high >> (3 * (k % 4)) & 7) << 8 | usize::from(self.low[k]);
            let scale = d * f32::from(2 * (high >> 12 & 7) + 1);
            (scale, one::IQ1[index], high >> 15 == 1)
        })
    }
}

impl Block for BlockIq1M {
    const NAME: &'static str = "IQ1_M";
    const WEIGHTS: usize = SUPER;
    type Weights = [f32; SUPER];

    fn dequantize(&self) -> [f32; SUPER] {
        let d = self.d().to_f32();
        decode(|k| {
            let high = self.high[k / 2] >> (k % 2 * 4);
            let index = usize::from(high & 7) << 8 | usize::from(self.low[k]);
            let scales = short(&self.scales, k / 8 * 2);
            let scale = d * f32::from(2 * (scales >> (k % 8 / 2 * 3) & 7) + 1);
            (scale, one::IQ1[index], high & 8 != 0)
        })
    }
}
