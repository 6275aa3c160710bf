//! Quantized weights against integer activations: 8-bit codes, of which a few may have a second byte.
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
//! Where a token of a tile has high bytes in a group, the line with their inputs is multiplied once more, by the high
//! bytes, and 256 times the result is added to the dot product.
//!
//! Per group and row the dot product is exact in i32 (the offset of the codes is taken off there, from the sum
//! of the activation codes); then one f32 fma by `scale * a`, and for formats with a minimum one more by
//! `min * (a * sum)`. Even groups add to one accumulator and odd ones to another, and the two are added at the
//! end. Formats with a scale for each 16 inputs do this for the first half of a group and then for the second. This order is
//! the same for every ISA, thread count, batch and tile, and so are the bits.
//!
//! A panel is made by one 16 x 16 byte transposition a group: once by [`crate::PackedMatrix`], or in scratch memory for each
//! product, from blocks as a file has them. Codes stay as stored: unsigned nibbles.

mod groups;
mod pack;
mod pack_groups;
pub(crate) mod panel;
mod tile;
mod tokens;

pub(crate) use groups::check_groups;
pub use groups::gemm_int8_grouped;
pub(crate) use pack::{AffineRows, PanelRows, Q4_0Rows, Q4_1Rows, Q8_0Rows};
pub(crate) use pack_groups::GroupedRows;

use crate::Context;
use crate::error::{Error, check_len, check_shape};
use crate::formats::UseInt8Rows;
use crate::matrix::Matrix;
use crate::output::Output;
use crate::packed::{PanelKind, Panels, UseInt8Panels, all_packed};
use crate::panels::{share_panels, two_streams};
use crate::scratch::{Line, Purpose, with_lines};
use crate::simd::{Kernel, LANES, Simd};
use crate::weights::Weights;
use core::ops::Range;
use halfbyte_q8::Activations;
use panel::PanelFormat;
use tokens::{Codes, Tokens, with_tokens};

/// `y = W x` for one vector of integer activations: the decode step.
///
/// Exactly [`gemm_int8`] with one row, with the same bits.
///
/// # Errors
/// As [`gemm_int8`]; also [`Error::Shape`] if `x` has not exactly one row.
pub fn matvec_int8(ctx: Context<'_>, w: &Matrix<'_>, x: &Activations, y: &mut [f32]) -> Result<(), Error> {
    check_shape("rows of the activation vector", 1, x.rows())?;
    gemm_int8(ctx, w, x, y)
}

/// `y[t] = W x[t]` for every row `t` of integer activations, of any [`crate::Precision`].
///
/// `w` is `rows` x `cols`, `x` is tokens x `cols`, `y` is tokens x `rows`, row-major. Supported are the formats of
/// [`Weights::formats`] that have `int8`, packed or not, with the same bits.
///
/// Numerics: per group of 32 the integer dot product is exact; then one rounding for `scale * a`, one for each
/// fma into one of two f32 accumulators (even and odd groups), one for their sum. So the error is at most
/// `(ceil(groups / 2) + 2) * 2^-24` times the sum over groups of `|scale * a * dot|`, to first order and barring
/// underflow; with 16-bit codes and 8-bit weights the dot product may have more than 24 bits, and one more rounding makes it
/// an f32. For formats with a minimum the error is at most `(2 ceil(groups / 2) + 2) * 2^-24` times the sum of `|scale * a * dot|`
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
    gemm_int8_each(ctx, [(w, y)], x)
}

/// [`gemm_int8`] of several matrices with the same activations, such as a layer's queries, keys and values: each with
/// its output, and with the same bits. Packed matrices of one format are shared out to the threads as if they were
/// one, so that small ones cost less.
///
/// # Errors
/// As [`gemm_int8`]; no product is written then.
pub fn gemm_int8_each<const N: usize>(
    ctx: Context<'_>,
    products: [(&Matrix<'_>, &mut [f32]); N],
    x: &Activations,
) -> Result<(), Error> {
    for (w, y) in &products {
        check_shape("columns of the activations", w.cols(), x.cols())?;
        check_len("y", x.rows().saturating_mul(w.rows()), y.len())?;
        if !w.supports_int8() {
            let supported = Weights::names(|format| format.int8);
            return Err(Error::Unsupported { what: "gemm_int8", got: w.weights().name(), supported });
        }
    }
    let weights = products.each_ref().map(|(w, _)| w.weights());
    let outputs = products.map(|(w, y)| Output::new(y, x.rows(), w.rows()));
    let alike =
        all_packed(weights).is_some_and(|packed| multiply_packed(MultiplyPacked { ctx, packed, outputs, x }));
    if !alike {
        for (weights, output) in weights.into_iter().zip(outputs) {
            multiply_one(ctx, weights, output, x);
        }
    }
    Ok(())
}

/// The product of one matrix of a supported format.
fn multiply_one(ctx: Context<'_>, weights: Weights<'_>, output: Output<'_>, x: &Activations) {
    let done = match all_packed([weights]) {
        Some(packed) => multiply_packed(MultiplyPacked { ctx, packed, outputs: [output], x }),
        None => weights.int8_rows(x.cols(), MultiplyRows { ctx, output, x }).is_some(),
    };
    assert!(done, "{} were refused", weights.name());
}

/// The product of one matrix that is not packed.
struct MultiplyRows<'a> {
    ctx: Context<'a>,
    output: Output<'a>,
    x: &'a Activations,
}

impl UseInt8Rows for MultiplyRows<'_> {
    type Output = ();

    fn run<R: PanelRows>(self, rows: R) {
        run(self.ctx, [OnDemand(rows)], [self.output], self.x);
    }
}

