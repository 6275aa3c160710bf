//! MXFP4 and NVFP4: floats of 4 bits that share a scale.
//!
//! A code is a sign, two bits of exponent and one of mantissa (E2M1): 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
//! [`FP4_LEVELS`] holds twice these numbers, as ggml does, so that scales are halved.
//!
//! ```text
//! MXFP4  byte 0          1                17      32 weights: w = 2^(exponent - 128) * level[code]
//!             | exponent | 16 x 2 nibbles |
//! NVFP4  byte 0            4                    36    64 weights, 4 groups of 16: w = scale / 2 * level[code]
//!             | 4 scales   | 4 x 8 x 2 nibbles  |
//! ```
//!
//! Byte `i` of a block's or group's nibbles holds the code of weight `i` (low nibble) and that of the weight half a block
//! or group later (high nibble).
//!
//! MXFP4's exponent is a byte of E8M0. ggml gives 255 a value as to any other byte, where OCP's specification has NaN.
//! NVFP4's scale is a byte of E4M3 without a sign: bits 3 to 6 are the exponent with a bias of 7, bits 0 to 2 the mantissa,
//! exponent 0 is subnormal, and 0x7f is 0. ggml ignores the highest bit, except that 0xff is not 0x7f and so 480, not 0.
//! Checkpoints may hold a scale of a whole tensor beside NVFP4 blocks; GGUF files have it as a tensor of its own, and it is
//! no part of a block.
//!
//! The layouts are those of ggml (`ggml-common.h`, `ggml-impl.h`); the numbers are defined by the OCP Microscaling Formats
//! specification, version 1.0.

use crate::block::{Block, GROUP, layout};
use bytemuck::{Pod, Zeroable};

/// Twice the numbers that the codes of 4-bit floats stand for. Code 8 is 0 without a sign.
pub const FP4_LEVELS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// One MXFP4 group of 32 weights. 17 bytes, alignment 1, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockMxfp4 {
    /// The exponent of the scale, plus 127 (E8M0).
    pub exponent: u8,
    /// Packed codes: byte `i` holds those of weights `i` and `i + 16`.
    pub codes: [u8; GROUP / 2],
}

/// One NVFP4 block of 64 weights. 36 bytes, alignment 1, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockNvfp4 {
    /// The scales of the four groups of 16 (E4M3).
    pub scales: [u8; 4],
    /// Packed codes, 8 bytes a group: byte `i` holds those of weights `i` and `i + 8` of the group.
    pub codes: [u8; 32],
}

layout!(BlockMxfp4, 17, 1);
layout!(BlockNvfp4, 36, 1);

/// The level of a nibble.
fn level(nibble: u8) -> f32 {
    f32::from(FP4_LEVELS[usize::from(nibble & 15)])
}

/// `2^(exponent - 128)`, which for 0 and 1 is subnormal.
pub(crate) fn half_e8m0(exponent: u8) -> f32 {
    f32::from_bits(match exponent {
        0 => 1 << 21,
        1 => 1 << 22,
        e => u32::from(e - 1) << 23,
    })
}

/// Half the number that a byte of E4M3 without a sign stands for.
fn half_e4m3(byte: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    match (byte, exponent) {
        (0x7f, _) => 0.0,
        (_, 0) => mantissa / 1024.0,
        _ => (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 8),
    }
}

impl BlockMxfp4 {
    /// What the levels are multiplied by: half the power of two that the exponent stands for.
    #[must_use]
    pub fn unit(&self) -> f32 {
        half_e8m0(self.exponent)
    }
}

impl BlockNvfp4 {
    /// What the levels of group `group` of 16 weights are multiplied by: half the number that its scale stands for.
    ///
    /// # Panics
    ///
    /// When `group >= 4`.
    #[must_use]
    pub fn unit(&self, group: usize) -> f32 {
        half_e4m3(self.scales[group])
    }
}

impl Block for BlockMxfp4 {
    const NAME: &'static str = "MXFP4";
    const WEIGHTS: usize = GROUP;
    type Weights = [f32; GROUP];

    fn dequantize(&self) -> [f32; GROUP] {
        let d = self.unit();
        std::array::from_fn(|i| d * level(self.codes[i % 16] >> (i / 16 * 4)))
    }
}

impl Block for BlockNvfp4 {
    const NAME: &'static str = "NVFP4";
    const WEIGHTS: usize = 64;
    type Weights = [f32; 64];

    fn dequantize(&self) -> [f32; 64] {
        std::array::from_fn(|n| {
            let (group, i) = (n / 16, n % 16);
            self.unit(group) * level(self.codes[8 * group + i % 8] >> (i / 8 * 4))
        })
    }
}
