//! The kernel: a tile of queries that share a key/value head, against all the keys that they may see.
//!
//! A *query* is here one row's vector of one head. Keys are taken in blocks of 64, at the absolute positions
//! 0, 64, 128, ..., and a block serves all queries of the tile before the next one, four queries (a *quad*) at
//! a time:
//!
//! ```text
//!            block 0   block 1   block 2
//! query 0    xxxxxxxx  xxx                 scores -> online softmax -> weighted values
//! query 1    xxxxxxxx  xxxx                a query's row of x is all that its output depends on:
//! query 2    xxxxxxxx  xxxxx               which queries share the quad or the tile, which registers
//! query 3    xxxxxxxx  xxxxxx              and which thread do the work is invisible in the bits
//! ```
//!
//! The formulas, with the order of every sum, are in `scores`, `softmax` and `values`; queries are multiplied by
//! the scale first, and in the end outputs are divided by the folded sum of weights.

#![allow(clippy::needless_range_loop, reason = "one index runs over several arrays of registers")]

mod scores;
mod scratch;
mod softmax;
mod values;

use crate::element::Element;
use crate::output::Output;
use crate::params::AttentionParams;
use halfbyte_cpu_kernels::simd::{Kernel, LANES, Simd};
use scores::scores;
use softmax::softmax;
use values::add_values;

pub(crate) use scratch::{Scratch, with_scratch};

/// Keys of a block. Part of the definition of the result: the running maximum moves at block ends.
const BLOCK: usize = 64;
/// Queries that go through a block together.
const QUAD: usize = 4;
/// The most queries of a tile: with 64-wide heads their state takes 36 KiB, which leaves most of an L2 cache to keys.
pub(crate) const MAX_QUERIES: usize = 64;

/// Scores of a quad with a block, then its weights.
#[repr(align(64))]
struct Weights([[f32; BLOCK]; QUAD]);

/// Whether sixteen vectors and some operands fit in registers, so that four queries can share each loaded key.
#[inline(always)]
const fn register_rich<S: Simd>() -> bool {
    S::FLOAT_TILE >= 16
}

/// A tile: `n` queries of one key/value head from query `first_query` on, counted row by row and, within a row,
/// head by head.
///
/// `VECTORS` is the number of 16-lane vectors of a head, or 0 where it is only known at run time.
pub(crate) struct Tile<'a, E, const VECTORS: usize> {
    pub(crate) params: AttentionParams,
    /// All query rows.
    pub(crate) q: &'a [f32],
    /// The key/value head's keys, heads padded to a multiple of 16: at least as many as the last query sees.
    pub(crate) keys: &'a [E],
    /// Its values, alike.
    pub(crate) values: &'a [E],
    /// Which key/value head.
    pub(crate) kv_head: usize,
    /// Position of query row 0.
    pub(crate) first_position: usize,
    pub(crate) first_query: usize,
    /// At most [`MAX_QUERIES`].
    pub(crate) n: usize,
    /// Of this many vectors a head.
    pub(crate) scratch: Scratch<'a>,
    /// All output rows. The tile has its queries' heads to itself.
    pub(crate) out: &'a Output<'a>,
}

