//! The fitted Q4_0 quantizer, sixteen groups at a time.
//!
//! Groups lie across the lanes, a group a lane, so no sum ever crosses lanes:
//!
//! ```text
//! 16 groups of 32 f32  --transposed-->  32 vectors, vector k = weight k of every group
//! for each of 20 places of the biggest weight: round, clamp, sum(v q), sum(q q)     -> gain, scale
//! best scale, max rule, quarter grid: scale to f16, codes, squared error as stored  -> the least wins
//! ```
//!
//! Weights are divided by the biggest of their group first (`v`), so sums neither overflow nor vanish.

use crate::Context;
use crate::simd::{Kernel, LANES, Simd};
use halfbyte_q4::{BlockQ4_0, Error, GROUP};

/// Groups a work item takes: a few microseconds of work.
const CHUNK: usize = 16 * LANES;

/// Where the tries put the biggest weight of a group, in steps; the last one is `max / 7`'s.
const PLACES: [f32; 20] = [
    -7.1, -7.2, -7.3, -7.4, -7.5, -7.6, -7.7, -7.8, -7.9, -8.0, -8.1, -8.2, -8.3, -8.4, -8.5, -8.6, -8.7,
    -8.8, -8.9, 7.0,
];

/// Below this a group's scale may be subnormal in f16, and the scalar quantizer, which knows about those, takes over.
const LEAST: f32 = 8.9 / 16_384.0;

/// Quantizes `x` to Q4_0 with fitted scales, with SIMD and on all threads: the function to use for whole tensors.
///
/// Each group of 32 gets the best of twenty scales refitted by least squares, the max rule's and the quarter grid's,
/// judged by the squared error after the scale is rounded to f16. The error is never larger than the max rule's. The bytes
/// are the same on every ISA and for any number of threads.
///
/// [`halfbyte_q4::q4_row_fit`] makes the same search in f64, on the calling thread, without this crate's SIMD. This function
/// sums in f32, since a vector holds twice as many, so the two may choose differently between scales that are almost equally
/// good: their bytes can differ there, and a group's squared error by a few millionths.
///
/// # Errors
/// As [`halfbyte_q4::q4_row_fit`]: wrong lengths, a weight that is not finite, a scale beyond f16. Nothing is written
/// then.
///
/// ```
/// use halfbyte_cpu_kernels::{Context, quantize_q4_0_fit};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = halfbyte_threadpool::ThreadPool::new(2)?;
/// let x: Vec<f32> = (0..64).map(|i| (i as f32).sin()).collect();
/// let mut blocks = [halfbyte_q4::BlockQ4_0::ZERO; 2];
/// quantize_q4_0_fit(Context::new(&pool)?, &x, &mut blocks)?;
/// assert!((blocks[1].dequantize()[0] - x[32]).abs() < 0.1);
/// # Ok(()) }
/// ```
pub fn quantize_q4_0_fit(ctx: Context<'_>, x: &[f32], out: &mut [BlockQ4_0]) -> Result<(), Error> {
    let fits =
        x.len() == out.len() * GROUP && ctx.isa.dispatch(LargestBits(x)) <= (65_504.0f32 * 7.0).to_bits();
    if !fits {
        // One of the errors, or a magnitude near them: the scalar quantizer decides which, before it writes.
        return halfbyte_q4::q4_row_fit(x, out);
    }
    ctx.pool.par_chunks_mut(out, CHUNK, |i, out| {
        ctx.isa.dispatch(Fit { x: &x[i * CHUNK * GROUP..][..out.len() * GROUP], out });
    });
    Ok(())
}

/// The bits of the largest magnitude: as integers they order like the numbers, with infinity and NaN on top.
struct LargestBits<'a>(&'a [f32]);

impl Kernel for LargestBits<'_> {
    type Output = u32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> u32 {
        let mut largest = s.splat_i32(0);
        for x in self.0.chunks_exact(LANES) {
            let magnitude = s.and(s.to_bits(s.load_slice(x)), s.splat_i32(0x7fff_ffff));
            largest = s.max_i32(largest, magnitude);
        }
        s.reduce_max_i32(largest).cast_unsigned()
    }
}

struct Fit<'a> {
    x: &'a [f32],
    out: &'a mut [BlockQ4_0],
}

