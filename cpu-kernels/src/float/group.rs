//! Groups of 32 codes to f32, each by its format's formula.

use crate::simd::{LANES, Simd};

/// A group of 8-bit codes: `w = d * q`, with a scale for each half.
#[inline(always)]
pub(crate) fn eight_bits<S: Simd>(s: S, d: [f32; 2], codes: &[i8; 32], y: &mut [f32]) {
    for half in 0..2 {
        let codes = &codes[LANES * half..][..LANES];
        // SAFETY: `codes` holds 16 bytes.
        let q = unsafe { s.load_i8(codes.as_ptr()) };
        s.store_slice(&mut y[LANES * half..], s.mul(s.splat(d[half]), s.from_i32(q)));
    }
}

/// A group of 8-bit codes with minima: `w = d * q + m`, rounded once.
#[inline(always)]
pub(crate) fn eight_bits_and_min<S: Simd>(s: S, d: [f32; 2], m: [f32; 2], codes: &[i8; 32], y: &mut [f32]) {
    for half in 0..2 {
        let codes = &codes[LANES * half..][..LANES];
        // SAFETY: `codes` holds 16 bytes.
        let q = unsafe { s.load_i8(codes.as_ptr()) };
        s.store_slice(&mut y[LANES * half..], s.fma(s.splat(d[half]), s.from_i32(q), s.splat(m[half])));
    }
}

/// The low and the high nibbles of 16 bytes.
#[inline(always)]
fn nibbles<S: Simd>(s: S, codes: &[u8; 16]) -> [S::I32; 2] {
    // SAFETY: 16 bytes are readable.
    let bytes = unsafe { s.load_u8(codes.as_ptr()) };
    [s.and(bytes, s.splat_i32(15)), s.shr::<4>(bytes)]
}

/// A group of Q4_0: `w = d * (q - 8)`.
#[inline(always)]
pub(crate) fn four_bits<S: Simd>(s: S, d: f32, codes: &[u8; 16], y: &mut [f32]) {
    let q = nibbles(s, codes);
    for half in 0..2 {
        let signed = s.add_i32(q[half], s.splat_i32(-8));
        s.store_slice(&mut y[LANES * half..], s.mul(s.splat(d), s.from_i32(signed)));
    }
}

/// A group of Q4_1 or, packed, of an affine format: `w = d * q + m`, rounded once.
#[inline(always)]
pub(crate) fn four_bits_and_min<S: Simd>(s: S, d: f32, m: f32, codes: &[u8; 16], y: &mut [f32]) {
    let q = nibbles(s, codes);
    for half in 0..2 {
        s.store_slice(&mut y[LANES * half..], s.fma(s.splat(d), s.from_i32(q[half]), s.splat(m)));
    }
}
