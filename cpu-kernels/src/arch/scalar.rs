//! The portable path, and the specification of the others: arrays of sixteen.

use crate::simd::{Kernel, LANES, Simd, sealed::Sealed};
use core::array::from_fn;
use half::f16;

/// The token of the portable path; always available.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Scalar;

impl Sealed for Scalar {}

#[inline(always)]
fn zip<T: Copy, U>(a: [T; LANES], b: [T; LANES], f: impl Fn(T, T) -> U) -> [U; LANES] {
    from_fn(|i| f(a[i], b[i]))
}

#[inline(always)]
fn fold<T: Copy>(mut v: [T; LANES], f: impl Fn(T, T) -> T) -> T {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            v[i] = f(v[i], v[i + half]);
        }
        half /= 2;
    }
    v[0]
}

/// Reads `N` elements of any alignment.
///
/// # Safety
/// `p` is valid for reading `N` elements of `T`.
#[inline(always)]
unsafe fn read<T: Copy, const N: usize>(p: *const T) -> [T; N] {
    // SAFETY: the caller's promise; an array has the layout of its elements.
    unsafe { p.cast::<[T; N]>().read_unaligned() }
}

/// The dot product of four code bytes and four i8.
#[inline(always)]
fn dot_bytes(codes: [i32; 4], x: i32) -> i32 {
    let x = x.to_le_bytes();
    (0..4).map(|b| codes[b] * i32::from(x[b] as i8)).sum()
}

impl Simd for Scalar {
    type F32 = [f32; LANES];
    type I32 = [i32; LANES];
    type Dot4 = [i32; LANES];
    type Codes8 = [i32; LANES];

    const INT_TILE: usize = 1;
    const FLOAT_TILE: usize = 1;
    const DOT8_START: i32 = 0;

    #[inline(always)]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F32 {
        [x; LANES]
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> Self::F32 {
        // SAFETY: the caller's promise.
        unsafe { read(p) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: Self::F32) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<Self::F32>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> Self::F32 {
        // SAFETY: the caller's promise.
        let bits: [u16; LANES] = unsafe { read(p) };
        bits.map(|b| f16::from_bits(b).to_f32())
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: Self::F32) {
        let bits = v.map(|x| f16::from_f32(x).to_bits());
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[u16; LANES]>().write_unaligned(bits) }
    }

    #[inline(always)]
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn fma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn select_lt(self, a: Self::F32, b: Self::F32, yes: Self::F32, no: Self::F32) -> Self::F32 {
        from_fn(|i| if a[i] < b[i] { yes[i] } else { no[i] })
    }
    #[inline(always)]
    fn to_array(self, v: Self::F32) -> [f32; LANES] {
        v
    }
    #[inline(always)]
    fn reduce_add(self, v: Self::F32) -> f32 {
        fold(v, |a, b| a + b)
    }
    #[inline(always)]
    fn reduce_max(self, v: Self::F32) -> f32 {
        fold(v, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn to_bits(self, v: Self::F32) -> Self::I32 {
        v.map(|x| x.to_bits().cast_signed())
    }
    #[inline(always)]
    fn from_bits(self, v: Self::I32) -> Self::F32 {
        v.map(|x| f32::from_bits(x.cast_unsigned()))
    }
    #[inline(always)]
    fn round_i32(self, v: Self::F32) -> Self::I32 {
        v.map(|x| x.round_ties_even() as i32)
    }
    #[inline(always)]
    fn from_i32(self, v: Self::I32) -> Self::F32 {
        v.map(|x| x as f32)
    }

    #[inline(always)]
    fn splat_i32(self, x: i32) -> Self::I32 {
        [x; LANES]
    }
    #[inline(always)]
    unsafe fn load_u32(self, p: *const u32) -> Self::I32 {
        // SAFETY: the caller's promise.
        unsafe { read(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store_u32(self, p: *mut u32, v: Self::I32) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<Self::I32>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn load_u16(self, p: *const u16) -> Self::I32 {
        // SAFETY: the caller's promise.
        let v: [u16; LANES] = unsafe { read(p) };
        v.map(i32::from)
    }
    #[inline(always)]
    unsafe fn store_u16(self, p: *mut u16, v: Self::I32) {
        let halves = v.map(|x| x as u16);
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[u16; LANES]>().write_unaligned(halves) }
    }
    #[inline(always)]
    unsafe fn load_u8(self, p: *const u8) -> Self::I32 {
        // SAFETY: the caller's promise.
        let v: [u8; LANES] = unsafe { read(p) };
        v.map(i32::from)
    }
    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> Self::I32 {
        // SAFETY: the caller's promise.
        let v: [i8; LANES] = unsafe { read(p) };
        v.map(i32::from)
    }
    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8, v: Self::I32) {
        let bytes = v.map(|x| x as i8);
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[i8; LANES]>().write_unaligned(bytes) }
    }
    #[inline(always)]
    fn add_i32(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        zip(a, b, i32::wrapping_add)
    }
    #[inline(always)]
    fn max_i32(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        zip(a, b, i32::max)
    }
    #[inline(always)]
    fn reduce_max_i32(self, v: Self::I32) -> i32 {
        fold(v, i32::max)
    }
    #[inline(always)]
    fn and(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        zip(a, b, |a, b| a & b)
    }
    #[inline(always)]
    fn or(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        zip(a, b, |a, b| a | b)
    }
    #[inline(always)]
    fn shl<const N: u32>(self, a: Self::I32) -> Self::I32 {
        a.map(|x| x << N)
    }
    #[inline(always)]
    fn shr<const N: u32>(self, a: Self::I32) -> Self::I32 {
        a.map(|x| (x.cast_unsigned() >> N).cast_signed())
    }
    #[inline(always)]
    fn reduce_add_i32(self, v: Self::I32) -> i32 {
        fold(v, i32::wrapping_add)
    }

    #[inline(always)]
    fn dot4_start(self, init: i32) -> Self::Dot4 {
        [init; LANES]
    }
    #[inline(always)]
    fn dot4(self, acc: Self::Dot4, codes: Self::I32, x: i32) -> Self::Dot4 {
        from_fn(|i| acc[i] + dot_bytes(codes[i].to_le_bytes().map(i32::from), x))
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
        from_fn(|i| acc[i] + dot_bytes(codes[i].to_le_bytes().map(|b| i32::from(b as i8)), x))
    }

    #[inline(always)]
    unsafe fn load_rows(self, p: *const u8, stride: usize) -> [Self::I32; 4] {
        let mut out = [[0; LANES]; 4];
        for r in 0..LANES {
            // SAFETY: row `r` lies at `p + r * stride` by the caller's promise.
            let row = unsafe { p.add(r * stride) };
            // SAFETY: 16 bytes are readable there by the caller's promise.
            let words: [u32; 4] = unsafe { read(row.cast()) };
            for (j, v) in out.iter_mut().enumerate() {
                v[r] = u32::from_le(words[j]).cast_signed();
            }
        }
        out
    }
}