/// The products of packed matrices, if all are of the format of the first; says whether they are.
#[derive(Clone, Copy)]
struct MultiplyPacked<'a, const N: usize> {
    ctx: Context<'a>,
    packed: [&'a Panels; N],
    outputs: [Output<'a>; N],
    x: &'a Activations,
}

fn multiply_packed<const N: usize>(multiply: MultiplyPacked<'_, N>) -> bool {
    multiply.packed.first().and_then(|first| first.kind().int8(multiply)).unwrap_or(false)
}

impl<const N: usize> UseInt8Panels for MultiplyPacked<'_, N> {
    type Output = bool;

    fn run<F: PanelKind>(self, first: F) -> bool {
        let mut all = self.packed.map(|packed| Prepacked { packed, format: first });
        for panels in &mut all {
            let Some(format) = F::of(panels.packed.kind()) else { return false };
            panels.format = format;
        }
        run(self.ctx, all, self.outputs, self.x);
        true
    }
}

/// Where the panels of a matrix come from.
trait PanelSource: Copy + Send + Sync {
    type Format: PanelFormat;

    fn format(&self) -> Self::Format;

    /// The panel of rows `first..first + valid`; `scratch` is as long as a panel.
    fn panel<'s, S: Simd>(&'s self, s: S, first: usize, valid: usize, scratch: &'s mut [Line]) -> &'s [Line];
}

/// Rows that become panels, in scratch memory, when they are needed.
#[derive(Clone, Copy)]
struct OnDemand<R>(R);

impl<R: PanelRows> PanelSource for OnDemand<R> {
    type Format = R::Format;
    #[inline(always)]
    fn format(&self) -> R::Format {
        self.0.format()
    }

    #[inline(always)]
    fn panel<'s, S: Simd>(&'s self, s: S, first: usize, valid: usize, scratch: &'s mut [Line]) -> &'s [Line] {
        // This prefetches the next panel's rows, which arrive while this panel is multiplied.
        self.0.pack(s, first, valid, scratch);
        scratch
    }
}

/// Panels of a packed matrix.
#[derive(Clone, Copy)]
struct Prepacked<'a, F> {
    packed: &'a Panels,
    format: F,
}

impl<F: PanelFormat> PanelSource for Prepacked<'_, F> {
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

/// The products of matrices of one format, whose panels are counted as if they were one matrix's.
fn run<P: PanelSource, const N: usize>(
    ctx: Context<'_>,
    matrices: [P; N],
    outputs: [Output<'_>; N],
    x: &Activations,
) {
    if x.rows() == 0 {
        return;
    }
    let zero_point = (P::Format::CODE_LINES == 4).then_some(P::Format::ZERO_POINT);
    with_tokens(ctx, x, Codes { zero_point, halves: P::Format::HALVES }, |tokens| {
        share_panels(ctx.pool, &outputs, |i, range| {
            let (panels, output) = (matrices[i], outputs[i]);
            with_lines(Purpose::Weights, 2 * panels.format().panel_lines(x.groups()), |scratch| {
                let rows = output.rows();
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
    /// Two panels long.
    scratch: &'a mut [Line],
    output: Output<'a>,
}

impl<P: PanelSource> Kernel for PanelsTimesTokens<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        if self.tokens.count == 1 {
            let (pairs, last) = two_streams(self.range.clone());
            for pair in pairs {
                self.times_one(s, pair);
            }
            if let Some(panel) = last {
                self.times_one(s, [panel]);
            }
            return;
        }
        let lines = self.scratch.len() / 2;
        for p in self.range {
            let first = p * LANES;
            let valid = LANES.min(self.rows - first);
            let panel = self.panels.panel(s, first, valid, &mut self.scratch[..lines]);
            let format = self.panels.format();
            let (tokens, output) = (self.tokens, self.output);
            s.vectorize(tile::Tile { format, panel, tokens, first, valid, output });
        }
    }
}

impl<P: PanelSource> PanelsTimesTokens<'_, P> {
    /// The products of some panels, one or two, with the only token.
    #[inline(always)]
    fn times_one<S: Simd, const N: usize>(&mut self, s: S, numbers: [usize; N]) {
        let lines = self.scratch.len() / 2;
        let mut panels: [&[Line]; N] = [&[]; N];
        for ((panel, p), scratch) in
            panels.iter_mut().zip(numbers).zip(self.scratch.chunks_exact_mut(lines.max(1)))
        {
            *panel = self.panels.panel(s, p * LANES, LANES.min(self.rows - p * LANES), scratch);
        }
        let totals = tile::times_one(s, self.panels.format(), panels, self.tokens);
        for (p, total) in numbers.into_iter().zip(totals) {
            let (first, valid) = (p * LANES, LANES.min(self.rows - p * LANES));
            // SAFETY: bounds are checked; a panel belongs to one work item, so no other uses its rows.
            s.store_up_to(unsafe { self.output.at(0, first, valid) }, total);
        }
    }
}
