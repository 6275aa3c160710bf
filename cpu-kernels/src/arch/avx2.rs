//! AVX2 + FMA + F16C, and the same with AVX-VNNI's dot product: two 256-bit registers a vector.
//!
//! Without VNNI a group of 4-bit codes is summed in 16 bits: a `vpmaddubsw` of codes up to 15 and activations
//! within +-127 gives at most 3,810 a pair, so the eight additions of a group of 32 stay within 30,480. Signed
//! 8-bit codes go in as magnitudes (up to 128) against activations that took over the sign: at most 32,512 a
//! pair, so nothing saturates, whatever the codes.

#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a vector is two registers: every operation comes twice"
)]

use super::avx512::Avx512Vnni;
use crate::simd::{Kernel, LANES, Simd, sealed::Sealed};
use core::arch::x86_64::*;

/// The token of AVX2 + FMA + F16C, with `VNNI` also of AVX-VNNI.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Avx2<const VNNI: bool>(());

impl Avx2<false> {
    /// The token, if the CPU has the instructions and the OS saves their registers.
    pub(crate) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c"))
        .then_some(Self(()))
    }

    /// The token for a CPU with AVX-512, whose detection asks for AVX2, FMA and F16C, too.
    #[inline(always)]
    pub(super) fn of_avx512(_: Avx512Vnni) -> Self {
        Self(())
    }
}

impl Avx2<true> {
    /// The token, if the CPU has the instructions and the OS saves their registers.
    pub(crate) fn detect() -> Option<Self> {
        (Avx2::<false>::detect().is_some() && is_x86_feature_detected!("avxvnni")).then_some(Self(()))
    }

    /// The token for the same without VNNI, which such a CPU can do, too.
    pub(crate) fn without_vnni(self) -> Avx2<false> {
        Avx2(())
    }
}

impl<const VNNI: bool> Sealed for Avx2<VNNI> {}

/// `$f` on both halves. The token in scope proves the instructions.
macro_rules! both {
    ($f:ident$(::<$n:tt>)?, $($a:expr),*) => {
        // SAFETY: `self` proves that the CPU has these instructions.
        unsafe { [$f$(::<$n>)?($($a[0]),*), $f$(::<$n>)?($($a[1]),*)] }
    };
}

/// Runs `kernel` compiled for AVX2.
///
/// # Safety
/// The CPU has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn run_avx2<S: Simd, K: Kernel>(s: S, kernel: K) -> K::Output {
    kernel.run(s)
}

/// Runs `kernel` compiled for AVX2 with AVX-VNNI.
///
/// # Safety
/// The CPU has AVX2, FMA, F16C and AVX-VNNI.
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
unsafe fn run_avxvnni<S: Simd, K: Kernel>(s: S, kernel: K) -> K::Output {
    kernel.run(s)
}

impl<const VNNI: bool> Avx2<VNNI> {
    /// The largest of eight lanes with `max`, otherwise their sum, folded 4, 2 and 1 apart.
    #[inline(always)]
    pub(super) fn fold(self, v: __m256, max: bool) -> f32 {
        // SAFETY: `self` proves that the CPU has these instructions.
        unsafe {
            let op = |a, b| if max { _mm_max_ps(a, b) } else { _mm_add_ps(a, b) };
            let v4 = op(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v2 = op(v4, _mm_movehl_ps(v4, v4));
            _mm_cvtss_f32(op(v2, _mm_shuffle_ps::<1>(v2, v2)))
        }
    }

    /// Four rows at `p` and the four rows four further on: 16 bytes each, as one register a pair.
    ///
    /// # Safety
    /// 16 bytes are readable at `p` and at `p + 4 * stride`.
    #[inline(always)]
    unsafe fn row_pair(self, p: *const u8, stride: usize) -> __m256i {
        // SAFETY: the caller's promise, and `self` proves the instructions.
        unsafe {
            let low = _mm_loadu_si128(p.cast());
            let high = _mm_loadu_si128(p.add(4 * stride).cast());
            _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high)
        }
    }
}

impl<const VNNI: bool> Simd for Avx2<VNNI> {
    type F32 = [__m256; 2];
    type I32 = [__m256i; 2];
    // i16 pairs without VNNI, i32 sums with it.
    type Dot4 = [__m256i; 2];
    // Codes and magnitudes; with VNNI the codes plus 128.
    type Codes8 = [[__m256i; 2]; 2];

