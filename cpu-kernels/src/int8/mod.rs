//! Quantized weights against int8 activations.
//!
//! Weights are taken in *panels* of sixteen rows, one row a lane. For every group of 32 inputs a panel holds the
//! codes with four inputs of one row in a lane's four bytes, so that one broadcast of four activation codes
//! serves sixteen rows and no lane ever has to be added to another:
//!
//! ```text
//! row-major blocks            panel, group g                         dot product
//! row 0: d [16 bytes]         line 0: row 0 bytes 0-3 | row 1 ...    acc[row] += 4 codes . x[32 g + 0..4]   (low nibbles)
//! row 1: d [16 bytes]   -->   line 1: row 0 bytes 4-7 | row 1 ...                       . x[32 g + 16..20] (high nibbles)
//! ...                         ...                                    ...
//! row 15                      scales (f32, a row a lane), minima     y[row]  += (scale * a) * acc[row]
//! ```
//!
//! Per group and row the dot product is exact in i32 (the offset of the codes is taken off there, from the sum
//! of the activation codes); then one f32 fma by `scale * a`, and for formats with a minimum one more by
//! `min * (a * sum)`. Even groups add to one accumulator and odd ones to another, and the two are added at the
//! end. This order is the same for every ISA, thread count, batch and tile, and so are the bits.
//!
//! A panel is made from the mapped blocks by one 16 x 16 byte transposition a group and multiplied by all tokens
//! while it is in the cache. Codes stay as stored: unsigned nibbles.

mod formats;
mod tile;

use crate::Context;
use crate::error::{Error, check_len, check_shape};
use crate::matrix::{Matrix, Weights};
use crate::output::Output;
use crate::scratch::with_lines;
use crate::simd::{Kernel, LANES, Simd};
use formats::{AffineRows, PanelFormat, Q4_0Rows, Q4_1Rows, Q8_0Rows};
use halfbyte_q8::Activations;

/// `y = W x` for one vector of int8 activations: the decode step.
///
/// Exactly [`gemm_int8`] with one row, with the same bits.
///
/// # Errors
/// As [`gemm_int8`]; also [`Error::Shape`] if `x` has not exactly one row.
pub fn matvec_int8(ctx: Context<'_>, w: &Matrix<'_>, x: &Activations, y: &mut [f32]) -> Result<(), Error> {
    check_shape("rows of the activation vector", 1, x.rows())?;
    gemm_int8(ctx, w, x, y)
}

/// `y[t] = W x[t]` for every row `t` of int8 activations.
///
/// `w` is `rows` x `cols`, `x` is tokens x `cols`, `y` is tokens x `rows`, row-major. Supported weights: Q8_0,
/// Q4_0, Q4_1 and MLX affine 4-bit.
///
/// Numerics: per group of 32 the integer dot product is exact; then one rounding for `scale * a`, one for each
/// fma into one of two f32 accumulators (even and odd groups), one for their sum. So the error is at most
/// `(ceil(groups / 2) + 2) * 2^-24` times the sum over groups of `|scale * a * dot|`, to first order and barring
/// underflow; for formats with a minimum `(2 ceil(groups / 2) + 2) * 2^-24` times the sum of `|scale * a * dot|`
/// and `|min * a * sum|`, which may be larger than the sum of their products' magnitudes. A group with a NaN
/// activation scale makes the token's whole output NaN. A row's bits depend on its weights and its activations
/// alone. With no columns every output is 0.
///
/// # Errors
/// [`Error::Unsupported`] for other weight types, [`Error::Shape`] if the columns differ, [`Error::Length`] if
/// `y` is not tokens x `rows` long. Nothing is written then.
///
/// ```
/// use halfbyte_cpu_kernels::{Context, Matrix, Weights, gemm_int8};
/// use halfbyte_q8::{Activations, quantize_row};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = halfbyte_threadpool::ThreadPool::new(2)?;
/// let ctx = Context::new(&pool)?;
/// let mut blocks = vec![bytemuck::Zeroable::zeroed(); 2]; // two rows of 32 weights
/// quantize_row(&[1.0; 64], &mut blocks)?;
/// let w = Matrix::new(Weights::Q8_0(&blocks), 2, 32)?;
/// let mut x = Activations::new();
/// x.quantize(&[0.5; 32], 1, 32)?;
/// let mut y = [0.0; 2];
/// gemm_int8(ctx, &w, &x, &mut y)?;
/// assert!((y[0] - 16.0).abs() < 0.01);
/// # Ok(()) }
/// ```
pub fn gemm_int8(ctx: Context<'_>, w: &Matrix<'_>, x: &Activations, y: &mut [f32]) -> Result<(), Error> {
    check_shape("columns of the activations", w.cols(), x.cols())?;
    check_len("y", x.rows().saturating_mul(w.rows()), y.len())?;
    match w.weights() {
        Weights::Q8_0(blocks) => run(ctx, w, Q8_0Rows::new(blocks, w.cols()), x, y),
        Weights::Q4_0(blocks) => run(ctx, w, Q4_0Rows::new(blocks, w.cols()), x, y),
        Weights::Q4_1(blocks) => run(ctx, w, Q4_1Rows::new(blocks, w.cols()), x, y),
        Weights::Affine4(affine) => run(ctx, w, AffineRows::new(affine, w.cols()), x, y),
        other => {
            let got = match other {
                Weights::F32(_) => "F32",
                Weights::F16(_) => "F16",
                Weights::Bf16(_) => "BF16",
                Weights::Q4K(_) => "Q4_K",
                _ => "Q6_K",
            };
            return Err(Error::Unsupported {
                what: "gemm_int8",
                got,
                supported: "Q8_0, Q4_0, Q4_1, MLX affine 4-bit",
            });
        }
    }
    Ok(())
}

/// One panel a work item.
fn run<F: PanelFormat>(ctx: Context<'_>, w: &Matrix<'_>, format: F, x: &Activations, y: &mut [f32]) {
    let (rows, groups) = (w.rows(), x.groups());
    let output = Output::new(y, x.rows(), rows);
    if x.rows() == 0 {
        return;
    }
    let lines = groups * (F::CODE_LINES + 1 + usize::from(F::MIN));
    ctx.pool.par_ranges(rows.div_ceil(LANES), 0, |panels| {
        with_lines(lines, |panel| {
            for p in panels {
                let first = p * LANES;
                let valid = LANES.min(rows - first);
                ctx.isa.dispatch(PanelTimesTokens { format, first, valid, x, panel: &mut *panel, output });
            }
        });
    });
}

/// Packs rows `first..first + valid` and multiplies them by every token.
struct PanelTimesTokens<'a, F> {
    format: F,
    first: usize,
    valid: usize,
    x: &'a Activations,
    panel: &'a mut [crate::scratch::Line],
    output: Output<'a>,
}

impl<F: PanelFormat> Kernel for PanelTimesTokens<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let per_group = F::CODE_LINES + 1 + usize::from(F::MIN);
        for (g, lines) in self.panel.chunks_exact_mut(per_group).enumerate() {
            // The next panel comes from memory while this one is multiplied.
            self.format.prefetch(s, self.first + LANES, g);
            self.format.pack(s, self.first, self.valid, g, lines);
        }
        tile::multiply::<S, F>(s, self.panel, self.x, self.first, self.valid, self.output);
    }
}
