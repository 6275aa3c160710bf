//! Rotary position embedding.

use crate::Context;
use crate::error::{Error, check_shape};
use crate::simd::{Kernel, Simd};

/// Which two elements of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeOrder {
    /// `(2 i, 2 i + 1)`: GGUF's architecture `llama`.
    Adjacent,
    /// `(i, i + pairs)`: GPT-NeoX, and with it `qwen2` and `qwen3`.
    Halves,
}

/// The cosines and sines of every position seen so far.
///
/// Pair `i` at position `p` turns by `p * frequencies[i]` radians, and is stretched by the table's magnitude. Cosines and
/// sines times the magnitude are computed in f64 and rounded once to f32.
#[derive(Clone, Debug)]
pub struct RopeTable {
    frequencies: Vec<f64>,
    order: RopeOrder,
    magnitude: f64,
    /// `positions` x pairs.
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl RopeTable {
    /// A table of no positions yet. Each entry of `frequencies` rotates a pair, so `2 * frequencies.len()`
    /// elements of a head turn and the rest pass unchanged. Scaling of any kind is a matter of frequencies, and of
    /// [`Self::with_magnitude`].
    pub fn new(frequencies: Vec<f64>, order: RopeOrder) -> Self {
        Self { frequencies, order, magnitude: 1.0, cos: Vec::new(), sin: Vec::new() }
    }

    /// A table of the same rotations, still without positions, that multiplies what it rotates by `magnitude`: the
    /// attention factor of YaRN and LongRoPE.
    #[must_use]
    pub fn with_magnitude(self, magnitude: f64) -> Self {
        Self { magnitude, cos: Vec::new(), sin: Vec::new(), ..self }
    }

    /// `base^(-2 i / dims)` for the `dims / 2` pairs: the frequencies without scaling.
    pub fn plain_frequencies(base: f64, dims: usize) -> Vec<f64> {
        (0..dims / 2).map(|i| base.powf(-2.0 * i as f64 / dims as f64)).collect()
    }

    /// Pairs that a head rotates.
    pub fn pairs(&self) -> usize {
        self.frequencies.len()
    }

    /// Positions in the table.
    pub fn positions(&self) -> usize {
        self.cos.len().checked_div(self.pairs()).unwrap_or(usize::MAX)
    }

    /// Fills the table up to position `positions - 1`.
    pub fn extend_to(&mut self, positions: usize) {
        for p in self.positions()..positions {
            for f in &self.frequencies {
                let (sin, cos) = (p as f64 * f).sin_cos();
                self.cos.push((cos * self.magnitude) as f32);
                self.sin.push((sin * self.magnitude) as f32);
            }
        }
    }
}

/// Rotates every head of every row of `x` in place; row `r` stands at position `first + r`.
///
/// `x` is rows x `n_heads` x `head_dim`, row-major; rows follow from its length.
///
/// Numerics: `(a cos - b sin, a sin + b cos)`, each product and sum rounded once, with tabulated cosines and sines:
/// within `3 * 2^-24 * (|a cos| + |b sin|)` of the exact value, to first order (`|a sin| + |b cos|` for the other).
/// Elements that are not rotated keep their bits.
///
/// # Errors
/// [`Error::Group`] if `x` is no whole number of rows, [`Error::Shape`] if a head is shorter than the rotated part
/// or the table does not reach the last position. Nothing is written then.
pub fn rope(
    ctx: Context<'_>,
    x: &mut [f32],
    n_heads: usize,
    head_dim: usize,
    table: &RopeTable,
    first: usize,
) -> Result<(), Error> {
    let row = n_heads.saturating_mul(head_dim);
    if row == 0 || !x.len().is_multiple_of(row) {
        return Err(Error::Group {
            what: "elements of x, rows of n_heads x head_dim",
            cols: x.len(),
            group: row,
        });
    }
    let pairs = table.pairs();
    if 2 * pairs > head_dim {
        return check_shape("head_dim, at least the rotated elements", 2 * pairs, head_dim);
    }
    let last = first.saturating_add(x.len() / row);
    if table.positions() < last {
        return check_shape("positions in the rope table", last, table.positions());
    }
    let rows_a_chunk = (x.len() / row).div_ceil(4 * ctx.pool.threads()).max(1);
    ctx.pool.par_chunks_mut(x, rows_a_chunk * row, |i, rows| {
        ctx.isa.dispatch(Rotate { rows, row, head_dim, table, first: first + i * rows_a_chunk });
    });
    Ok(())
}

struct Rotate<'a> {
    rows: &'a mut [f32],
    row: usize,
    head_dim: usize,
    table: &'a RopeTable,
    first: usize,
}

impl Kernel for Rotate<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    // No primitive of `S` is used: inlined into its `vectorize`, the loops are compiled for its instructions.
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let pairs = self.table.pairs();
        for (r, row) in self.rows.chunks_exact_mut(self.row).enumerate() {
            let cos = &self.table.cos[(self.first + r) * pairs..][..pairs];
            let sin = &self.table.sin[(self.first + r) * pairs..][..pairs];
            for head in row.chunks_exact_mut(self.head_dim) {
                match self.table.order {
                    RopeOrder::Adjacent => {
                        for (i, pair) in head[..2 * pairs].chunks_exact_mut(2).enumerate() {
                            let (a, b) = (pair[0], pair[1]);
                            pair[0] = a * cos[i] - b * sin[i];
                            pair[1] = a * sin[i] + b * cos[i];
                        }
                    }
                    RopeOrder::Halves => {
                        let (low, high) = head[..2 * pairs].split_at_mut(pairs);
                        for i in 0..pairs {
                            let (a, b) = (low[i], high[i]);
                            low[i] = a * cos[i] - b * sin[i];
                            high[i] = a * sin[i] + b * cos[i];
                        }
                    }
                }
            }
        }
    }
}
