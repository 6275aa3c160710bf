//! Q4_K and Q6_K: super-blocks of 256 weights, which are read by dequantizing.

use super::{Block, FormatInfo};
use crate::simd::Simd;
use halfbyte_q4::k_quants::{BlockQ4K, BlockQ6K};

impl Block for BlockQ4K {
    const INFO: FormatInfo = FormatInfo { name: "Q4_K", int8: false, packs: false };
    const WEIGHTS: usize = 256;

    #[inline(always)]
    fn decode<S: Simd>(_: S, blocks: &[Self], out: &mut [f32]) {
        for (block, y) in blocks.iter().zip(out.chunks_exact_mut(256)) {
            y.copy_from_slice(&block.dequantize());
        }
    }
}

impl Block for BlockQ6K {
    const INFO: FormatInfo = FormatInfo { name: "Q6_K", int8: false, packs: false };
    const WEIGHTS: usize = 256;

    #[inline(always)]
    fn decode<S: Simd>(_: S, blocks: &[Self], out: &mut [f32]) {
        for (block, y) in blocks.iter().zip(out.chunks_exact_mut(256)) {
            y.copy_from_slice(&block.dequantize());
        }
    }
}
