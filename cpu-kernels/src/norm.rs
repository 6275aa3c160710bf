//! Root-mean-square normalisation.

use crate::Context;
use crate::error::{Error, check_len};
use crate::simd::{Kernel, LANES, Simd};

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
    if n == 0 || !x.len().is_multiple_of(n) {
        return Err(Error::Group {
            what: "elements of x, rows of the length of weight",
            cols: x.len(),
            group: n,
        });
    }
    let rows_a_chunk = (x.len() / n).div_ceil(4 * ctx.pool.threads()).max(1);
    ctx.pool.par_chunks_mut(y, rows_a_chunk * n, |i, y| {
        ctx.isa.dispatch(Normalize { x: &x[i * rows_a_chunk * n..][..y.len()], weight, eps, y });
    });
    Ok(())
}

struct Normalize<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
    y: &'a mut [f32],
}

impl Kernel for Normalize<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n = self.weight.len();
        let full = n / LANES * LANES;
        for (x, y) in self.x.chunks_exact(n).zip(self.y.chunks_exact_mut(n)) {
            let mut sum = s.splat(0.0);
            for k in (0..full).step_by(LANES) {
                let v = s.load_slice(&x[k..]);
                sum = s.fma(v, v, sum);
            }
            let tail = s.load_partial(&x[full..]);
            sum = s.fma(tail, tail, sum);
            let scale = s.splat(1.0 / (s.reduce_add(sum) / n as f32 + self.eps).sqrt());
            for k in (0..full).step_by(LANES) {
                let v = s.mul(s.load_slice(&x[k..]), scale);
                s.store_slice(&mut y[k..], s.mul(v, s.load_slice(&self.weight[k..])));
            }
            let v = s.mul(tail, scale);
            s.store_partial(&mut y[full..], s.mul(v, s.load_partial(&self.weight[full..])));
        }
    }
}