impl<E, const VECTORS: usize> Tile<'_, E, VECTORS> {
    /// Where query `i` of the tile begins in `q` and in the output.
    #[inline(always)]
    fn offset(&self, i: usize) -> usize {
        let (row, head) =
            ((self.first_query + i) / self.params.group(), (self.first_query + i) % self.params.group());
        (row * self.params.n_heads() + self.kv_head * self.params.group() + head) * self.params.head_dim()
    }

    /// How many keys query `i` of the tile sees; never fewer than the query before it.
    #[inline(always)]
    fn visible(&self, i: usize) -> usize {
        self.first_position + (self.first_query + i) / self.params.group() + 1
    }

    /// Scales the queries and puts the state to "no key seen".
    #[inline(always)]
    fn begin<S: Simd>(&mut self, s: S, vectors: usize) {
        let stride = vectors * LANES;
        let scale = s.splat(self.params.scale());
        for i in 0..self.n {
            let from = &self.q[self.offset(i)..][..self.params.head_dim()];
            let to = &mut self.scratch.queries[i * stride..][..stride];
            for (x, y) in from.chunks(LANES).zip(to.chunks_exact_mut(LANES)) {
                let x = if x.len() == LANES { s.load_slice(x) } else { s.load_partial(x) };
                s.store_slice(y, s.mul(x, scale));
            }
        }
        self.scratch.outputs[..self.n * stride].fill(0.0);
        self.scratch.sums[..self.n * LANES].fill(0.0);
        self.scratch.max[..self.n].fill(f32::NEG_INFINITY);
    }

    /// Divides by the sums of weights and writes the outputs.
    #[inline(always)]
    fn finish<S: Simd>(&self, s: S, vectors: usize) {
        for i in 0..self.n {
            let total = s.reduce_add(s.load_slice(&self.scratch.sums[i * LANES..]));
            let from = &self.scratch.outputs[i * vectors * LANES..][..vectors * LANES];
            // SAFETY: the tile has the heads of its queries to itself, and this is the only borrow of this one.
            let to = unsafe { self.out.head(self.offset(i), self.params.head_dim()) };
            if total == 0.0 {
                // The largest score weighs 1, so there was none above -inf.
                to.fill(0.0);
                continue;
            }
            for (x, y) in from.chunks_exact(LANES).zip(to.chunks_mut(LANES)) {
                let x = one_nan(s, s.div(s.load_slice(x), s.splat(total)));
                if y.len() == LANES { s.store_slice(y, x) } else { s.store_partial(y, x) }
            }
        }
    }

    /// Takes the tile's queries through the block at position `start`.
    #[inline(always)]
    fn block<S: Simd, T: Element>(&mut self, s: S, vectors: usize, start: usize, keys: &[T], values: &[T]) {
        let mut weights = Weights([[0.0; BLOCK]; QUAD]);
        let mut i = 0;
        while i < self.n {
            i += match self.n - i {
                QUAD.. => self.quad::<S, T, QUAD>(s, vectors, start, i, keys, values, &mut weights),
                3 => self.quad::<S, T, 3>(s, vectors, start, i, keys, values, &mut weights),
                _ => self.quad::<S, T, 1>(s, vectors, start, i, keys, values, &mut weights),
            };
        }
    }

    /// Takes the queries `first .. first + L` through a block, and returns `L`.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "a part of `block`, for each number of queries")]
    fn quad<S: Simd, T: Element, const L: usize>(
        &mut self,
        s: S,
        vectors: usize,
        start: usize,
        first: usize,
        keys: &[T],
        values: &[T],
        weights: &mut Weights,
    ) -> usize {
        let stride = vectors * LANES;
        let mut seen = [0; L];
        for (i, seen) in seen.iter_mut().enumerate() {
            *seen = self.visible(first + i).saturating_sub(start).min(BLOCK);
        }
        // Later queries see at least as much as earlier ones.
        let (all, most) = (seen[0], seen[L - 1]);
        if most == 0 {
            return L;
        }
        let q = &self.scratch.queries[first * stride..][..L * stride];
        let outputs = &mut self.scratch.outputs[first * stride..][..L * stride];
        let (keys, values) = (&keys[..most * stride], &values[..most * stride]);
        // SAFETY: `q` has `L` and `keys` has `most` times `vectors * 16` elements; `most` is 1 to `BLOCK`.
        unsafe { scores::<S, T, L>(s, vectors, q.as_ptr(), keys.as_ptr(), most, weights) };
        let mut alpha = [s.splat(1.0); L];
        for i in 0..L {
            if seen[i] > 0 {
                let sums = &mut self.scratch.sums[(first + i) * LANES..][..LANES];
                alpha[i] = softmax(s, &mut weights.0[i], seen[i], &mut self.scratch.max[first + i], sums);
            }
        }
        let (v, o) = (values.as_ptr(), outputs.as_mut_ptr());
        // SAFETY: `outputs` has `L` and `values` has `most >= all` times `vectors * 16` elements; `L <= QUAD`.
        unsafe { add_values::<S, T, L>(s, vectors, weights, 0, (0, all), alpha, v, o) };
        for i in 0..L {
            if seen[i] > all {
                // SAFETY: output `i` is one of the `L`.
                let o = unsafe { o.add(i * stride) };
                let one = [s.splat(1.0)];
                // SAFETY: `vectors * 16` outputs are at `o`, and `seen[i] <= most`; `i < L <= QUAD`.
                unsafe { add_values::<S, T, 1>(s, vectors, weights, i, (all, seen[i]), one, v, o) };
            }
        }
        L
    }
}

impl<E: Element, const VECTORS: usize> Kernel for Tile<'_, E, VECTORS> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let vectors = if VECTORS == 0 { self.params.head_dim().div_ceil(LANES) } else { VECTORS };
        let stride = vectors * LANES;
        self.begin(s, vectors);
        // Below that, every stored number is converted once anyway, and faster in registers.
        let widen = E::CONVERTS && self.n > QUAD;
        let last = self.visible(self.n - 1);
        for start in (0..last).step_by(BLOCK) {
            let block = start * stride..last.min(start + BLOCK) * stride;
            let (keys, values) = (&self.keys[block.clone()], &self.values[block]);
            if widen {
                let wide_keys = core::mem::take(&mut self.scratch.keys);
                let wide_values = core::mem::take(&mut self.scratch.values);
                widen_block(s, keys, wide_keys);
                widen_block(s, values, wide_values);
                self.block(s, vectors, start, wide_keys, wide_values);
                (self.scratch.keys, self.scratch.values) = (wide_keys, wide_values);
            } else {
                self.block(s, vectors, start, keys, values);
            }
        }
        self.finish(s, vectors);
    }
}

/// `from` as f32, at the beginning of `to`. Lengths are multiples of 16.
#[inline(always)]
fn widen_block<S: Simd, E: Element>(s: S, from: &[E], to: &mut [f32]) {
    for (x, y) in from.chunks_exact(LANES).zip(to.chunks_exact_mut(LANES)) {
        // SAFETY: `x` has 16 elements.
        s.store_slice(y, unsafe { E::load(s, x.as_ptr()) });
    }
}

/// `x`, with every NaN replaced by the quiet NaN of positive sign and empty payload: which NaN an operation
/// returns is the one thing that instruction sets disagree about.
#[inline(always)]
fn one_nan<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let nan = s.splat(f32::from_bits(0x7fc0_0000));
    let not_negative = s.select_lt(s.splat(-1.0), x, x, nan);
    s.select_lt(x, s.splat(0.0), x, not_negative)
}
