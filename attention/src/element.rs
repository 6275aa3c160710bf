//! The number types that a cache stores.

use bytemuck::Pod;
use half::f16;
use halfbyte_cpu_kernels::simd::Simd;

/// A stored number that widens exactly to f32.
pub(crate) trait Element: Pod + Send + Sync {
    /// Whether a load converts. Then a block that many queries read is widened once beforehand.
    const CONVERTS: bool;

    /// Loads 16 numbers.
    ///
    /// # Safety
    /// `p` is valid for reading 16 elements.
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::F32;

    /// Stores 16 numbers, rounded to nearest even.
    ///
    /// # Safety
    /// `p` is valid for writing 16 elements.
    unsafe fn store<S: Simd>(s: S, p: *mut Self, v: S::F32);
}

impl Element for f32 {
    const CONVERTS: bool = false;

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::F32 {
        // SAFETY: the caller's promise is the callee's.
        unsafe { s.load(p) }
    }

    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut Self, v: S::F32) {
        // SAFETY: the caller's promise is the callee's.
        unsafe { s.store(p, v) }
    }
}

impl Element for f16 {
    const CONVERTS: bool = true;

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::F32 {
        // SAFETY: the caller's promise; an `f16` is a transparent `u16`.
        unsafe { s.load_f16(p.cast()) }
    }

    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut Self, v: S::F32) {
        // SAFETY: the caller's promise; an `f16` is a transparent `u16`.
        unsafe { s.store_f16(p.cast(), v) }
    }
}