impl Kernel for Fit<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut staged = [0.0; LANES * GROUP];
        for (x, out) in self.x.chunks(LANES * GROUP).zip(self.out.chunks_mut(LANES)) {
            // Lanes past the end are groups of zeros.
            let full = if x.len() == staged.len() {
                x
            } else {
                staged[..x.len()].copy_from_slice(x);
                staged[x.len()..].fill(0.0);
                &staged
            };
            sixteen(s, full, out);
        }
    }
}

/// One way to write a group: the scale as stored, codes from -8 to 7, and the squared error in units of the square of
/// the biggest weight.
#[derive(Clone, Copy)]
struct Candidate<S: Simd> {
    scale: S::F32,
    codes: [S::F32; GROUP],
    error: S::F32,
}

/// Quantizes sixteen groups and stores the first `out.len()`.
#[inline(always)]
fn sixteen<S: Simd>(s: S, x: &[f32], out: &mut [BlockQ4_0]) {
    let zero = s.splat(0.0);
    let mut v = [zero; GROUP];
    for quad in 0..GROUP / 4 {
        let span = &x[4 * quad..4 * quad + (LANES - 1) * GROUP + 4];
        // SAFETY: `span` reaches from weight 0 of the quad in group 0 to weight 3 of it in group 15.
        let words = unsafe { s.load_rows(span.as_ptr().cast(), GROUP * size_of::<f32>()) };
        for i in 0..4 {
            v[4 * quad + i] = s.from_bits(words[i]);
        }
    }
    let magnitude = s.splat_i32(0x7fff_ffff);
    let mut biggest = zero;
    let mut amax = zero;
    for &x in &v {
        let m = s.from_bits(s.and(s.to_bits(x), magnitude));
        biggest = s.select_lt(amax, m, x, biggest);
        amax = s.max(m, amax);
    }
    // Groups for the scalar quantizer count as zeros here.
    let divisor = s.select_lt(amax, s.splat(LEAST), s.splat(f32::INFINITY), biggest);
    for x in &mut v {
        *x = s.div(*x, divisor);
    }
    let chosen = choose(s, &v, biggest);

    let mut scales = [0u16; LANES];
    // SAFETY: `scales` holds 16 u16.
    unsafe { s.store_f16(scales.as_mut_ptr(), chosen.scale) };
    let mut words = [[0u32; LANES]; 4];
    for (w, words) in words.iter_mut().enumerate() {
        let mut packed = s.splat_i32(0);
        // From the top byte down: weight i in the low nibble, weight i + 16 in the high one.
        for i in (4 * w..4 * w + 4).rev() {
            let low = s.round_i32(s.add(chosen.codes[i], s.splat(8.0)));
            let high = s.round_i32(s.add(chosen.codes[i + 16], s.splat(8.0)));
            packed = s.or(s.shl::<8>(packed), s.or(low, s.shl::<4>(high)));
        }
        // SAFETY: `words` holds 16 u32.
        unsafe { s.store_u32(words.as_mut_ptr(), packed) };
    }
    let amax = s.to_array(amax);
    for (lane, block) in out.iter_mut().enumerate() {
        if amax[lane] < LEAST {
            let group = &x[lane * GROUP..][..GROUP];
            // The lengths agree and the weights are small and finite, so nothing can be refused.
            let written = halfbyte_q4::q4_row_fit(group, core::slice::from_mut(block));
            debug_assert_eq!(written, Ok(()));
            continue;
        }
        block.scale = half::f16::from_bits(scales[lane]);
        for (w, words) in words.iter().enumerate() {
            block.codes[4 * w..4 * w + 4].copy_from_slice(&words[lane].to_le_bytes());
        }
    }
}

