//! AArch64 NEON with the dot product of Armv8.2: four 128-bit registers a vector.
//!
//! `sdot` multiplies signed by signed bytes and adds four products to an i32 lane: codes of 4 and of 8 bits both
//! go in as they are, with any of the 256 values, and nothing saturates.
//!
//! Two instructions have no stable intrinsic in the oldest Rust that this crate supports and are written inline:
//! `sdot`, and the conversions `fcvtl` and `fcvtn` between half and single precision. `max` and `min` select by a
//! comparison, since `fmax` and `fmin` treat NaN and signed zeros in a way of their own.
//!
//! Checked by the tests of this crate under QEMU's user emulation, never timed on a real machine.

#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a vector is four registers: every operation comes four times"
)]

use crate::simd::{Kernel, LANES, Simd, sealed::Sealed};
use core::arch::aarch64::*;
use core::arch::asm;

/// The token of NEON with the dot product.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Neon(());

impl Neon {
    /// The token, if the operating system reports the instructions.
    pub(crate) fn detect() -> Option<Self> {
        (std::arch::is_aarch64_feature_detected!("neon")
            && std::arch::is_aarch64_feature_detected!("dotprod"))
        .then_some(Self(()))
    }
}

impl Sealed for Neon {}

/// Runs `kernel` compiled for NEON with the dot product.
///
/// # Safety
/// The CPU has NEON and the dot product.
#[target_feature(enable = "neon,dotprod")]
unsafe fn run<K: Kernel>(s: Neon, kernel: K) -> K::Output {
    kernel.run(s)
}

