//! Q8_0, Q4_0 and Q4_1: blocks of 32 weights.

use super::{Block, FormatInfo, UseInt8Rows};
use crate::float::group::{eight_bits, four_bits, four_bits_and_min};
use crate::int8::{Q4_0Rows, Q4_1Rows, Q8_0Rows};
use crate::simd::Simd;
use halfbyte_q4::{BlockQ4_0, BlockQ4_1};
use halfbyte_q8::BlockQ8_0;

impl Block for BlockQ8_0 {
    const INFO: FormatInfo = FormatInfo { name: "Q8_0", int8: true, packs: true };
    const WEIGHTS: usize = 32;

    #[inline(always)]
    fn decode<S: Simd>(s: S, blocks: &[Self], out: &mut [f32]) {
        for (block, y) in blocks.iter().zip(out.chunks_exact_mut(32)) {
            eight_bits(s, [block.scale.to_f32(); 2], &block.codes, y);
        }
    }

    fn int8_rows<U: UseInt8Rows>(blocks: &[Self], cols: usize, user: U) -> Option<U::Output> {
        Some(user.run(Q8_0Rows::new(blocks, cols)))
    }
}

impl Block for BlockQ4_0 {
    const INFO: FormatInfo = FormatInfo { name: "Q4_0", int8: true, packs: true };
    const WEIGHTS: usize = 32;

    #[inline(always)]
    fn decode<S: Simd>(s: S, blocks: &[Self], out: &mut [f32]) {
        for (block, y) in blocks.iter().zip(out.chunks_exact_mut(32)) {
            four_bits(s, block.scale.to_f32(), &block.codes, y);
        }
    }

    fn int8_rows<U: UseInt8Rows>(blocks: &[Self], cols: usize, user: U) -> Option<U::Output> {
        Some(user.run(Q4_0Rows::new(blocks, cols)))
    }
}

impl Block for BlockQ4_1 {
    const INFO: FormatInfo = FormatInfo { name: "Q4_1", int8: true, packs: true };
    const WEIGHTS: usize = 32;

    #[inline(always)]
    fn decode<S: Simd>(s: S, blocks: &[Self], out: &mut [f32]) {
        for (block, y) in blocks.iter().zip(out.chunks_exact_mut(32)) {
            four_bits_and_min(s, block.scale.to_f32(), block.min.to_f32(), &block.codes, y);
        }
    }

    fn int8_rows<U: UseInt8Rows>(blocks: &[Self], cols: usize, user: U) -> Option<U::Output> {
        Some(user.run(Q4_1Rows::new(blocks, cols)))
    }
}
