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
//! A panel is made by one 16 x 16 byte transposition a group: once and for all by [`crate::PackedMatrix`], or on
//! the way, into a cache, from blocks as a file has them. Codes stay as stored: unsigned nibbles.

mod pack;
pub(crate) mod panel;
mod tile;
mod tokens;

pub(crate) use pack::{AffineRows, PanelRows, Q4_0Rows, Q4_1Rows, Q8_0Rows};

use crate::Context;
use crate::error::{Error, check_len, check_shape};
use crate::matrix::{Matrix, Weights};
use crate::output::Output;
use crate::packed::{Kind, Panels};
use crate::scratch::{Line, Purpose, with_lines};
use crate::simd::{Kernel, LANES, Simd};
use core::ops::Range;
use halfbyte_q8::Activations;
use panel::PanelFormat;
use tokens::{Tokens, with_tokens};

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
/// Q4_0, Q4_1 and MLX affine 4-bit, packed or not, with the same bits.
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
    if y.is_empty() {
        return Ok(());
    }
    match w.weights() {
        Weights::Q8_0(blocks) => run(ctx, w, OnTheWay(Q8_0Rows::new(blocks, w.cols())), x, y),
        Weights::Q4_0(blocks) => run(ctx, w, OnTheWay(Q4_0Rows::new(blocks, w.cols())), x, y),
        Weights::Q4_1(blocks) => run(ctx, w, OnTheWay(Q4_1Rows::new(blocks, w.cols())), x, y),
        Weights::Affine4(affine) => run(ctx, w, OnTheWay(AffineRows::new(affine, w.cols())), x, y),
        Weights::Packed(packed) => match packed.kind() {
            Kind::Q8_0(format) => run(ctx, w, Ready { packed, format }, x, y),
            Kind::Q4_0(format) => run(ctx, w, Ready { packed, format }, x, y),
            Kind::Q4_1(format) => run(ctx, w, Ready { packed, format }, x, y),
            Kind::Affine4(format) => run(ctx, w, Ready { packed, format }, x, y),
        },
        other => {
            return Err(Error::Unsupported {
                what: "gemm_int8",
                got: other.name(),
                supported: "Q8_0, Q4_0, Q4_1, MLX affine 4-bit",
            });
        }
    }
    Ok(())
}

/// Where the panels of a matrix come from.
trait Source: Copy + Send + Sync {
    type Format: PanelFormat;

    fn format(&self) -> Self::Format;

    /// The panel of rows `first..first + valid`, of `groups` groups; `scratch` is as long as a panel.
    fn panel<'s, S: Simd>(&'s self, s: S, first: usize, valid: usize, scratch: &'s mut [Line]) -> &'s [Line];
}

/// Rows that become panels when they are needed.
#[derive(Clone, Copy)]
struct OnTheWay<R>(R);

impl<R: PanelRows> Source for OnTheWay<R> {
    type Format = R::Format;
    #[inline(always)]
    fn format(&self) -> R::Format {
        self.0.format()
    }

    #[inline(always)]
    fn panel<'s, S: Simd>(&'s self, s: S, first: usize, valid: usize, scratch: &'s mut [Line]) -> &'s [Line] {
        // The next panel's rows come from memory while this one is multiplied.
        self.0.pack(s, first, valid, scratch);
        scratch
    }
}

/// Panels packed before.
#[derive(Clone, Copy)]
struct Ready<'a, F> {
    packed: &'a Panels,
    format: F,
}

impl<F: PanelFormat> Source for Ready<'_, F> {
    type Format = F;
    #[inline(always)]
    fn format(&self) -> F {
        self.format
    }

    #[inline(always)]
    fn panel<'s, S: Simd>(&'s self, _: S, first: usize, _: usize, scratch: &'s mut [Line]) -> &'s [Line] {
        let lines = scratch.len();
        &self.packed.lines()[first / LANES * lines..][..lines]
    }
}

/// One panel a work item.
fn run<P: Source>(ctx: Context<'_>, w: &Matrix<'_>, panels: P, x: &Activations, y: &mut [f32]) {
    let rows = w.rows();
    let lines = panels.format().panel_lines(x.groups());
    let output = Output::new(y, x.rows(), rows);
    let zero_point = (P::Format::CODE_LINES == 4).then_some(P::Format::ZERO_POINT);
    with_tokens(ctx, x, zero_point, |tokens| {
        ctx.pool.par_ranges(rows.div_ceil(LANES), 0, |range| {
            with_lines(Purpose::Weights, lines, |scratch| {
                ctx.isa.dispatch(PanelsTimesTokens { panels, range, rows, tokens, scratch, output });
            });
        });
    });
}

/// The panels `range` of a matrix of `rows` rows, multiplied by every token.
struct PanelsTimesTokens<'a, P> {
    panels: P,
    range: Range<usize>,
    rows: usize,
    tokens: Tokens<'a>,
    scratch: &'a mut [Line],
    output: Output<'a>,
}

impl<P: Source> Kernel for PanelsTimesTokens<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for p in self.range {
            let first = p * LANES;
            let valid = LANES.min(self.rows - first);
            let panel = self.panels.panel(s, first, valid, self.scratch);
            let format = self.panels.format();
            let (tokens, output) = (self.tokens, self.output);
            tile::Tile { format, panel, tokens, first, valid, output }.multiply(s);
        }
    }
}
