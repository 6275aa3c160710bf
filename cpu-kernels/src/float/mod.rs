//! Weights of any format against f32 activations.
//!
//! Rows that are not f32 are decoded to f32 first, by the format's own formula, into the thread's scratch memory;
//! from there on there is one algorithm. Along the inputs sixteen running sums (lane `i` takes inputs `i`,
//! `i + 16`, ...) are added by fma and folded once at the end, `i + (i + 8)`, then 4, 2 and 1 apart. This order is
//! the same for every ISA, thread count, batch and tile, and so are the bits.

mod decode;
mod tile;

pub(crate) use decode::DecodeRows;

use crate::Context;
use crate::error::{Error, check_len};
use crate::matrix::{Matrix, Weights};
use crate::output::Output;
use crate::scratch::{Purpose, with_lines};
use crate::simd::{Kernel, LANES, Simd};
use tile::{Product, Weight};

/// `y = W x` for one f32 vector: the decode step.
///
/// Exactly [`gemm_f32`] with one row, with the same bits.
///
/// # Errors
/// As [`gemm_f32`].
pub fn matvec_f32(ctx: Context<'_>, w: &Matrix<'_>, x: &[f32], y: &mut [f32]) -> Result<(), Error> {
    gemm_f32(ctx, w, x, 1, y)
}

/// `y[t] = W x[t]` for `tokens` rows of f32 activations.
///
/// `w` is `rows` x `cols`, `x` is `tokens` x `cols`, `y` is `tokens` x `rows`, row-major. Every weight type is
/// supported.
///
/// Numerics: weights are decoded exactly as their format says (one rounding for formats with a minimum, none for
/// the others); sums run in sixteen f32 lanes by fma, so the error is at most `(ceil(cols / 16) + 5) * 2^-24` times
/// the sum of the products' magnitudes, to first order and barring underflow. NaN in `x` makes that token's outputs
/// NaN. A row's bits depend on its weights and its activations alone. With no columns every output is 0.
///
/// # Errors
/// [`Error::Length`] if `x` is not `tokens` x `cols` or `y` not `tokens` x `rows` long. Nothing is written then.
///
/// ```
/// use halfbyte_cpu_kernels::{Context, Matrix, Weights, gemm_f32};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = halfbyte_threadpool::ThreadPool::new(2)?;
/// let w = [1.0, 2.0, 3.0, 4.0]; // two rows of two
/// let w = Matrix::new(Weights::F32(&w), 2, 2)?;
/// let mut y = [0.0; 2];
/// gemm_f32(Context::new(&pool)?, &w, &[10.0, 1.0], 1, &mut y)?;
/// assert_eq!(y, [12.0, 34.0]);
/// # Ok(()) }
/// ```
pub fn gemm_f32(
    ctx: Context<'_>,
    w: &Matrix<'_>,
    x: &[f32],
    tokens: usize,
    y: &mut [f32],
) -> Result<(), Error> {
    let (rows, cols) = (w.rows(), w.cols());
    check_len("x", tokens.saturating_mul(cols), x.len())?;
    check_len("y", tokens.saturating_mul(rows), y.len())?;
    if cols == 0 {
        y.fill(0.0);
        return Ok(());
    }
    if tokens == 0 {
        return Ok(());
    }
    let output = Output::new(y, tokens, rows);
    let lines = LANES * cols.div_ceil(LANES);
    ctx.pool.par_ranges(rows.div_ceil(LANES), 0, |blocks| {
        with_lines(Purpose::Weights, lines, |scratch| {
            for b in blocks {
                let first = b * LANES;
                let count = LANES.min(rows - first);
                ctx.isa.dispatch(RowsTimesTokens {
                    w: *w,
                    first,
                    count,
                    x,
                    tokens,
                    scratch: &mut *scratch,
                    output,
                });
            }
        });
    });
    Ok(())
}

/// Rows `first..first + count`, decoded where they need it, by every token.
struct RowsTimesTokens<'a> {
    w: Matrix<'a>,
    first: usize,
    count: usize,
    x: &'a [f32],
    tokens: usize,
    scratch: &'a mut [crate::scratch::Line],
    output: Output<'a>,
}

impl Kernel for RowsTimesTokens<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // With few tokens a handful of rows at a time stays in the first-level cache, and rows of half precision are
        // widened as they are loaded.
        let few = self.tokens <= S::FLOAT_TILE.1;
        match self.w.weights() {
            Weights::F32(w) => self.rows_as_they_are(s, w),
            Weights::F16(w) if few => self.rows_as_they_are(s, w),
            Weights::Bf16(w) if few => self.rows_as_they_are(s, w),
            _ => self.rows_decoded(s, if few { S::FLOAT_TILE.0 } else { LANES }),
        }
    }
}

impl RowsTimesTokens<'_> {
    #[inline(always)]
    fn rows_as_they_are<S: Simd, W: Weight>(self, s: S, w: &[W]) {
        let cols = self.w.cols();
        let rows = &w[self.first * cols..][..self.count * cols];
        let (first, x, tokens, output) = (self.first, self.x, self.tokens, self.output);
        tile::multiply(s, Product { rows, cols, first, x, tokens, output });
    }

    /// `step` rows at a time.
    #[inline(always)]
    fn rows_decoded<S: Simd>(self, s: S, step: usize) {
        let cols = self.w.cols();
        let scratch: &mut [f32] = bytemuck::cast_slice_mut(self.scratch);
        let mut done = 0;
        while done < self.count {
            let n = step.min(self.count - done);
            let (first, rows) = (self.first + done, &mut scratch[..n * cols]);
            DecodeRows { matrix: self.w, first, rows: n, out: rows }.run(s);
            let (x, tokens, output) = (self.x, self.tokens, self.output);
            tile::multiply(s, Product { rows, cols, first, x, tokens, output });
            done += n;
        }
    }
}