    // More than fits: the f32 sums go to memory and back once a group, and the codes are taken apart less often.
    const INT_TILE: usize = 4;
    const ROLL_LINES: bool = !VNNI;
    const FLOAT_TILE: usize = 6;
    const DOT8_START: i32 = if VNNI { -128 } else { 0 };

    #[inline(always)]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        if VNNI {
            // SAFETY: this token was made by `detect`, which saw the features.
            unsafe { run_avxvnni(self, kernel) }
        } else {
            // SAFETY: this token was made by `detect`, which saw the features.
            unsafe { run_avx2(self, kernel) }
        }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F32 {
        // SAFETY: `self` proves the instructions.
        let v = unsafe { _mm256_set1_ps(x) };
        [v; 2]
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> Self::F32 {
        // SAFETY: 16 f32 are readable by the caller's promise.
        unsafe { [_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))] }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: Self::F32) {
        // SAFETY: 16 f32 are writable by the caller's promise.
        unsafe {
            _mm256_storeu_ps(p, v[0]);
            _mm256_storeu_ps(p.add(8), v[1]);
        }
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> Self::F32 {
        // SAFETY: 16 u16 are readable by the caller's promise.
        let h = unsafe { [_mm_loadu_si128(p.cast()), _mm_loadu_si128(p.add(8).cast())] };
        both!(_mm256_cvtph_ps, h)
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: Self::F32) {
        let h = both!(_mm256_cvtps_ph::<0>, v);
        // SAFETY: 16 u16 are writable by the caller's promise.
        unsafe {
            _mm_storeu_si128(p.cast(), h[0]);
            _mm_storeu_si128(p.add(8).cast(), h[1]);
        }
    }

    lanewise! { both;
        add(a: F32, b: F32) -> F32 = _mm256_add_ps;
        sub(a: F32, b: F32) -> F32 = _mm256_sub_ps;
        mul(a: F32, b: F32) -> F32 = _mm256_mul_ps;
        div(a: F32, b: F32) -> F32 = _mm256_div_ps;
        fma(a: F32, b: F32, c: F32) -> F32 = _mm256_fmadd_ps;
        max(a: F32, b: F32) -> F32 = _mm256_max_ps;
        min(a: F32, b: F32) -> F32 = _mm256_min_ps;
        to_bits(v: F32) -> I32 = _mm256_castps_si256;
        from_bits(v: I32) -> F32 = _mm256_castsi256_ps;
        round_i32(v: F32) -> I32 = _mm256_cvtps_epi32;
        from_i32(v: I32) -> F32 = _mm256_cvtepi32_ps;
        add_i32(a: I32, b: I32) -> I32 = _mm256_add_epi32;
        max_i32(a: I32, b: I32) -> I32 = _mm256_max_epi32;
        and(a: I32, b: I32) -> I32 = _mm256_and_si256;
        or(a: I32, b: I32) -> I32 = _mm256_or_si256;
    }
    #[inline(always)]
    fn select_lt(self, a: Self::F32, b: Self::F32, yes: Self::F32, no: Self::F32) -> Self::F32 {
        let mask = both!(_mm256_cmp_ps::<_CMP_LT_OQ>, a, b);
        both!(_mm256_blendv_ps, no, yes, mask)
    }
    #[inline(always)]
    fn reduce_add(self, v: Self::F32) -> f32 {
        // SAFETY: `self` proves the instructions.
        let half = unsafe { _mm256_add_ps(v[0], v[1]) };
        self.fold(half, false)
    }
    #[inline(always)]
    fn reduce_max(self, v: Self::F32) -> f32 {
        // SAFETY: `self` proves the instructions.
        let half = unsafe { _mm256_max_ps(v[0], v[1]) };
        self.fold(half, true)
    }
    #[inline(always)]
    fn reduce_add_each(self, v: [Self::F32; LANES]) -> Self::F32 {
        let mut out = v[0];
        for (half, sums) in out.iter_mut().enumerate() {
            let v = &v[8 * half..][..8];
            // Each round adds what `reduce_add` adds, for two vectors at once, and packs their sums into one.
            let mut quads = [v[0][0]; 4];
            for (i, quad) in quads.iter_mut().enumerate() {
                // SAFETY: `self` proves the instructions.
                *quad = unsafe {
                    let (a, b) = (_mm256_add_ps(v[i][0], v[i][1]), _mm256_add_ps(v[4 + i][0], v[4 + i][1]));
                    _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b))
                };
            }
            let mut pairs = [v[0][0]; 2];
            for (i, pair) in pairs.iter_mut().enumerate() {
                // SAFETY: `self` proves the instructions.
                *pair = unsafe {
                    let (a, b) = (_mm256_castps_pd(quads[2 * i]), _mm256_castps_pd(quads[2 * i + 1]));
                    let (low, high) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
                    _mm256_add_ps(_mm256_castpd_ps(low), _mm256_castpd_ps(high))
                };
            }
            let [a, b] = pairs;
            // SAFETY: `self` proves the instructions.
            *sums =
                unsafe { _mm256_add_ps(_mm256_shuffle_ps::<0x88>(a, b), _mm256_shuffle_ps::<0xdd>(a, b)) };
        }
        out
    }

    #[inline(always)]
    fn splat_i32(self, x: i32) -> Self::I32 {
        // SAFETY: `self` proves the instructions.
        let v = unsafe { _mm256_set1_epi32(x) };
        [v; 2]
    }
    #[inline(always)]
    unsafe fn load_u32(self, p: *const u32) -> Self::I32 {
        // SAFETY: 16 u32 are readable by the caller's promise.
        unsafe { [_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(8).cast())] }
    }
    #[inline(always)]
    unsafe fn store_u32(self, p: *mut u32, v: Self::I32) {
        // SAFETY: 16 u32 are writable by the caller's promise.
        unsafe {
            _mm256_storeu_si256(p.cast(), v[0]);
            _mm256_storeu_si256(p.add(8).cast(), v[1]);
        }
    }
    #[inline(always)]
    unsafe fn load_u16(self, p: *const u16) -> Self::I32 {
        // SAFETY: 16 u16 are readable by the caller's promise.
        let h = unsafe { [_mm_loadu_si128(p.cast()), _mm_loadu_si128(p.add(8).cast())] };
        both!(_mm256_cvtepu16_epi32, h)
    }
    #[inline(always)]
    unsafe fn store_u16(self, p: *mut u16, v: Self::I32) {
        let v = self.and(v, self.splat_i32(0xffff));
        // SAFETY: `self` proves the instructions; 16 u16 are writable by the caller's promise.
        unsafe {
            // Four lanes of one register, four of the other, and so on: put back in order by the permutation.
            let mixed = _mm256_packus_epi32(v[0], v[1]);
            _mm256_storeu_si256(p.cast(), _mm256_permute4x64_epi64::<0b11_01_10_00>(mixed));
        }
    }
    #[inline(always)]
    unsafe fn load_u8(self, p: *const u8) -> Self::I32 {
        // SAFETY: 16 bytes are readable by the caller's promise.
        let b = unsafe { [_mm_loadl_epi64(p.cast()), _mm_loadl_epi64(p.add(8).cast())] };
        both!(_mm256_cvtepu8_epi32, b)
    }
    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> Self::I32 {
        // SAFETY: 16 bytes are readable by the caller's promise.
        let b = unsafe { [_mm_loadl_epi64(p.cast()), _mm_loadl_epi64(p.add(8).cast())] };
        both!(_mm256_cvtepi8_epi32, b)
    }
    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8, v: Self::I32) {
        // SAFETY: `self` proves the instructions; 16 bytes are writable by the caller's promise.
        unsafe {
            // The low bytes of each 128-bit lane gathered into its first word, then the four words together.
            let pick = _mm256_set1_epi64x(0x0c08_0400);
            let low = _mm256_shuffle_epi8(v[0], pick);
            let high = _mm256_shuffle_epi8(v[1], pick);
            let words = _mm256_unpacklo_epi32(low, high);
            let a = _mm256_castsi256_si128(words);
            let b = _mm256_extracti128_si256::<1>(words);
            // a = [v0 lanes 0-3, v1 lanes 0-3, ..], b = [v0 lanes 4-7, v1 lanes 4-7, ..]
            _mm_storeu_si128(p.cast(), _mm_unpacklo_epi32(a, b));
        }
    }
    #[inline(always)]
    fn reduce_max_i32(self, v: Self::I32) -> i32 {
        // SAFETY: `self` proves the instructions.
        unsafe {
            let v8 = _mm256_max_epi32(v[0], v[1]);
            let v4 = _mm_max_epi32(_mm256_castsi256_si128(v8), _mm256_extracti128_si256::<1>(v8));
            let v2 = _mm_max_epi32(v4, _mm_unpackhi_epi64(v4, v4));
            _mm_cvtsi128_si32(_mm_max_epi32(v2, _mm_shuffle_epi32::<1>(v2)))
        }
    }
    #[inline(always)]
    fn shl<const N: u32>(self, a: Self::I32) -> Self::I32 {
        // SAFETY: `self` proves the instructions.
        let n = unsafe { _mm_cvtsi32_si128(N.cast_signed()) };
        let n = [n; 2];
        both!(_mm256_sll_epi32, a, n)
    }
    #[inline(always)]
    fn shr<const N: u32>(self, a: Self::I32) -> Self::I32 {
        // SAFETY: `self` proves the instructions.
        let n = unsafe { _mm_cvtsi32_si128(N.cast_signed()) };
        let n = [n; 2];
        both!(_mm256_srl_epi32, a, n)
    }
    #[inline(always)]
    fn reduce_add_i32(self, v: Self::I32) -> i32 {
        // SAFETY: `self` proves the instructions.
        unsafe {
            let v8 = _mm256_add_epi32(v[0], v[1]);
            let v4 = _mm_add_epi32(_mm256_castsi256_si128(v8), _mm256_extracti128_si256::<1>(v8));
            let v2 = _mm_add_epi32(v4, _mm_unpackhi_epi64(v4, v4));
            _mm_cvtsi128_si32(_mm_add_epi32(v2, _mm_shuffle_epi32::<1>(v2)))
        }
    }

    #[inline(always)]
    fn dot4_start(self, init: i32) -> Self::Dot4 {
        self.splat_i32(if VNNI { init } else { 0 })
    }
    #[inline(always)]
    fn dot4(self, acc: Self::Dot4, codes: Self::I32, x: i32) -> Self::Dot4 {
        let x = self.splat_i32(x);
        if VNNI {
            both!(_mm256_dpbusd_avx_epi32, acc, codes, x)
        } else {
            let pairs = both!(_mm256_maddubs_epi16, codes, x);
            both!(_mm256_add_epi16, acc, pairs)
        }
    }
    #[inline(always)]
    fn dot4_finish(self, acc: Self::Dot4, init: i32) -> Self::I32 {
        if VNNI {
            acc
        } else {
            // SAFETY: `self` proves the instructions.
            let ones = [unsafe { _mm256_set1_epi16(1) }; 2];
            let sums = both!(_mm256_madd_epi16, acc, ones);
            self.add_i32(sums, self.splat_i32(init))
        }
    }

    #[inline(always)]
    fn prepare8(self, codes: Self::I32) -> Self::Codes8 {
        if VNNI {
            let flip = self.splat_i32(0x8080_8080_u32.cast_signed());
            [both!(_mm256_xor_si256, codes, flip), codes]
        } else {
            [codes, both!(_mm256_abs_epi8, codes)]
        }
    }
    #[inline(always)]
    fn dot8(self, acc: Self::I32, codes: Self::Codes8, x: i32) -> Self::I32 {
        let x = self.splat_i32(x);
        if VNNI {
            return both!(_mm256_dpbusd_avx_epi32, acc, codes[0], x);
        }
        let signed = both!(_mm256_sign_epi8, x, codes[0]);
        let pairs = both!(_mm256_maddubs_epi16, codes[1], signed);
        // SAFETY: `self` proves the instructions.
        let ones = [unsafe { _mm256_set1_epi16(1) }; 2];
        self.add_i32(acc, both!(_mm256_madd_epi16, pairs, ones))
    }

    #[inline(always)]
    fn prefetch(self, p: *const u8) {
        super::prefetch(p);
    }
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "`half` is a distance between rows as well")]
    unsafe fn load_rows(self, p: *const u8, stride: usize) -> [Self::I32; 4] {
        let mut out = [[self.splat_i32(0)[0]; 2]; 4];
        for half in 0..2 {
            // SAFETY: rows 0 to 15 are readable by the caller's promise, and `self` proves the instructions.
            unsafe {
                let p = p.add(8 * half * stride);
                let a = self.row_pair(p, stride);
                let b = self.row_pair(p.add(stride), stride);
                let c = self.row_pair(p.add(2 * stride), stride);
                let d = self.row_pair(p.add(3 * stride), stride);
                // A 4 x 4 transposition of words inside each 128-bit lane.
                let (ab_low, ab_high) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
                let (cd_low, cd_high) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
                out[0][half] = _mm256_unpacklo_epi64(ab_low, cd_low);
                out[1][half] = _mm256_unpackhi_epi64(ab_low, cd_low);
                out[2][half] = _mm256_unpacklo_epi64(ab_high, cd_high);
                out[3][half] = _mm256_unpackhi_epi64(ab_high, cd_high);
            }
        }
        out
    }
}
