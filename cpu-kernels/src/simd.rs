//! The SIMD layer: sixteen lanes, the same bits on every ISA.
//!
//! A kernel is written once, generic over [`Simd`], whose implementations hold only primitives. Every
//! implementation works on sixteen lanes, however many registers that takes (one on AVX-512, two on AVX2, four
//! on NEON), and rounds every operation as IEEE 754 says: `fma` is a fused multiply-add everywhere, reductions
//! fold lanes `i` and `i + 8`, then `+ 4`, `+ 2`, `+ 1`. So a kernel returns the same bits on every path, and the
//! scalar path is its executable specification.
//!
//! A token (a value of a type that implements [`Simd`]) is made only by run-time detection: holding one is the
//! proof that its instructions may be executed, which is what makes the register-only methods safe.
//!
//! ```text
//!   Isa::best() -> Isa --dispatch(kernel)--> token.vectorize(kernel)   // #[target_feature] boundary
//!                                             '--> kernel.run(token)   // inlined, uses token.fma(..), ...
//! ```

/// Lanes of every vector of this layer.
pub const LANES: usize = 16;

/// A computation that can run on any [`Simd`] token.
///
/// `run` should be `#[inline(always)]`, and so should all it calls with the token: only code that is inlined
/// into [`Simd::vectorize`] is compiled with the token's instructions.
pub trait Kernel {
    /// What the computation returns.
    type Output;
    /// Whether it takes dot products of integers ([`Simd::dot4`], [`Simd::dot8`]), or depends on how they are taken. The
    /// others need not be compiled for a path that adds only those to another's instructions.
    const INTEGER_DOTS: bool = true;
    /// Runs the computation with `s`.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

pub(crate) mod sealed {
    /// Only this crate's detection makes tokens, so only this crate implements [`super::Simd`].
    pub trait Sealed {}
}

/// Sixteen-lane primitives of one instruction set.
///
/// Lane-wise operations treat lane `i` of the result as a function of lanes `i` of the arguments. `F32` holds
/// f32 lanes and `I32` 32-bit integer lanes, which some methods read as four bytes each.
#[allow(clippy::wrong_self_convention, reason = "`self` is the token, not what is converted")]
pub trait Simd: sealed::Sealed + Copy + Send + Sync + core::fmt::Debug + 'static {
    /// Sixteen f32.
    type F32: Copy + core::fmt::Debug;
    /// Sixteen i32, or sixty-four bytes.
    type I32: Copy + core::fmt::Debug;
    /// The running dot products of one group of up to 32 unsigned 4-bit codes a lane.
    type Dot4: Copy + core::fmt::Debug;
    /// 4 x 16 signed 8-bit weight codes, prepared for [`Simd::dot8`].
    type Codes8: Copy + core::fmt::Debug;

    /// Activation rows of an integer GEMM tile.
    const INT_TILE: usize;
    /// Whether the loop over a group's lines of codes stays a loop. Unrolled, with few registers, the compiler moves
    /// loads and sums far apart, and most of them go through the stack.
    const ROLL_LINES: bool = false;
    /// Activation rows that a float GEMM tile multiplies a panel of sixteen weight rows by: a vector of sums each.
    const FLOAT_TILE: usize;
    /// Panels of such rows, 1 or 2, that half a tile's tokens are multiplied by at once, so that each serves two.
    const FLOAT_PANELS: usize = 1;
    /// Strips of sixteen rows of a recurrent state, 1 or 2, that are swept at once: as many as registers hold the sums of.
    const DELTA_STRIPS: usize = 1;
    /// A group's dot products of 8-bit codes start at this times the sum of the activation codes: an instruction
    /// that takes unsigned codes takes their offset off there.
    const DOT8_START: i32;

    /// Runs `kernel` compiled with this token's instructions.
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output;

    /// All lanes `x`.
    fn splat(self, x: f32) -> Self::F32;
    /// Loads 16 f32.
    ///
    /// # Safety
    /// `p` is valid for reading 16 f32 (any alignment).
    unsafe fn load(self, p: *const f32) -> Self::F32;
    /// Stores 16 f32.
    ///
    /// # Safety
    /// `p` is valid for writing 16 f32 (any alignment).
    unsafe fn store(self, p: *mut f32, v: Self::F32);
    /// Loads 16 IEEE half-precision numbers, widened exactly.
    ///
    /// # Safety
    /// `p` is valid for reading 16 u16 (any alignment).
    unsafe fn load_f16(self, p: *const u16) -> Self::F32;
    /// Stores 16 numbers as half precision, rounded to nearest even.
    ///
    /// # Safety
    /// `p` is valid for writing 16 u16 (any alignment).
    unsafe fn store_f16(self, p: *mut u16, v: Self::F32);
    /// Loads 16 bfloat16 numbers, widened exactly.
    ///
    /// # Safety
    /// `p` is valid for reading 16 u16 (any alignment).
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> Self::F32 {
        // SAFETY: the caller's promise is the callee's.
        let wide = unsafe { self.load_u16(p) };
        self.from_bits(self.shl::<16>(wide))
    }

