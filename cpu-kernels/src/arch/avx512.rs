//! AVX-512 (F, BW, DQ, VL) with VNNI: one 512-bit register a vector.
//!
//! `vpdpbusd` multiplies unsigned by signed bytes and adds four products to an i32 lane without saturation.
//! Signed 8-bit codes go in plus 128, and the group's sum starts at `-128 * sum(x)`.

use super::avx2::Avx2;
use crate::simd::{Kernel, LANES, Simd, sealed::Sealed};
use core::arch::x86_64::*;

/// The token of AVX-512 with VNNI.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Avx512Vnni(());

impl Avx512Vnni {
    /// The token, if the CPU has the instructions and the OS saves their registers.
    pub(crate) fn detect() -> Option<Self> {
        (Avx2::<false>::detect().is_some()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni"))
        .then_some(Self(()))
    }

    /// The token for AVX2, which such a CPU has, too.
    #[inline(always)]
    fn avx2(self) -> Avx2<false> {
        Avx2::of_avx512(self)
    }

    /// Lanes 0 to 7, and lanes 8 to 15.
    #[inline(always)]
    fn halves(self, v: __m512) -> [__m256; 2] {
        // SAFETY: `self` proves the instructions.
        let low = unsafe { _mm512_castps512_ps256(v) };
        // SAFETY: `self` proves the instructions.
        let high = unsafe { _mm512_extractf32x8_ps::<1>(v) };
        [low, high]
    }

    /// Rows 0, 4, 8 and 12 from `p` on, 16 bytes each.
    ///
    /// # Safety
    /// 16 bytes are readable at `p + 4 i * stride` for `i` below 4.
    #[inline(always)]
    #[allow(clippy::multiple_unsafe_ops_per_block, reason = "four loads of the same kind")]
    unsafe fn row_quad(self, p: *const u8, stride: usize) -> __m512i {
        // SAFETY: the caller's promise, and `self` proves the instructions.
        unsafe {
            let v = _mm512_castsi128_si512(_mm_loadu_si128(p.cast()));
            let v = _mm512_inserti32x4::<1>(v, _mm_loadu_si128(p.add(4 * stride).cast()));
            let v = _mm512_inserti32x4::<2>(v, _mm_loadu_si128(p.add(8 * stride).cast()));
            _mm512_inserti32x4::<3>(v, _mm_loadu_si128(p.add(12 * stride).cast()))
        }
    }
}

impl Sealed for Avx512Vnni {}

/// `$f` on the one register. The token in scope proves the instructions.
macro_rules! one {
    ($f:ident, $($a:expr),*) => {
        // SAFETY: `self` proves that the CPU has these instructions.
        unsafe { $f($($a),*) }
    };
}

/// Runs `kernel` compiled for AVX-512 with VNNI.
///
/// # Safety
/// The CPU has AVX2, FMA, F16C and AVX-512 F, BW, DQ, VL and VNNI.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn run<K: Kernel>(s: Avx512Vnni, kernel: K) -> K::Output {
    kernel.run(s)
}

impl Simd for Avx512Vnni {
    type F32 = __m512;
    type I32 = __m512i;
    type Dot4 = __m512i;
    type Codes8 = __m512i;

    const INT_TILE: usize = 8;
    const FLOAT_TILE: usize = 16;
    const FLOAT_PANELS: usize = 2;
    const DELTA_STRIPS: usize = 2;
    const DOT8_START: i32 = -128;

