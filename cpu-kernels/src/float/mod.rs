//! Weights of any format against f32 activations.
//!
//! Weights are taken in *panels* of sixteen rows, one row a lane, and 256 inputs at a time: a broadcast of one activation
//! serves sixteen rows, and no lane is ever added to another.
//!
//! ```text
//! rows                     panel                              product
//! row 0:  w0 w1 w2 ...     input 0: row 0 | row 1 | ... 15    even[row] += w . x[0]
//! row 1:  w0 w1 w2 ...     input 1: row 0 | row 1 | ... 15    odd[row]  += w . x[1]
//! ...                      ...                                ... after each 256: y[row] += even, y[row] += odd
//! ```
//!
//! Of each block of 256 inputs the even ones add to one sum and the odd ones to another, by fma in order, from 0; the two
//! are added to the row's total, the even one first, block after block. This order is the same for every ISA, thread
//! count, batch and tile, and so are the bits.
//!
//! [`crate::PackedMatrix`] packs F32, F16 and BF16 panels once. Everything else is decoded to f32 rows by its format's own
//! formula and transposed, a block at a time, in the thread's scratch memory. With many tokens a block of a panel stays in
//! the first-level cache and the activations for it in the second-level one. So a block is widened, or decoded and
//! transposed, once for all tokens.

mod decode;
pub(crate) mod group;
mod groups;
mod pack;
mod source;
mod tile;
mod transpose;

pub(crate) use decode::DecodeRow;
pub use groups::gemm_f32_grouped;
pub(crate) use pack::write_panel;
pub(crate) use source::{FloatRows, Weight, panel_lines};

use crate::Context;
use crate::error::{Error, check_len};
use crate::formats::UseFloatRows;
use crate::matrix::Matrix;
use crate::output::Output;
use crate::packed::{Panels, UseFloatPanels, all_packed};
use crate::panels::{share_panels, two_streams};
use crate::scratch::{Line, Purpose, with_lines};
use crate::simd::{Kernel, LANES, Simd};
use core::ops::Range;
use source::{Decoded, PackedFloats, PanelSource, SCRATCH};
use tile::{Multiply, Tile, add_blocks, widen};

/// Inputs of a block: part of the definition of the result.
pub(crate) const BLOCK: usize = 256;

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
/// supported, packed or not, with the same bits.
///
/// Numerics: weights are decoded exactly as their format says (one rounding for formats with a minimum, none for
/// the others); of every 256 inputs the even and the odd ones have an f32 sum each, by fma, and these are added up. So
/// the error is at most `(min(ceil(cols / 2), 128) + 2 ceil(cols / 256) + 1) * 2^-24` times the sum of the products'
/// magnitudes, to first order and barring underflow. NaN in `x` makes that token's outputs NaN. A row's bits depend on
/// its weights and its activations alone. With no columns every output is 0.
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
    gemm_f32_each(ctx, [(w, y)], x, tokens)
}