/// Adds to each i32 lane of `acc` the four products of its bytes in `a` and `b`.
///
/// # Safety
/// The CPU has the dot product.
#[inline]
#[target_feature(enable = "neon,dotprod")]
unsafe fn sdot(mut acc: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t {
    // SAFETY: register to register; the caller promises the instruction.
    unsafe {
        asm!(
            "sdot {acc:v}.4s, {a:v}.16b, {b:v}.16b",
            acc = inout(vreg) acc,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    acc
}

/// Four half-precision numbers, widened exactly.
///
/// # Safety
/// The CPU has NEON.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn widen(h: uint16x4_t) -> float32x4_t {
    let v: float32x4_t;
    // SAFETY: register to register; the caller promises the instruction.
    unsafe {
        asm!(
            "fcvtl {v:v}.4s, {h:v}.4h",
            v = lateout(vreg) v,
            h = in(vreg) h,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    v
}

/// Four numbers in half precision, rounded to nearest even.
///
/// # Safety
/// The CPU has NEON.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn narrow(v: float32x4_t) -> uint16x4_t {
    let h: uint16x4_t;
    // SAFETY: register to register; the caller promises the instruction.
    unsafe {
        asm!(
            "fcvtn {h:v}.4h, {v:v}.4s",
            h = lateout(vreg) h,
            v = in(vreg) v,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    h
}

/// `$f` on all four registers. The token in scope proves the instructions.
macro_rules! each {
    ($f:ident, $($a:expr),*) => {
        // SAFETY: `self` proves that the CPU has these instructions.
        unsafe { [$f($($a[0]),*), $f($($a[1]),*), $f($($a[2]),*), $f($($a[3]),*)] }
    };
}

impl Simd for Neon {
    type F32 = [float32x4_t; 4];
    type I32 = [int32x4_t; 4];
    type Dot4 = [int32x4_t; 4];
    type Codes8 = [int32x4_t; 4];

    const INT_TILE: usize = 2;
    const FLOAT_TILE: usize = 6;
    const DOT8_START: i32 = 0;

    #[inline(always)]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: this token was made by `detect`, which saw the features.
        unsafe { run(self, kernel) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F32 {
        // SAFETY: `self` proves the instructions.
        let v = unsafe { vdupq_n_f32(x) };
        [v; 4]
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> Self::F32 {
        // SAFETY: 16 f32 are readable by the caller's promise.
        unsafe { [vld1q_f32(p), vld1q_f32(p.add(4)), vld1q_f32(p.add(8)), vld1q_f32(p.add(12))] }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: Self::F32) {
        for (i, v) in v.into_iter().enumerate() {
            // SAFETY: 16 f32 are writable by the caller's promise.
            unsafe { vst1q_f32(p.add(4 * i), v) }
        }
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> Self::F32 {
        // SAFETY: 16 u16 are readable by the caller's promise.
        let h = unsafe { [vld1_u16(p), vld1_u16(p.add(4)), vld1_u16(p.add(8)), vld1_u16(p.add(12))] };
        each!(widen, h)
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: Self::F32) {
        for (i, h) in each!(narrow, v).into_iter().enumerate() {
            // SAFETY: 16 u16 are writable by the caller's promise.
            unsafe { vst1_u16(p.add(4 * i), h) }
        }
    }

    #[inline(always)]
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        each!(vaddq_f32, a, b)
    }
    #[inline(always)]
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        each!(vsubq_f32, a, b)
    }
    #[inline(always)]
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        each!(vmulq_f32, a, b)
    }
    #[inline(always)]
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        each!(vdivq_f32, a, b)
    }
    #[inline(always)]
    fn fma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        each!(vfmaq_f32, c, a, b)
    }
    #[inline(always)]
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        let greater = each!(vcgtq_f32, a, b);
        each!(vbslq_f32, greater, a, b)
    }
    #[inline(always)]
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        self.select_lt(a, b, a, b)
    }
    #[inline(always)]
    fn select_lt(self, a: Self::F32, b: Self::F32, yes: Self::F32, no: Self::F32) -> Self::F32 {
        let less = each!(vcltq_f32, a, b);
        each!(vbslq_f32, less, yes, no)
    }
    #[inline(always)]
    fn reduce_add(self, v: Self::F32) -> f32 {
        // SAFETY: `self` proves the instructions.
        unsafe {
            let v4 = vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3]));
            let v2 = vadd_f32(vget_low_f32(v4), vget_high_f32(v4));
            vget_lane_f32::<0>(v2) + vget_lane_f32::<1>(v2)
        }
    }
    #[inline(always)]
    fn reduce_max(self, v: Self::F32) -> f32 {
        let mut lanes = self.to_array(v);
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                let (a, b) = (lanes[i], lanes[i + half]);
                lanes[i] = if a > b { a } else { b };
            }
            half /= 2;
        }
        lanes[0]
    }

    #[inline(always)]
    fn to_bits(self, v: Self::F32) -> Self::I32 {
        each!(vreinterpretq_s32_f32, v)
    }
    #[inline(always)]
    fn from_bits(self, v: Self::I32) -> Self::F32 {
        each!(vreinterpretq_f32_s32, v)
    }
    #[inline(always)]
    fn round_i32(self, v: Self::F32) -> Self::I32 {
        each!(vcvtnq_s32_f32, v)
    }
    #[inline(always)]
    fn from_i32(self, v: Self::I32) -> Self::F32 {
        each!(vcvtq_f32_s32, v)
    }

    #[inline(always)]
    fn splat_i32(self, x: i32) -> Self::I32 {
        // SAFETY: `self` proves the instructions.
        let v = unsafe { vdupq_n_s32(x) };
        [v; 4]
    }
    #[inline(always)]
    unsafe fn load_u32(self, p: *const u32) -> Self::I32 {
        let p = p.cast::<i32>();
        // SAFETY: 16 words are readable by the caller's promise.
        unsafe { [vld1q_s32(p), vld1q_s32(p.add(4)), vld1q_s32(p.add(8)), vld1q_s32(p.add(12))] }
    }
    #[inline(always)]
    unsafe fn store_u32(self, p: *mut u32, v: Self::I32) {
        for (i, v) in v.into_iter().enumerate() {
            // SAFETY: 16 words are writable by the caller's promise.
            unsafe { vst1q_s32(p.add(4 * i).cast(), v) }
        }
    }
    #[inline(always)]
    unsafe fn load_u16(self, p: *const u16) -> Self::I32 {
        // SAFETY: 16 u16 are readable by the caller's promise.
        let h = unsafe { [vld1_u16(p), vld1_u16(p.add(4)), vld1_u16(p.add(8)), vld1_u16(p.add(12))] };
        let words = each!(vmovl_u16, h);
        each!(vreinterpretq_s32_u32, words)
    }
    #[inline(always)]
    unsafe fn store_u16(self, p: *mut u16, v: Self::I32) {
        let words = each!(vreinterpretq_u32_s32, v);
        for (i, h) in each!(vmovn_u32, words).into_iter().enumerate() {
            // SAFETY: 16 u16 are writable by the caller's promise.
            unsafe { vst1_u16(p.add(4 * i), h) }
        }
    }
    #[inline(always)]
    unsafe fn load_u8(self, p: *const u8) -> Self::I32 {
        // SAFETY: 16 bytes are readable by the caller's promise, and `self` proves the instructions.
        let h = unsafe {
            let bytes = vld1q_u8(p);
            let (low, high) = (vmovl_u8(vget_low_u8(bytes)), vmovl_u8(vget_high_u8(bytes)));
            [vget_low_u16(low), vget_high_u16(low), vget_low_u16(high), vget_high_u16(high)]
        };
        let words = each!(vmovl_u16, h);
        each!(vreinterpretq_s32_u32, words)
    }
    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> Self::I32 {
        // SAFETY: 16 bytes are readable by the caller's promise, and `self` proves the instructions.
        let h = unsafe {
            let bytes = vld1q_s8(p);
            let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_s8(vget_high_s8(bytes)));
            [vget_low_s16(low), vget_high_s16(low), vget_low_s16(high), vget_high_s16(high)]
        };
        each!(vmovl_s16, h)
    }
    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8, v: Self::I32) {
        let h = each!(vmovn_s32, v);
        // SAFETY: `self` proves the instructions; 16 bytes are writable by the caller's promise.
        unsafe {
            let low = vmovn_s16(vcombine_s16(h[0], h[1]));
            let high = vmovn_s16(vcombine_s16(h[2], h[3]));
            vst1q_s8(p, vcombine_s8(low, high));
        }
    }
    #[inline(always)]
    fn add_i32(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        each!(vaddq_s32, a, b)
    }
    #[inline(always)]
    fn max_i32(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        each!(vmaxq_s32, a, b)
    }
    #[inline(always)]
    fn reduce_max_i32(self, v: Self::I32) -> i32 {
        // SAFETY: `self` proves the instructions.
        unsafe { vmaxvq_s32(vmaxq_s32(vmaxq_s32(v[0], v[1]), vmaxq_s32(v[2], v[3]))) }
    }
    #[inline(always)]
    fn and(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        each!(vandq_s32, a, b)
    }
    #[inline(always)]
    fn or(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        each!(vorrq_s32, a, b)
    }
    #[inline(always)]
    fn shl<const N: u32>(self, a: Self::I32) -> Self::I32 {
        let n = self.splat_i32(N.cast_signed());
        each!(vshlq_s32, a, n)
    }
    #[inline(always)]
    fn shr<const N: u32>(self, a: Self::I32) -> Self::I32 {
        // A negative count shifts right; the unsigned form brings in zeros.
        let n = self.splat_i32(-N.cast_signed());
        let a = each!(vreinterpretq_u32_s32, a);
        let shifted = each!(vshlq_u32, a, n);
        each!(vreinterpretq_s32_u32, shifted)
    }
    #[inline(always)]
    fn reduce_add_i32(self, v: Self::I32) -> i32 {
        // SAFETY: `self` proves the instructions.
        unsafe { vaddvq_s32(vaddq_s32(vaddq_s32(v[0], v[1]), vaddq_s32(v[2], v[3]))) }
    }

    #[inline(always)]
    fn dot4_start(self, init: i32) -> Self::Dot4 {
        self.splat_i32(init)
    }
    #[inline(always)]
    fn dot4(self, acc: Self::Dot4, codes: Self::I32, x: i32) -> Self::Dot4 {
        // Codes up to 15 are the same bytes signed.
        let x = self.splat_i32(x);
        each!(sdot, acc, codes, x)
    }
    #[inline(always)]
    fn dot4_finish(self, acc: Self::Dot4, _init: i32) -> Self::I32 {
        acc
    }

    #[inline(always)]
    fn prepare8(self, codes: Self::I32) -> Self::Codes8 {
        codes
    }
    #[inline(always)]
    fn dot8(self, acc: Self::I32, codes: Self::Codes8, x: i32) -> Self::I32 {
        let x = self.splat_i32(x);
        each!(sdot, acc, codes, x)
    }

    #[inline(always)]
    unsafe fn load_rows(self, p: *const u8, stride: usize) -> [Self::I32; 4] {
        let mut out = [self.splat_i32(0); 4];
        for quad in 0..4 {
            // SAFETY: rows 0 to 15 are readable by the caller's promise, and `self` proves the instructions.
            unsafe {
                let p = p.add(4 * quad * stride);
                let row = |r: usize| vreinterpretq_s32_u8(vld1q_u8(p.add(r * stride)));
                let (a, b, c, d) = (row(0), row(1), row(2), row(3));
                // A 4 x 4 transposition of words: pairs of words, then pairs of pairs.
                let (ab_even, ab_odd) = (pairs(vtrn1q_s32(a, b)), pairs(vtrn2q_s32(a, b)));
                let (cd_even, cd_odd) = (pairs(vtrn1q_s32(c, d)), pairs(vtrn2q_s32(c, d)));
                out[0][quad] = vreinterpretq_s32_s64(vtrn1q_s64(ab_even, cd_even));
                out[1][quad] = vreinterpretq_s32_s64(vtrn1q_s64(ab_odd, cd_odd));
                out[2][quad] = vreinterpretq_s32_s64(vtrn2q_s64(ab_even, cd_even));
                out[3][quad] = vreinterpretq_s32_s64(vtrn2q_s64(ab_odd, cd_odd));
            }
        }
        out
    }
}

/// The same register as two pairs of words.
#[inline(always)]
fn pairs(v: int32x4_t) -> int64x2_t {
    // SAFETY: NEON is part of every AArch64 target that has `std`, and a token stands behind every caller.
    unsafe { vreinterpretq_s64_s32(v) }
}
