//! IQ4_NL and IQ4_XS: codes of 4 bits that stand for sixteen levels, close together near zero and wide apart far from it.
//!
//! ```text
//! IQ4_NL  byte 0       2                18     32 weights: w = scale * level[code]
//!              | scale | 16 x 2 nibbles |
//! IQ4_XS  byte 0   2             4            8                  136    256 weights: w = (d * (sc - 32)) * level[code]
//!              | d | scales_high | scales_low | 8 x 16 x 2 nibbles |
//! ```
//!
//! Each 32 weights have 16 bytes: byte `i` holds the codes of weights `i` (low nibble) and `i + 16` (high nibble). A
//! sub-block `j` of IQ4_XS has a scale `sc` of 6 bits: nibble `j` of `scales_low` below bits `2j` and `2j + 1` of
//! `scales_high`, both counted from the lowest bit of the first byte.
//!
//! Layouts and levels are those of ggml (`ggml-common.h`, `kvalues_iq4nl`).

use crate::block::{Block, GROUP, SUPER, layout};
use bytemuck::{Pod, Zeroable};
use half::f16;

/// What the codes of IQ4_NL and IQ4_XS stand for, in units of the scale.
pub const IQ4_LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// One IQ4_NL group of 32 weights. 18 bytes, alignment 2, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq4Nl {
    /// Unit of the levels.
    pub scale: f16,
    /// Packed codes: byte `i` holds those of weights `i` and `i + 16`.
    pub codes: [u8; GROUP / 2],
}

/// One IQ4_XS super-block of 256 weights. 136 bytes, alignment 2, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq4Xs {
    /// Unit of the sub-block scales.
    pub d: f16,
    /// Bits 4 and 5 of the eight scales.
    pub scales_high: [u8; 2],
    /// Low four bits of the eight scales.
    pub scales_low: [u8; SUPER / 64],
    /// Packed codes, 16 bytes a sub-block.
    pub codes: [u8; SUPER / 2],
}

layout!(BlockIq4Nl, 18, 2);
layout!(BlockIq4Xs, 136, 2);

/// The level of a nibble.
fn level(nibble: u8) -> f32 {
    f32::from(IQ4_LEVELS[usize::from(nibble & 15)])
}

impl BlockIq4Xs {
    /// The scale of sub-block `j`, -32..=31.
    ///
    /// # Panics
    ///
    /// When `j >= 8`.
    #[must_use]
    pub fn scale(&self, j: usize) -> i8 {
        let low = self.scales_low[j / 2] >> (j % 2 * 4) & 15;
        let high = self.scales_high[j / 4] >> (j % 4 * 2) & 3;
        (low | high << 4) as i8 - 32
    }
}

impl Block for BlockIq4Nl {
    const NAME: &'static str = "IQ4_NL";
    const WEIGHTS: usize = GROUP;
    type Weights = [f32; GROUP];

    fn dequantize(&self) -> [f32; GROUP] {
        let d = self.scale.to_f32();
        std::array::from_fn(|i| d * level(self.codes[i % 16] >> (i / 16 * 4)))
    }
}

impl Block for BlockIq4Xs {
    const NAME: &'static str = "IQ4_XS";
    const WEIGHTS: usize = SUPER;
    type Weights = [f32; SUPER];

    fn dequantize(&self) -> [f32; SUPER] {
        let mut out = [0.0; SUPER];
        let d = self.d.to_f32();
        for (j, out) in out.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
            let scale = d * f32::from(self.scale(j));
            for (i, w) in out.iter_mut().enumerate() {
                *w = scale * level(self.codes[16 * j + i % 16] >> (i / 16 * 4));
            }
        }
        out
    }
}