    /// `a + b`.
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a - b`.
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a * b`.
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a / b`.
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;
    /// `if a > b { a } else { b }`: `b` where either is NaN.
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `if a < b { a } else { b }`: `b` where either is NaN.
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `if a < b { yes } else { no }`.
    fn select_lt(self, a: Self::F32, b: Self::F32, yes: Self::F32, no: Self::F32) -> Self::F32;
    /// The sixteen lanes.
    #[inline(always)]
    fn to_array(self, v: Self::F32) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        self.store_slice(&mut out, v);
        out
    }
    /// The sum of the lanes: `i + (i + 8)`, then 4, 2 and 1 apart.
    fn reduce_add(self, v: Self::F32) -> f32;
    /// The largest lane by [`Simd::max`], folded as [`Simd::reduce_add`] folds.
    fn reduce_max(self, v: Self::F32) -> f32;
    /// Lane `i` is [`Simd::reduce_add`] of `v[i]`, to the bit. The sixteen sums cost about as much as four separate ones.
    #[inline(always)]
    fn reduce_add_each(self, v: [Self::F32; LANES]) -> Self::F32 {
        let mut sums = [0.0; LANES];
        for (sum, v) in sums.iter_mut().zip(v) {
            *sum = self.reduce_add(v);
        }
        self.load_slice(&sums)
    }

    /// The bits of the lanes.
    fn to_bits(self, v: Self::F32) -> Self::I32;
    /// The lanes with these bits.
    fn from_bits(self, v: Self::I32) -> Self::F32;
    /// The nearest integers, ties to even. Lanes outside i32 or NaN give an unspecified integer.
    fn round_i32(self, v: Self::F32) -> Self::I32;
    /// The lanes as f32, rounded to nearest even.
    fn from_i32(self, v: Self::I32) -> Self::F32;

    /// All lanes `x`.
    fn splat_i32(self, x: i32) -> Self::I32;
    /// Loads 16 u32 as they are.
    ///
    /// # Safety
    /// `p` is valid for reading 16 u32 (any alignment).
    unsafe fn load_u32(self, p: *const u32) -> Self::I32;
    /// Stores 16 u32 as they are.
    ///
    /// # Safety
    /// `p` is valid for writing 16 u32 (any alignment).
    unsafe fn store_u32(self, p: *mut u32, v: Self::I32);
    /// Loads 16 u16, zero-extended.
    ///
    /// # Safety
    /// `p` is valid for reading 16 u16 (any alignment).
    unsafe fn load_u16(self, p: *const u16) -> Self::I32;
    /// Stores the low 16 bits of the lanes.
    ///
    /// # Safety
    /// `p` is valid for writing 16 u16 (any alignment).
    unsafe fn store_u16(self, p: *mut u16, v: Self::I32);
    /// Loads 16 u8, zero-extended.
    ///
    /// # Safety
    /// `p` is valid for reading 16 bytes.
    unsafe fn load_u8(self, p: *const u8) -> Self::I32;
    /// Loads 16 i8, sign-extended.
    ///
    /// # Safety
    /// `p` is valid for reading 16 bytes.
    unsafe fn load_i8(self, p: *const i8) -> Self::I32;
    /// Stores the low bytes of the lanes.
    ///
    /// # Safety
    /// `p` is valid for writing 16 bytes.
    unsafe fn store_i8(self, p: *mut i8, v: Self::I32);
    /// `a + b`, wrapping.
    fn add_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// The larger, as signed integers.
    fn max_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// The largest lane, as a signed integer.
    fn reduce_max_i32(self, v: Self::I32) -> i32;
    /// Bitwise and.
    fn and(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// Bitwise or.
    fn or(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// Shift left by a constant.
    fn shl<const N: u32>(self, a: Self::I32) -> Self::I32;
    /// Logical shift right by a constant.
    fn shr<const N: u32>(self, a: Self::I32) -> Self::I32;
    /// The sum of the lanes, wrapping.
    fn reduce_add_i32(self, v: Self::I32) -> i32;

    /// Starts a group's dot products of 4-bit codes at `init` (see [`Simd::dot4_finish`]).
    fn dot4_start(self, init: i32) -> Self::Dot4;
    /// Adds four products a lane: the bytes of `codes`, each 0 to 15, by the four i8 in `x`, none of them -128.
    /// At most eight calls (one group of 32) between start and finish.
    fn dot4(self, acc: Self::Dot4, codes: Self::I32, x: i32) -> Self::Dot4;
    /// The exact dot products plus `init`, which must be the value that was given to [`Simd::dot4_start`].
    fn dot4_finish(self, acc: Self::Dot4, init: i32) -> Self::I32;

    /// Prepares 64 signed 8-bit codes, any of the 256 values.
    fn prepare8(self, codes: Self::I32) -> Self::Codes8;
    /// Adds four products a lane: signed codes by the four i8 in `x`, none of them -128. Exact, in a sum that was
    /// started as [`Simd::DOT8_START`] says.
    fn dot8(self, acc: Self::I32, codes: Self::Codes8, x: i32) -> Self::I32;

    /// Reads 16 bytes at `p + r * stride` for every lane `r`, transposed: vector `j` holds in lane `r` the bytes
    /// `4 j .. 4 j + 4` of row `r`.
    ///
    /// # Safety
    /// For every `r` below 16, `p + r * stride` is valid for reading 16 bytes.
    unsafe fn load_rows(self, p: *const u8, stride: usize) -> [Self::I32; 4];
    /// Prefetches the cache line at `p` into the second-level cache, since the first-level one allows too few outstanding
    /// requests to keep memory busy. Any address is allowed.
    #[inline(always)]
    fn prefetch(self, _p: *const u8) {}

    /// Loads the first 16 of `x`.
    ///
    /// # Panics
    /// If `x` has fewer than 16 elements.
    #[inline(always)]
    fn load_slice(self, x: &[f32]) -> Self::F32 {
        let x = &x[..LANES];
        // SAFETY: `x` has 16 elements.
        unsafe { self.load(x.as_ptr()) }
    }
    /// Stores into the first 16 of `y`.
    ///
    /// # Panics
    /// If `y` has fewer than 16 elements.
    #[inline(always)]
    fn store_slice(self, y: &mut [f32], v: Self::F32) {
        let y = &mut y[..LANES];
        // SAFETY: `y` has 16 elements.
        unsafe { self.store(y.as_mut_ptr(), v) }
    }
    /// Loads up to 16 elements, the missing ones 0.
    #[inline(always)]
    fn load_partial(self, x: &[f32]) -> Self::F32 {
        let mut full = [0.0; LANES];
        let n = x.len().min(LANES);
        full[..n].copy_from_slice(&x[..n]);
        self.load_slice(&full)
    }
    /// [`Simd::store_slice`] where there is room for all lanes, else [`Simd::store_partial`].
    #[inline(always)]
    fn store_up_to(self, y: &mut [f32], v: Self::F32) {
        if y.len() >= LANES {
            self.store_slice(y, v);
        } else {
            self.store_partial(y, v);
        }
    }
    /// Stores the first `y.len()` lanes, 16 at most.
    #[inline(always)]
    fn store_partial(self, y: &mut [f32], v: Self::F32) {
        let n = y.len().min(LANES);
        y[..n].copy_from_slice(&self.to_array(v)[..n]);
    }
}

/// `exp(x)` within 2 units in the last place on [-87.3, 88.7]; 0 below (and for -inf), exp(88.7) above, NaN for NaN.
///
/// `2^n * p(r)` with `n = round(x / ln 2)`, `|r| <= ln 2 / 2` reduced in two fma steps (Cody and Waite), and the
/// degree-6 Taylor-like minimax polynomial of Cephes' `expf`.
#[inline(always)]
#[allow(clippy::excessive_precision, reason = "the published constants, digit for digit")]
pub fn exp<S: Simd>(s: S, x: S::F32) -> S::F32 {
    const LOW: f32 = -87.3;
    let clamped = s.min(s.splat(88.7), s.max(s.splat(LOW), x));
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
    let magic = s.splat(12_582_912.0);
    let shifted = s.fma(clamped, s.splat(core::f32::consts::LOG2_E), magic);
    let n = s.sub(shifted, magic);
    let r = s.fma(n, s.splat(-0.693_359_375), clamped);
    let r = s.fma(n, s.splat(2.121_944_4e-4), r);
    let mut p = s.splat(1.987_569_1e-4);
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5.000_000_1e-1] {
        p = s.fma(p, r, s.splat(c));
    }
    let r2 = s.mul(r, r);
    let p = s.add(s.fma(p, r2, r), s.splat(1.0));
    let scaled = s.from_bits(s.add_i32(s.to_bits(p), s.shl::<23>(s.to_bits(shifted))));
    // `clamped - clamped` is NaN exactly where `x` is, whatever the bits of that NaN did to the exponent.
    let scaled = s.add(scaled, s.sub(clamped, clamped));
    s.select_lt(x, s.splat(LOW), s.splat(0.0), scaled)
}

/// `tanh(x)` within 4 units in the last place, -1 and 1 for infinities, NaN for NaN.
///
/// Below 0.625 the odd polynomial of Cephes' `tanhf`, above `1 - 2 / (exp(2 |x|) + 1)`.
#[inline(always)]
#[allow(clippy::excessive_precision, reason = "the published constants, digit for digit")]
pub fn tanh<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let bits = s.to_bits(x);
    let size = s.from_bits(s.and(bits, s.splat_i32(0x7fff_ffff)));
    let sign = s.and(bits, s.splat_i32(i32::MIN));
    let square = s.mul(x, x);
    let mut p = s.splat(-5.704_988_727_45e-3);
    for c in [2.063_908_879_54e-2, -5.373_971_555_31e-2, 1.333_144_220_36e-1, -3.333_328_194_22e-1] {
        p = s.fma(p, square, s.splat(c));
    }
    let small = s.fma(s.mul(p, square), x, x);
    let one = s.splat(1.0);
    let e = exp(s, s.add(size, size));
    let large = s.sub(one, s.div(s.splat(2.0), s.add(e, one)));
    let large = s.from_bits(s.or(s.to_bits(large), sign));
    s.select_lt(size, s.splat(0.625), small, large)
}
