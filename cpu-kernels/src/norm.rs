//! Root-mean-square normalisation.

use crate::Context;
use crate::error::{Error, check_len};
use crate::quantize::{abs, by_rows, limit, resize, set};
use crate::simd::{Kernel, LANES, Simd};
use halfbyte_q8::{Activations, GROUP, Part, Precision};

/// `y[r] = x[r] / sqrt(mean(x[r]^2) + eps) * weight` for every row of `x`.
///
/// `x` and `y` are rows x `weight.len()`, row-major.
///
/// Numerics: the squares are summed in sixteen f32 lanes by fma; the result is `(x * r) * weight` with
/// `r = 1 / sqrt(mean + eps)`, one rounding an operation, within `(n / 32 + 8) * 2^-24` of the exact value,
/// relatively, for rows of `n`. A row's bits depend on that row alone.
///
/// NaN makes its whole row NaN. Where the sum of the squares is infinite (an infinite element, or magnitudes from
/// about `1.8e19 / sqrt(n)` on) `r` is 0: infinite elements become NaN and the rest of the row 0.
///
/// # Errors
/// [`Error::Group`] if `x` is no whole number of rows or `weight` is empty, [`Error::Length`] if `y` differs in
/// length from `x`. Nothing is written then.
///
/// ```
/// use halfbyte_cpu_kernels::{Context, rms_norm};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = halfbyte_threadpool::ThreadPool::new(1)?;
/// let mut y = [0.0; 2];
/// rms_norm(Context::new(&pool)?, &[3.0, 4.0], &[1.0, 2.0], 0.0, &mut y)?;
/// assert!((y[0] - 3.0 / 12.5f32.sqrt()).abs() < 1e-6 && (y[1] - 8.0 / 12.5f32.sqrt()).abs() < 1e-6);
/// # Ok(()) }
/// ```
pub fn rms_norm(ctx: Context<'_>, x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) -> Result<(), Error> {
    let n = weight.len();
    check_len("y", x.len(), y.len())?;
    let rows_a_chunk = count_rows(x, n)?.div_ceil(4 * ctx.pool.threads()).max(1);
    ctx.pool.par_chunks_mut(y, rows_a_chunk * n, |i, y| {
        ctx.isa.dispatch(Normalize { x: &x[i * rows_a_chunk * n..][..y.len()], weight, eps, y });
    });
    Ok(())
}

/// [`rms_norm`] and [`crate::quantize_activations`] of its result in one pass, with the same bits: `out` takes the shape
/// rows x `weight.len()`.
///
/// # Errors
/// [`Error::Group`] if `x` is no whole number of rows, or `weight` is empty or no multiple of 32 long. `out` is as it was
/// then.
pub fn rms_norm_quantize(
    ctx: Context<'_>,
    x: &[f32],
    weight: &[f32],
    eps: f32,
    out: &mut Activations,
) -> Result<(), Error> {
    let n = weight.len();
    let rows = count_rows(x, n)?;
    resize(out, rows, n)?;
    let precision = out.precision();
    by_rows(ctx, out, rows.div_ceil(4 * ctx.pool.threads()), |first, part| {
        let x = &x[first * GROUP..][..part.groups() * GROUP];
        ctx.isa.dispatch(NormalizeQuantize { x, weight, eps, precision, part });
    });
    Ok(())
}

/// Rows of `n` in `x`.
fn count_rows(x: &[f32], n: usize) -> Result<usize, Error> {
    if n == 0 || !x.len().is_multiple_of(n) {
        let what = "elements of x, rows of the length of weight";
        return Err(Error::Group { what, cols: x.len(), group: n });
    }
    Ok(x.len() / n)
}

/// What a row of [`rms_norm`] is multiplied by.
#[inline(always)]
pub(crate) fn inverse<S: Simd>(s: S, x: &[f32], eps: f32) -> S::F32 {
    s.splat(1.0 / (sum_of_squares(s, x) / x.len() as f32 + eps).sqrt())
}

/// The sum of the squares of a row, in sixteen lanes.
#[inline(always)]
pub(crate) fn sum_of_squares<S: Simd>(s: S, x: &[f32]) -> f32 {
    let (vectors, tail) = x.as_chunks::<LANES>();
    let mut sum = s.splat(0.0);
    for v in vectors {
        let v = s.load_slice(v);
        sum = s.fma(v, v, sum);
    }
    let tail = s.load_partial(tail);
    sum = s.fma(tail, tail, sum);
    s.reduce_add(sum)
}

struct Normalize<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
    y: &'a mut [f32],
}

impl Kernel for Normalize<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n = self.weight.len();
        let full = n / LANES * LANES;
        for (x, y) in self.x.chunks_exact(n).zip(self.y.chunks_exact_mut(n)) {
            let inverse = inverse(s, x, self.eps);
            for k in (0..full).step_by(LANES) {
                let v = s.mul(s.load_slice(&x[k..]), inverse);
                s.store_slice(&mut y[k..], s.mul(v, s.load_slice(&self.weight[k..])));
            }
            let v = s.mul(s.load_partial(&x[full..]), inverse);
            s.store_partial(&mut y[full..], s.mul(v, s.load_partial(&self.weight[full..])));
        }
    }
}

/// Whole rows, which are whole groups.
struct NormalizeQuantize<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
    precision: Precision,
    part: Part<'a>,
}

impl Kernel for NormalizeQuantize<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let n = self.weight.len();
        for (r, x) in self.x.chunks_exact(n).enumerate() {
            let inverse = inverse(s, x, self.eps);
            let mut sum = s.splat(0.0);
            if self.precision == Precision::Auto {
                for (x, weight) in x.chunks_exact(LANES).zip(self.weight.chunks_exact(LANES)) {
                    sum = s.add(sum, abs(s, normalized(s, x, weight, inverse)));
                }
            }
            let limit = limit(s, self.precision, sum, n);
            for (g, (x, weight)) in x.chunks_exact(GROUP).zip(self.weight.chunks_exact(GROUP)).enumerate() {
                let first = normalized(s, x, weight, inverse);
                let second = normalized(s, &x[LANES..], &weight[LANES..], inverse);
                set(s, &mut self.part, r * n / GROUP + g, [first, second], limit);
            }
        }
    }
}

/// The first sixteen numbers of a row, normalised.
#[inline(always)]
fn normalized<S: Simd>(s: S, x: &[f32], weight: &[f32], inverse: S::F32) -> S::F32 {
    s.mul(s.mul(s.load_slice(x), inverse), s.load_slice(weight))
}
