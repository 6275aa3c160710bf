//! The blocks of `halfbyte-k-quants`: those that the int8 tiles multiply, and those that are read by dequantizing.

use super::{Block, FormatInfo, UseInt8Rows};
use crate::int8::GroupedRows;
use crate::simd::Simd;
use halfbyte_k_quants::{self as k_quants, *};

/// Makes formats of blocks of `halfbyte-k-quants`.
macro_rules! ggml {
    (int8 { $($fast:ident,)* } dequantized { $($block:ident,)* }) => {
        $(ggml!(one $fast, true, fn int8_rows<U: UseInt8Rows>(blocks: &[Self], cols: usize, user: U) -> Option<U::Output> {
            Some(user.run(GroupedRows::new(blocks, cols)))
        });)*
        $(ggml!(one $block, false,);)*
    };
    (one $block:ident, $int8:literal, $($int8_rows:item)?) => {
        impl Block for $block {
            const INFO: FormatInfo =
                FormatInfo { name: <Self as k_quants::Block>::NAME, int8: $int8, packs: $int8 };
            const WEIGHTS: usize = <Self as k_quants::Block>::WEIGHTS;

            #[inline(always)]
            fn decode<S: Simd>(_: S, blocks: &[Self], out: &mut [f32]) {
                dequantize(blocks, out);
            }

            $($int8_rows)?
        }
    };
}

/// Decodes `blocks`. It uses no vectors, so it is not compiled into the kernels of each instruction set.
#[inline(never)]
fn dequantize<B: k_quants::Block>(blocks: &[B], out: &mut [f32]) {
    for (block, y) in blocks.iter().zip(out.chunks_exact_mut(B::WEIGHTS)) {
        y.copy_from_slice(block.dequantize().as_ref());
    }
}

ggml! {
    int8 {
        BlockQ5_0,
        BlockQ5_1,
        BlockQ2K,
        BlockQ3K,
        BlockQ4K,
        BlockQ5K,
        BlockQ6K,
        BlockIq4Nl,
        BlockIq4Xs,
        BlockMxfp4,
        BlockNvfp4,
    }
    dequantized {
        BlockIq1S,
        BlockIq1M,
        BlockIq2Xxs,
        BlockIq2Xs,
        BlockIq2S,
        BlockIq3Xxs,
        BlockIq3S,
        BlockTq1_0,
        BlockTq2_0,
        BlockQ1_0,
        BlockQ2_0,
    }
}