/// [`gemm_f32`] of several matrices with the same activations, such as a layer's queries, keys and values: each with
/// its output, and with the same bits. Packed matrices of F32, F16 or BF16, all of one of these, are shared out to the
/// threads as if they were one, so that small ones cost less.
///
/// # Errors
/// As [`gemm_f32`]; no product is written then.
pub fn gemm_f32_each<const N: usize>(
    ctx: Context<'_>,
    products: [(&Matrix<'_>, &mut [f32]); N],
    x: &[f32],
    tokens: usize,
) -> Result<(), Error> {
    for (w, y) in &products {
        check_len("x", tokens.saturating_mul(w.cols()), x.len())?;
        check_len("y", tokens.saturating_mul(w.rows()), y.len())?;
    }
    if tokens == 0 {
        return Ok(());
    }
    if x.is_empty() {
        for (_, y) in products {
            y.fill(0.0);
        }
        return Ok(());
    }
    let matrices = products.each_ref().map(|(w, _)| **w);
    let outputs = products.map(|(w, y)| Output::new(y, tokens, w.rows()));
    let alike = all_packed(matrices.map(|w| w.weights()))
        .is_some_and(|packed| multiply_packed(MultiplyPacked { ctx, packed, outputs, x, tokens }));
    if !alike {
        for (w, output) in matrices.into_iter().zip(outputs) {
            multiply_one(ctx, w, output, x, tokens);
        }
    }
    Ok(())
}

/// The product of one matrix of any format.
fn multiply_one(ctx: Context<'_>, w: Matrix<'_>, output: Output<'_>, x: &[f32], tokens: usize) {
    let done = match all_packed([w.weights()]) {
        Some(packed) => multiply_packed(MultiplyPacked { ctx, packed, outputs: [output], x, tokens }),
        None => w.weights().float_rows(MultiplyRows { ctx, w, output, x, tokens }).is_some(),
    };
    if !done {
        run(ctx, [Decoded(w)], [output], x, tokens);
    }
}

/// The product of one matrix of plain floats that are not packed.
struct MultiplyRows<'a> {
    ctx: Context<'a>,
    w: Matrix<'a>,
    output: Output<'a>,
    x: &'a [f32],
    tokens: usize,
}

impl UseFloatRows for MultiplyRows<'_> {
    type Output = ();

    fn run<W: Weight>(self, numbers: &[W]) {
        let rows = FloatRows { numbers, rows: self.w.rows(), cols: self.w.cols() };
        run(self.ctx, [rows], [self.output], self.x, self.tokens);
    }
}

/// The products of packed matrices of floats, if all are of the type of the first; says whether they are.
#[derive(Clone, Copy)]
struct MultiplyPacked<'a, const N: usize> {
    ctx: Context<'a>,
    packed: [&'a Panels; N],
    outputs: [Output<'a>; N],
    x: &'a [f32],
    tokens: usize,
}

fn multiply_packed<const N: usize>(multiply: MultiplyPacked<'_, N>) -> bool {
    multiply.packed.first().and_then(|first| first.kind().floats(multiply)).unwrap_or(false)
}

impl<const N: usize> UseFloatPanels for MultiplyPacked<'_, N> {
    type Output = bool;

    fn run<W: Weight>(self) -> bool {
        let alike = self.packed.iter().all(|packed| packed.kind() == W::KIND);
        if alike {
            run(self.ctx, self.packed.map(PackedFloats::<W>::new), self.outputs, self.x, self.tokens);
        }
        alike
    }
}

/// What is multiplied by a matrix of `rows` x `cols`, and where the products go.
#[derive(Clone, Copy)]
struct Product<'a> {
    rows: usize,
    cols: usize,
    x: Activations<'a>,
    output: Output<'a>,
}

