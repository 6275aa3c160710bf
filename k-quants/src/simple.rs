//! Q5_0, Q5_1, Q1_0 and Q2_0: blocks with one scale.
//!
//! ```text
//! Q5_0  byte 0       2                6                22    w = scale * (code - 16)
//!            | scale | 32 high bits   | 16 x 2 nibbles |
//! Q5_1  byte 0       2       4               8                24    w = scale * code + min
//!            | scale | min   | 32 high bits  | 16 x 2 nibbles |
//! Q2_0  byte 0       2                18      w = scale * (code - 1), 64 weights
//!            | scale | 16 x 4 codes   |
//! Q1_0  byte 0       2                18      w = scale or -scale, 128 weights
//!            | scale | 128 bits       |
//! ```
//!
//! Byte `i` of the nibbles holds the low four bits of codes `i` (low nibble) and `i + 16` (high nibble); bit `i` of the
//! high bits, counted from the lowest of the first byte, is bit 4 of code `i`. Codes of Q2_0 and bits of Q1_0 follow each
//! other, the lowest bits of a byte first.
//!
//! The layouts are those of ggml (`ggml-common.h`, `ggml-quants.c`). Q2_0 is ggml's type 42; forks of llama.cpp have given
//! the name, and sometimes the number, to blocks of 128 weights, which are not these.

use crate::block::{Block, GROUP, layout};
use bytemuck::{Pod, Zeroable};
use half::f16;

/// One Q5_0 group of 32 weights, `w = scale * (code - 16)`. 22 bytes, alignment 2, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ5_0 {
    /// Step between neighbouring codes; may be negative.
    pub scale: f16,
    /// Bit 4 of each code.
    pub high: [u8; 4],
    /// Low four bits of the codes: byte `i` holds those of weights `i` and `i + 16`.
    pub codes: [u8; GROUP / 2],
}

/// One Q5_1 group of 32 weights, `w = scale * code + min`. 24 bytes, alignment 2, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ5_1 {
    /// Step between neighbouring codes.
    pub scale: f16,
    /// The weight of code 0.
    pub min: f16,
    /// Bit 4 of each code.
    pub high: [u8; 4],
    /// Low four bits of the codes, as in [`BlockQ5_0`].
    pub codes: [u8; GROUP / 2],
}

/// One Q2_0 group of 64 weights, `w = scale * (code - 1)`. 18 bytes, alignment 2, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ2_0 {
    /// Step between neighbouring codes.
    pub scale: f16,
    /// Four codes a byte, the first lowest.
    pub codes: [u8; 16],
}

/// One Q1_0 group of 128 weights, `scale` or `-scale`. 18 bytes, alignment 2, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ1_0 {
    /// The magnitude of all weights.
    pub scale: f16,
    /// A bit for each weight, the first lowest; it is set where the weight is `scale`.
    pub bits: [u8; 16],
}

layout!(BlockQ5_0, 22, 2);
layout!(BlockQ5_1, 24, 2);
layout!(BlockQ2_0, 18, 2);
layout!(BlockQ1_0, 18, 2);

/// Packs 32 codes of 0..=31 into the high bits and the nibbles of Q5_0 and Q5_1; higher bits are left out.
#[must_use]
pub fn pack_fives(codes: &[u8; GROUP]) -> ([u8; 4], [u8; GROUP / 2]) {
    let high = (0..GROUP).fold(0_u32, |bits, i| bits | u32::from(codes[i] >> 4 & 1) << i);
    (high.to_le_bytes(), std::array::from_fn(|i| codes[i] & 15 | codes[i + GROUP / 2] << 4))
}

/// The 32 codes, 0..=31, of Q5_0's and Q5_1's high bits and nibbles, in the order of the weights.
fn unpack_fives(high: [u8; 4], nibbles: &[u8; GROUP / 2]) -> [u8; GROUP] {
    let high = u32::from_le_bytes(high);
    std::array::from_fn(|i| nibbles[i % 16] >> (i / 16 * 4) & 15 | ((high >> i & 1) as u8) << 4)
}

impl BlockQ5_0 {
    /// The stored codes, 0..=31, in the order of the weights.
    #[must_use]
    pub fn codes(&self) -> [u8; GROUP] {
        unpack_fives(self.high, &self.codes)
    }
}

impl BlockQ5_1 {
    /// The stored codes, 0..=31, in the order of the weights.
    #[must_use]
    pub fn codes(&self) -> [u8; GROUP] {
        unpack_fives(self.high, &self.codes)
    }
}

impl Block for BlockQ5_0 {
    const NAME: &'static str = "Q5_0";
    const WEIGHTS: usize = GROUP;
    type Weights = [f32; GROUP];

    fn dequantize(&self) -> [f32; GROUP] {
        let d = self.scale.to_f32();
        self.codes().map(|q| d * (f32::from(q) - 16.0))
    }
}

impl Block for BlockQ5_1 {
    const NAME: &'static str = "Q5_1";
    const WEIGHTS: usize = GROUP;
    type Weights = [f32; GROUP];

    fn dequantize(&self) -> [f32; GROUP] {
        let (d, m) = (self.scale.to_f32(), self.min.to_f32());
        self.codes().map(|q| d * f32::from(q) + m)
    }
}

impl Block for BlockQ2_0 {
    const NAME: &'static str = "Q2_0";
    const WEIGHTS: usize = 64;
    type Weights = [f32; 64];

    fn dequantize(&self) -> [f32; 64] {
        let d = self.scale.to_f32();
        std::array::from_fn(|i| d * (f32::from(self.codes[i / 4] >> (i % 4 * 2) & 3) - 1.0))
    }
}

impl Block for BlockQ1_0 {
    const NAME: &'static str = "Q1_0";
    const WEIGHTS: usize = 128;
    type Weights = [f32; 128];

    fn dequantize(&self) -> [f32; 128] {
        let d = self.scale.to_f32();
        std::array::from_fn(|i| if self.bits[i / 8] >> (i % 8) & 1 == 1 { d } else { -d })
    }
}