/// The best candidate of every lane. `v` are the weights divided by `biggest`.
#[inline(always)]
fn choose<S: Simd>(s: S, v: &[S::F32; GROUP], biggest: S::F32) -> Candidate<S> {
    let (mut gain, mut step) = (s.splat(0.0), s.splat(0.0));
    for pair in PLACES.chunks_exact(2) {
        // Two tries side by side: their chains of sums need not wait for each other.
        let places = [signed_place(s, pair[0], biggest), signed_place(s, pair[1], biggest)];
        let mut vq = [s.splat(0.0); 2];
        let mut qq = vq;
        for &v in v {
            for t in 0..2 {
                let q = code(s, s.mul(v, places[t]));
                vq[t] = s.fma(v, q, vq[t]);
                qq[t] = s.fma(q, q, qq[t]);
            }
        }
        for t in 0..2 {
            // The biggest weight has a code of at least 7, so only lanes that are passed over divide by 0.
            let new_step = s.div(vq[t], qq[t]);
            let new_gain = s.mul(vq[t], new_step);
            step = s.select_lt(gain, new_gain, new_step, step);
            gain = s.max(new_gain, gain);
        }
    }
    let mut best = max_rule(s, v, biggest);
    for scale in [s.mul(step, biggest), s.mul(s.splat(0.25), biggest)] {
        let new = nearest(s, v, scale, biggest);
        // Clearly better, so that no rounding of this sum makes it worse than the max rule.
        let bar = s.mul(best.error, s.splat(1.0 - 1e-5));
        best.scale = s.select_lt(new.error, bar, new.scale, best.scale);
        for (b, &n) in best.codes.iter_mut().zip(&new.codes) {
            *b = s.select_lt(new.error, bar, n, *b);
        }
        best.error = s.select_lt(new.error, bar, new.error, best.error);
    }
    best
}

/// A place is where the biggest weight goes whatever its sign, except for `max / 7`, which keeps signs.
#[inline(always)]
fn signed_place<S: Simd>(s: S, place: f32, biggest: S::F32) -> S::F32 {
    if place > 0.0 {
        s.select_lt(biggest, s.splat(0.0), s.splat(-place), s.splat(place))
    } else {
        s.splat(place)
    }
}

/// `x` rounded to nearest even and clamped to -8..=7.
#[inline(always)]
fn code<S: Simd>(s: S, x: S::F32) -> S::F32 {
    // At 1.5 * 2^23 the spacing of f32 is 1: the addition rounds. Clamping first keeps any input in range.
    let clamped = s.min(s.splat(7.0), s.max(s.splat(-8.0), x));
    let magic = s.splat(12_582_912.0);
    s.sub(s.add(clamped, magic), magic)
}

/// The scale as f16 stores it.
#[inline(always)]
fn as_stored<S: Simd>(s: S, scale: S::F32) -> S::F32 {
    let mut half = [0u16; LANES];
    // SAFETY: `half` holds 16 u16.
    unsafe { s.store_f16(half.as_mut_ptr(), scale) };
    // SAFETY: `half` holds 16 u16.
    unsafe { s.load_f16(half.as_ptr()) }
}

/// The squared error of `codes` at a stored scale, with `relative` that scale divided by the biggest weight.
#[inline(always)]
fn error<S: Simd>(s: S, v: &[S::F32; GROUP], relative: S::F32, codes: &[S::F32; GROUP]) -> S::F32 {
    let mut sum = s.splat(0.0);
    for (&v, &q) in v.iter().zip(codes) {
        let e = s.fma(s.sub(s.splat(0.0), relative), q, v);
        sum = s.fma(e, e, sum);
    }
    sum
}

/// The nearest codes for a scale, once it is stored.
#[inline(always)]
fn nearest<S: Simd>(s: S, v: &[S::F32; GROUP], scale: S::F32, biggest: S::F32) -> Candidate<S> {
    let scale = as_stored(s, scale);
    let relative = s.div(scale, biggest);
    let inverse = s.div(s.splat(1.0), relative);
    let mut codes = *v;
    for q in &mut codes {
        *q = code(s, s.mul(*q, inverse));
    }
    Candidate { scale, codes, error: error(s, v, relative, &codes) }
}

/// What GGUF writers write: the biggest weight at -8, ties up.
#[inline(always)]
fn max_rule<S: Simd>(s: S, v: &[S::F32; GROUP], biggest: S::F32) -> Candidate<S> {
    let exact = s.mul(biggest, s.splat(-0.125));
    let scale = as_stored(s, exact);
    let mut codes = *v;
    for q in &mut codes {
        // floor(8.5 - 8 v) - 8 for v from -1 to 1, at most 7.
        let up = s.fma(*q, s.splat(-8.0), s.splat(0.5));
        let magic = s.splat(12_582_912.0);
        let near = s.sub(s.add(up, magic), magic);
        let floor = s.select_lt(up, near, s.sub(near, s.splat(1.0)), near);
        *q = s.min(s.splat(7.0), floor);
    }
    Candidate { scale, codes, error: error(s, v, s.div(scale, biggest), &codes) }
}