    #[inline(always)]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: this token was made by `detect`, which saw the features.
        unsafe { run(self, kernel) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F32 {
        // SAFETY: `self` proves the instructions.
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> Self::F32 {
        // SAFETY: 16 f32 are readable by the caller's promise.
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: Self::F32) {
        // SAFETY: 16 f32 are writable by the caller's promise.
        unsafe { _mm512_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> Self::F32 {
        // SAFETY: 16 u16 are readable by the caller's promise.
        let h = unsafe { _mm256_loadu_si256(p.cast()) };
        // SAFETY: `self` proves the instructions.
        unsafe { _mm512_cvtph_ps(h) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: Self::F32) {
        // SAFETY: `self` proves the instructions.
        let h = unsafe { _mm512_cvtps_ph::<0>(v) };
        // SAFETY: 16 u16 are writable by the caller's promise.
        unsafe { _mm256_storeu_si256(p.cast(), h) }
    }

    lanewise! { one;
        add(a: F32, b: F32) -> F32 = _mm512_add_ps;
        sub(a: F32, b: F32) -> F32 = _mm512_sub_ps;
        mul(a: F32, b: F32) -> F32 = _mm512_mul_ps;
        div(a: F32, b: F32) -> F32 = _mm512_div_ps;
        fma(a: F32, b: F32, c: F32) -> F32 = _mm512_fmadd_ps;
        max(a: F32, b: F32) -> F32 = _mm512_max_ps;
        min(a: F32, b: F32) -> F32 = _mm512_min_ps;
        to_bits(v: F32) -> I32 = _mm512_castps_si512;
        from_bits(v: I32) -> F32 = _mm512_castsi512_ps;
        round_i32(v: F32) -> I32 = _mm512_cvtps_epi32;
        from_i32(v: I32) -> F32 = _mm512_cvtepi32_ps;
        add_i32(a: I32, b: I32) -> I32 = _mm512_add_epi32;
        max_i32(a: I32, b: I32) -> I32 = _mm512_max_epi32;
        and(a: I32, b: I32) -> I32 = _mm512_and_si512;
        or(a: I32, b: I32) -> I32 = _mm512_or_si512;
    }
    #[inline(always)]
    fn select_lt(self, a: Self::F32, b: Self::F32, yes: Self::F32, no: Self::F32) -> Self::F32 {
        // SAFETY: `self` proves the instructions.
        let mask = unsafe { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b) };
        // SAFETY: `self` proves the instructions.
        unsafe { _mm512_mask_blend_ps(mask, no, yes) }
    }
    #[inline(always)]
    fn reduce_add(self, v: Self::F32) -> f32 {
        let [low, high] = self.halves(v);
        // SAFETY: `self` proves the instructions.
        let half = unsafe { _mm256_add_ps(low, high) };
        self.avx2().fold(half, false)
    }
    #[inline(always)]
    fn reduce_max(self, v: Self::F32) -> f32 {
        let [low, high] = self.halves(v);
        // SAFETY: `self` proves the instructions.
        let half = unsafe { _mm256_max_ps(low, high) };
        self.avx2().fold(half, true)
    }
    #[inline(always)]
    #[allow(clippy::multiple_unsafe_ops_per_block, reason = "one reduction, register to register")]
    fn reduce_add_each(self, v: [Self::F32; LANES]) -> Self::F32 {
        // Each round adds what `reduce_add` adds, for two vectors at once, and packs their sums into one.
        let mut quads = [v[0]; 4];
        for (i, quad) in quads.iter_mut().enumerate() {
            // SAFETY: `self` proves the instructions.
            *quad = unsafe {
                let (a, b, c, d) = (v[i], v[4 + i], v[8 + i], v[12 + i]);
                let ab =
                    _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b));
                let cd =
                    _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(c, d), _mm512_shuffle_f32x4::<0xee>(c, d));
                _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(ab, cd), _mm512_shuffle_f32x4::<0xdd>(ab, cd))
            };
        }
        let mut pairs = [v[0]; 2];
        for (i, pair) in pairs.iter_mut().enumerate() {
            // SAFETY: `self` proves the instructions.
            *pair = unsafe {
                let (a, b) = (_mm512_castps_pd(quads[2 * i]), _mm512_castps_pd(quads[2 * i + 1]));
                let (low, high) = (_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
                _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high))
            };
        }
        let [a, b] = pairs;
        // SAFETY: `self` proves the instructions.
        unsafe { _mm512_add_ps(_mm512_shuffle_ps::<0x88>(a, b), _mm512_shuffle_ps::<0xdd>(a, b)) }
    }

    #[inline(always)]
    fn splat_i32(self, x: i32) -> Self::I32 {
        // SAFETY: `self` proves the instructions.
        unsafe { _mm512_set1_epi32(x) }
    }
    #[inline(always)]
    unsafe fn load_u32(self, p: *const u32) -> Self::I32 {
        // SAFETY: 16 u32 are readable by the caller's promise.
        unsafe { _mm512_loadu_si512(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store_u32(self, p: *mut u32, v: Self::I32) {
        // SAFETY: 16 u32 are writable by the caller's promise.
        unsafe { _mm512_storeu_si512(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn load_u16(self, p: *const u16) -> Self::I32 {
        // SAFETY: 16 u16 are readable by the caller's promise.
        let h = unsafe { _mm256_loadu_si256(p.cast()) };
        // SAFETY: `self` proves the instructions.
        unsafe { _mm512_cvtepu16_epi32(h) }
    }
    #[inline(always)]
    unsafe fn store_u16(self, p: *mut u16, v: Self::I32) {
        // SAFETY: `self` proves the instructions.
        let h = unsafe { _mm512_cvtepi32_epi16(v) };
        // SAFETY: 16 u16 are writable by the caller's promise.
        unsafe { _mm256_storeu_si256(p.cast(), h) }
    }
    #[inline(always)]
    unsafe fn load_u8(self, p: *const u8) -> Self::I32 {
        // SAFETY: 16 bytes are readable by the caller's promise.
        let b = unsafe { _mm_loadu_si128(p.cast()) };
        // SAFETY: `self` proves the instructions.
        unsafe { _mm512_cvtepu8_epi32(b) }
    }
    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> Self::I32 {
        // SAFETY: 16 bytes are readable by the caller's promise.
        let b = unsafe { _mm_loadu_si128(p.cast()) };
        // SAFETY: `self` proves the instructions.
        unsafe { _mm512_cvtepi8_epi32(b) }
    }
    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8, v: Self::I32) {
        // SAFETY: `self` proves the instructions.
        let b = unsafe { _mm512_cvtepi32_epi8(v) };
        // SAFETY: 16 bytes are writable by the caller's promise.
        unsafe { _mm_storeu_si128(p.cast(), b) }
    }
    #[inline(always)]
    fn reduce_max_i32(self, v: Self::I32) -> i32 {
        // SAFETY: `self` proves the instructions.
        unsafe { _mm512_reduce_max_epi32(v) }
    }
    #[inline(always)]
    fn shl<const N: u32>(self, a: Self::I32) -> Self::I32 {
        // SAFETY: `self` proves the instructions.
        unsafe { _mm512_slli_epi32::<N>(a) }
    }
    #[inline(always)]
    fn shr<const N: u32>(self, a: Self::I32) -> Self::I32 {
        // SAFETY: `self` proves the instructions.
        unsafe { _mm512_srli_epi32::<N>(a) }
    }
    #[inline(always)]
    fn reduce_add_i32(self, v: Self::I32) -> i32 {
        // SAFETY: `self` proves the instructions.
        unsafe { _mm512_reduce_add_epi32(v) }
    }

    #[inline(always)]
    fn dot4_start(self, init: i32) -> Self::Dot4 {
        self.splat_i32(init)
    }
    #[inline(always)]
    fn dot4(self, acc: Self::Dot4, codes: Self::I32, x: i32) -> Self::Dot4 {
        let x = self.splat_i32(x);
        // SAFETY: `self` proves the instructions.
        unsafe { _mm512_dpbusd_epi32(acc, codes, x) }
    }
    #[inline(always)]
    fn dot4_finish(self, acc: Self::Dot4, _init: i32) -> Self::I32 {
        acc
    }

    #[inline(always)]
    fn prepare8(self, codes: Self::I32) -> Self::Codes8 {
        let flip = self.splat_i32(0x8080_8080_u32.cast_signed());
        // SAFETY: `self` proves the instructions.
        unsafe { _mm512_xor_si512(codes, flip) }
    }
    #[inline(always)]
    fn dot8(self, acc: Self::I32, codes: Self::Codes8, x: i32) -> Self::I32 {
        let x = self.splat_i32(x);
        // SAFETY: `self` proves the instructions.
        unsafe { _mm512_dpbusd_epi32(acc, codes, x) }
    }

    #[inline(always)]
    fn prefetch(self, p: *const u8) {
        super::prefetch(p);
    }
    #[inline(always)]
    #[allow(clippy::multiple_unsafe_ops_per_block, reason = "one transposition, register to register")]
    unsafe fn load_rows(self, p: *const u8, stride: usize) -> [Self::I32; 4] {
        // SAFETY: rows 0 to 15 are readable by the caller's promise, and `self` proves the instructions.
        unsafe {
            let a = self.row_quad(p, stride);
            let b = self.row_quad(p.add(stride), stride);
            let c = self.row_quad(p.add(2 * stride), stride);
            let d = self.row_quad(p.add(3 * stride), stride);
            // A 4 x 4 transposition of words inside each 128-bit lane.
            let (ab_low, ab_high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
            let (cd_low, cd_high) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
            [
                _mm512_unpacklo_epi64(ab_low, cd_low),
                _mm512_unpackhi_epi64(ab_low, cd_low),
                _mm512_unpacklo_epi64(ab_high, cd_high),
                _mm512_unpackhi_epi64(ab_high, cd_high),
            ]
        }
    }
}