/// The products of matrices of one format, whose panels are counted as if they were one matrix's.
fn run<P: PanelSource, const N: usize>(
    ctx: Context<'_>,
    matrices: [P; N],
    outputs: [Output<'_>; N],
    x: &[f32],
    tokens: usize,
) {
    let cols = x.len() / tokens;
    if tokens == 1 {
        return share(ctx, matrices, outputs, Activations::One(x), cols);
    }
    with_lines(Purpose::Activations, tokens.div_ceil(LANES) * cols, |lines| {
        let rows = FloatRows { numbers: x, rows: tokens, cols };
        ctx.pool.par_chunks_mut(lines, cols, |p, panel| write_panel(ctx, rows, p, panel));
        share(ctx, matrices, outputs, Activations::Panels(lines, tokens), cols);
    });
}

/// What matrices of `cols` columns are multiplied by.
#[derive(Clone, Copy)]
enum Activations<'a> {
    One(&'a [f32]),
    /// So many tokens in panels of sixteen, as weights are: what a tile takes of an input lies side by side.
    Panels(&'a [Line], usize),
}

fn share<P: PanelSource, const N: usize>(
    ctx: Context<'_>,
    matrices: [P; N],
    outputs: [Output<'_>; N],
    x: Activations<'_>,
    cols: usize,
) {
    share_panels(ctx.pool, &outputs, |i, range| {
        with_lines(Purpose::Weights, 2 * (SCRATCH + BLOCK), |scratch| {
            let product = Product { rows: outputs[i].rows(), cols, x, output: outputs[i] };
            ctx.isa.dispatch(PanelsTimesTokens { panels: matrices[i], range, product, scratch });
        });
    });
}

/// The panels `range` of a matrix, multiplied by every token.
struct PanelsTimesTokens<'a, P> {
    panels: P,
    range: Range<usize>,
    product: Product<'a>,
    /// For each of two panels what `panels` needs, and a block as f32.
    scratch: &'a mut [Line],
}

impl<P: PanelSource> Kernel for PanelsTimesTokens<'_, P> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let Product { cols, x, .. } = self.product;
        let (x, tokens) = match x {
            Activations::Panels(x, tokens) => (x, tokens),
            Activations::One(x) => {
                let (pairs, last) = two_streams(self.range.clone());
                for pair in pairs {
                    self.times_one(s, x, pair);
                }
                if let Some(panel) = last {
                    self.times_one(s, x, [panel]);
                }
                return;
            }
        };
        // So many that their activations for a block stay in the second-level cache.
        let together = P::TILES * S::FLOAT_TILE;
        for start in (0..tokens).step_by(together) {
            let tokens = start..tokens.min(start + together);
            for from in (0..cols).step_by(BLOCK) {
                let inputs = from..cols.min(from + BLOCK);
                let mut panel = self.range.start;
                while S::FLOAT_PANELS == 2 && panel + 2 <= self.range.end {
                    self.times_block::<S, 2>(s, x, panel, inputs.clone(), tokens.clone());
                    panel += 2;
                }
                while panel < self.range.end {
                    self.times_block::<S, 1>(s, x, panel, inputs.clone(), tokens.clone());
                    panel += 1;
                }
            }
        }
    }
}

impl<P: PanelSource> PanelsTimesTokens<'_, P> {
    /// Adds the products of inputs `inputs` of `N` panels from `panel` on with `tokens`.
    #[inline(always)]
    fn times_block<S: Simd, const N: usize>(
        &mut self,
        s: S,
        x: &[Line],
        panel: usize,
        inputs: Range<usize>,
        tokens: Range<usize>,
    ) {
        let Product { cols, output, .. } = self.product;
        let mut weights: [&[Line]; N] = [&[]; N];
        let scratches = self.scratch.chunks_exact_mut(SCRATCH + BLOCK);
        for ((weights, scratch), i) in weights.iter_mut().zip(scratches).zip(0..) {
            let (scratch, wide) = scratch.split_at_mut(SCRATCH);
            *weights = widen(s, self.panels.block(s, panel + i, inputs.clone(), scratch), wide);
        }
        let tile = Tile { weights, x, cols, from: inputs.start, first: panel * LANES, output };
        s.vectorize(Multiply { tile, tokens });
    }

    /// The products of some panels, one or two, with the only token.
    #[inline(always)]
    fn times_one<S: Simd, const N: usize>(&mut self, s: S, x: &[f32], panels: [usize; N]) {
        let mut totals = [s.splat(0.0); N];
        for (i, x) in x.chunks(BLOCK).enumerate() {
            let inputs = i * BLOCK..i * BLOCK + x.len();
            let mut blocks: [&[P::Weight]; N] = [&[]; N];
            for ((block, p), scratch) in
                blocks.iter_mut().zip(panels).zip(self.scratch.chunks_exact_mut(SCRATCH))
            {
                *block = self.panels.block(s, p, inputs.clone(), scratch);
            }
            add_blocks(s, blocks, x, &mut totals);
        }
        for (p, total) in panels.into_iter().zip(totals) {
            let (first, valid) = (p * LANES, LANES.min(self.product.rows - p * LANES));
            // SAFETY: bounds are checked; a panel belongs to one work item, so no other uses its rows.
            s.store_up_to(unsafe { self.product.output.at(0, first, valid) }, total);
        }
    }
}
