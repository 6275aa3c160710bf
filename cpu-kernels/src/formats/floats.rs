//! F32, F16 and BF16: a weight is a number.

use super::{Block, FormatInfo, UseFloatRows};
use crate::simd::{LANES, Simd};
use half::{bf16, f16};

impl Block for f32 {
    const INFO: FormatInfo = FormatInfo { name: "F32", int8: false, packs: true };
    const WEIGHTS: usize = 1;

    #[inline(always)]
    fn decode<S: Simd>(_: S, numbers: &[Self], out: &mut [f32]) {
        out.copy_from_slice(numbers);
    }

    fn float_rows<U: UseFloatRows>(numbers: &[Self], user: U) -> Option<U::Output> {
        Some(user.run(numbers))
    }
}

impl Block for f16 {
    const INFO: FormatInfo = FormatInfo { name: "F16", int8: false, packs: true };
    const WEIGHTS: usize = 1;

    #[inline(always)]
    fn decode<S: Simd>(s: S, numbers: &[Self], out: &mut [f32]) {
        let full = numbers.len() / LANES * LANES;
        for i in (0..full).step_by(LANES) {
            let from = &numbers[i..i + LANES];
            // SAFETY: `from` holds 16 half-precision numbers.
            s.store_slice(&mut out[i..], unsafe { s.load_f16(from.as_ptr().cast()) });
        }
        for i in full..numbers.len() {
            out[i] = numbers[i].to_f32();
        }
    }

    fn float_rows<U: UseFloatRows>(numbers: &[Self], user: U) -> Option<U::Output> {
        Some(user.run(numbers))
    }
}

impl Block for bf16 {
    const INFO: FormatInfo = FormatInfo { name: "BF16", int8: false, packs: true };
    const WEIGHTS: usize = 1;

    #[inline(always)]
    fn decode<S: Simd>(s: S, numbers: &[Self], out: &mut [f32]) {
        let full = numbers.len() / LANES * LANES;
        for i in (0..full).step_by(LANES) {
            let from = &numbers[i..i + LANES];
            // SAFETY: `from` holds 16 bfloat16 numbers.
            s.store_slice(&mut out[i..], unsafe { s.load_bf16(from.as_ptr().cast()) });
        }
        for i in full..numbers.len() {
            out[i] = numbers[i].to_f32();
        }
    }

    fn float_rows<U: UseFloatRows>(numbers: &[Self], user: U) -> Option<U::Output> {
        Some(user.run(numbers))
    }
}
