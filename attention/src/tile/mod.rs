//! The kernel: attention of a tile of queries, which share a key/value head, to all keys that they see.
//!
//! Here a *query* is the vector of one row and one head. Keys are processed in blocks of 64, which start at the absolute
//! positions 0, 64, 128, and so on. All queries of the tile go through a block before the next one begins, four queries
//! (a *quad*) at a time:
//!
//! ```text
//!            block 0   block 1   block 2
//! query 0    xxxxxxxx  xxx                 scores -> soft cap -> online softmax -> weighted values
//! query 1    xxxxxxxx  xxxx                The output of a query depends on its own row of x only,
//! query 2    xxxxxxxx  xxxxx               to the bit: not on the other queries of the quad or the
//! query 3    xxxxxxxx  xxxxxx              tile, not on the registers, not on the thread.
//! ```
//!
//! Eight blocks are a *chunk*, whose partial sums start from zero. Chunks are merged in order: by the thread that computed
//! them or, where several threads share the chunks of a head, after all of them are done. Both give the same sum.
//!
//! The formulas, with the order of every sum, are in `scores`, `soft_cap`, `softmax`, `values` and `state`. Queries are
//! multiplied by the scale first; at the end outputs are divided by the sum of weights.

#![allow(clippy::needless_range_loop, reason = "one index runs over several arrays of registers")]

mod queries;
mod scores;
mod scratch;
mod soft_cap;
mod softmax;
mod state;
mod values;

use crate::rows::{Element, KvType, Rows};
use half::f16;
use halfbyte_cpu_kernels::simd::{Kernel, LANES, Simd};
use halfbyte_threadpool::DisjointMut;
use scores::scores;
use soft_cap::SoftCap;
use softmax::Softmax;
use state::State;
use values::add_values;

pub(crate) use queries::Queries;
pub(crate) use scratch::{Scratch, with_parts, with_scratch};
pub(crate) use state::record;

/// The number of keys in a block. The bits of the result depend on it: the running maximum changes between blocks.
const BLOCK: usize = 64;
/// The number of keys in a chunk. The bits of the result depend on it: every chunk has partial sums of its own.
pub(crate) const CHUNK: usize = 8 * BLOCK;
/// The number of queries that go through a block together.
const QUAD: usize = 4;
/// The largest number of queries in a tile. With heads of 64 numbers their state takes 40 KiB, which leaves most of an L2
/// cache to keys.
pub(crate) const MAX_QUERIES: usize = 64;

/// One logit for each query head, if there are any.
pub(crate) type Sinks<'a> = Option<&'a [f32]>;

/// The scores of a quad with a block, which the softmax then replaces by weights.
#[repr(align(64))]
struct Weights([[f32; BLOCK]; QUAD]);

/// Whether sixteen vectors and their operands fit in registers, so that four queries can share each loaded key.
#[inline(always)]
const fn register_rich<S: Simd>() -> bool {
    S::FLOAT_TILE >= 16
}

/// Whether the ISA has vector registers. Without them, the variants of a tile for usual head sizes and for several queries
/// are no faster than the general one; they are not compiled then, because they are most of the code of this crate.
#[inline(always)]
const fn has_vectors<S: Simd>() -> bool {
    S::FLOAT_TILE > 1
}

/// Where the results of a tile go.
pub(crate) enum Goal<'a> {
    /// The merged result of all chunks goes to the output rows. No other tile writes the heads of its queries.
    Output(DisjointMut<'a, f32>),
    /// The result of one chunk goes to these records, one a query.
    Chunk(usize, &'a mut [f32]),
}

/// A tile, ready to run.
pub(crate) struct Tile<'a> {
    /// From 1 to [`MAX_QUERIES`] queries.
    pub(crate) queries: Queries<'a>,
    /// All query rows.
    pub(crate) q: &'a [f32],
    /// The keys of the key/value head, at least as many as the last query sees.
    pub(crate) keys: Rows<'a>,
    /// Its values, as many.
    pub(crate) values: Rows<'a>,
    /// Working memory for heads of that many vectors.
    pub(crate) scratch: Scratch<'a>,
    pub(crate) goal: Goal<'a>,
}

impl Tile<'_> {
    /// Copies the queries to working memory, scaled and padded.
    #[inline(always)]
    fn begin<S: Simd>(&mut self, s: S, vectors: usize) {
        let stride = vectors * LANES;
        let params = self.queries.params;
        let scale = s.splat(params.scale());
        for i in 0..self.queries.n {
            let from = &self.q[self.queries.offset(i)..][..params.head_dim()];
            let to = &mut self.scratch.queries[i * stride..][..stride];
            for (x, y) in from.chunks(LANES).zip(to.chunks_exact_mut(LANES)) {
                let x = if x.len() == LANES { s.load_slice(x) } else { s.load_partial(x) };
                s.store_slice(y, s.mul(x, scale));
            }
        }
    }

    /// Processes the blocks of chunk `chunk`; `records` becomes the state of every query for that chunk alone.
    #[inline(always)]
    fn chunk<S: Simd, const VECTORS: usize>(
        &mut self,
        s: S,
        vectors: usize,
        chunk: usize,
        records: &mut [f32],
    ) {
        for record in records.chunks_exact_mut(record(vectors)) {
            State::of(record).reset();
        }
        let queries = self.queries;
        let first = queries.visible(0).start.max(chunk * CHUNK);
        let last = queries.visible(queries.n - 1).end.min((chunk + 1) * CHUNK);
        let keys_memory = core::mem::take(&mut self.scratch.keys);
        let values_memory = core::mem::take(&mut self.scratch.values);
        for start in (first / BLOCK * BLOCK..last).step_by(BLOCK) {
            let range = (start, last.min(start + BLOCK));
            // One quad reads every number once, and then f16 is widened faster in registers than through memory.
            #[allow(clippy::collapsible_if, reason = "a constant alone keeps the branch from being compiled")]
            if const { VECTORS > 0 } {
                if queries.n <= QUAD && self.keys.kind == KvType::F16 {
                    let block: (&[f16], &[f16]) = (self.keys.halves(range), self.values.halves(range));
                    self.block(s, vectors, start, block, records);
                    continue;
                }
            }
            let keys = self.keys.widened(s, vectors, range, keys_memory);
            let values = self.values.widened(s, vectors, range, values_memory);
            self.block(s, vectors, start, (keys, values), records);
        }
        (self.scratch.keys, self.scratch.values) = (keys_memory, values_memory);
    }

    /// Processes the block at position `start` for all queries of the tile.
    #[inline(always)]
    fn block<S: Simd, E: Element>(
        &self,
        s: S,
        vectors: usize,
        start: usize,
        block: (&[E], &[E]),
        records: &mut [f32],
    ) {
        let mut weights = Weights([[0.0; BLOCK]; QUAD]);
        let mut i = 0;
        while i < self.queries.n {
            if const { has_vectors::<S>() } {
                i += match self.queries.n - i {
                    QUAD.. => self.quad::<S, E, QUAD>(s, vectors, start, i, block, records, &mut weights),
                    3 => self.quad::<S, E, 3>(s, vectors, start, i, block, records, &mut weights),
                    _ => self.quad::<S, E, 1>(s, vectors, start, i, block, records, &mut weights),
                };
            } else {
                i += self.quad::<S, E, 1>(s, vectors, start, i, block, records, &mut weights);
            }
        }
    }

    /// Processes a block for the queries `first .. first + L`, and returns `L`.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "a part of `block`, for each number of queries")]
    fn quad<S: Simd, E: Element, const L: usize>(
        &self,
        s: S,
        vectors: usize,
        start: usize,
        first: usize,
        (keys, values): (&[E], &[E]),
        records: &mut [f32],
        weights: &mut Weights,
    ) -> usize {
        let (stride, record, prefetch) = (vectors * LANES, record(vectors), self.queries.prefetch);
        let mut seen = [(0, 0); L];
        // The keys that any query sees, and those that all see.
        let (mut any, mut all) = ((BLOCK, 0), (0, BLOCK));
        for (i, seen) in seen.iter_mut().enumerate() {
            let range = self.queries.visible(first + i);
            let inside = |position: usize| position.saturating_sub(start).min(BLOCK);
            *seen = (inside(range.start), inside(range.end));
            if seen.0 < seen.1 {
                any = (any.0.min(seen.0), any.1.max(seen.1));
            }
            all = (all.0.max(seen.0), all.1.min(seen.1));
        }
        if any.0 >= any.1 {
            return L;
        }
        if all.0 >= all.1 {
            all = (BLOCK, BLOCK);
        }
        let q = &self.scratch.queries[first * stride..][..L * stride];
        let records = &mut records[first * record..][..L * record];
        let panels = (any.0 / LANES, any.1.div_ceil(LANES));
        let (keys, values) = (&keys[..panels.1 * LANES * stride], &values[..any.1 * stride]);
        let from = panels.0 * LANES;
        // SAFETY: `q` has `L` and `keys` has `16 * panels.1` times `vectors * 16` elements; at most four panels are a block.
        unsafe { scores::<S, E, L>(s, stride, q.as_ptr(), keys.as_ptr(), panels, prefetch, weights) };
        if let Some(cap) = self.queries.params.soft_cap() {
            s.vectorize(SoftCap { cap, scores: &mut weights.0[..L], from, to: any.1 });
        }
        let mut alpha = [s.splat(1.0); L];
        for i in 0..L {
            if seen[i].0 < seen[i].1 {
                let state = State::of(&mut records[i * record..][..record]);
                let (scores, seen) = (&mut weights.0[i], seen[i]);
                let kernel = Softmax { scores, seen, max: state.max, sums: state.sums };
                alpha[i] = s.splat(s.vectorize(kernel));
            }
        }
        let (v, o) = (values.as_ptr(), records.as_mut_ptr());
        // First the keys before `all` that some queries see, then `all`, then the keys after it that some queries see. So every
        // query adds its values in the order of the keys.
        for behind in [false, true] {
            for i in 0..L {
                let part = if behind {
                    (seen[i].0.max(all.1), seen[i].1)
                } else {
                    (seen[i].0, seen[i].1.min(all.0))
                };
                if part.0 < part.1 {
                    // SAFETY: record `i` is one of the `L`.
                    let o = unsafe { o.add(i * record) };
                    // SAFETY: a record is at `o`, and `part.1 <= any.1` values are at `v`; `i < L <= QUAD`.
                    unsafe {
                        add_values::<S, E, 1>(s, vectors, weights, i, part, [alpha[i]], v, o, prefetch)
                    };
                    alpha[i] = s.splat(1.0);
                }
            }
            if !behind && all.0 < all.1 {
                // SAFETY: `L` records are at `o`, and `all.1 <= any.1` values at `v`; `L <= QUAD`.
                unsafe { add_values::<S, E, L>(s, vectors, weights, 0, all, alpha, v, o, prefetch) };
                alpha = [s.splat(1.0); L];
            }
        }
        L
    }
}

impl Tile<'_> {
    /// Runs the tile. `VECTORS` is the number of 16-lane vectors of a head, or 0 where it is only known at run time.
    #[inline(always)]
    fn run_with<S: Simd, const VECTORS: usize>(mut self, s: S) {
        let queries = self.queries;
        let vectors = if VECTORS == 0 { queries.params.head_dim().div_ceil(LANES) } else { VECTORS };
        let record = record(vectors);
        self.begin(s, vectors);
        let total = &mut core::mem::take(&mut self.scratch.total)[..queries.n * record];
        let mut own = core::mem::take(&mut self.scratch.chunk);
        let chunks = match &mut self.goal {
            Goal::Output(_) => {
                total.chunks_exact_mut(record).for_each(|record| State::of(record).reset());
                queries.all_chunks()
            }
            Goal::Chunk(chunk, records) => {
                own = core::mem::take(records);
                *chunk..*chunk + 1
            }
        };
        let own = &mut own[..queries.n * record];
        for chunk in chunks {
            self.chunk::<S, VECTORS>(s, vectors, chunk, own);
            if let Goal::Output(_) = self.goal {
                for i in 0..queries.n {
                    let at = i * record..(i + 1) * record;
                    add_chunk(s, queries.chunks(i), chunk, &mut total[at.clone()], &own[at]);
                }
            }
        }
        if let Goal::Output(out) = self.goal {
            for (i, record) in total.chunks_exact_mut(record).enumerate() {
                // SAFETY: every query has a head of `head_dim` numbers of its own in the output, every query is in one tile,
                // and this slice of query `i` is gone before the next one is made.
                let to = unsafe { out.part(queries.offset(i), queries.params.head_dim()) };
                State::of(record).finish(s, queries.sink(i), to);
            }
        }
    }
}

impl Kernel for Tile<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // Heads of 64 and 128 have loops of constant length.
        if const { has_vectors::<S>() } {
            match self.queries.params.head_dim().div_ceil(LANES) {
                4 => return self.run_with::<S, 4>(s),
                8 => return self.run_with::<S, 8>(s),
                _ => {}
            }
        }
        self.run_with::<S, 0>(s);
    }
}

/// Merges the record of chunk `chunk` into `total`, the merged record of the earlier chunks, if the query sees that chunk:
/// it sees `chunks`.
#[inline(always)]
fn add_chunk<S: Simd>(
    s: S,
    chunks: core::ops::Range<usize>,
    chunk: usize,
    total: &mut [f32],
    record: &[f32],
) {
    if chunk == chunks.start && !chunks.is_empty() {
        total.copy_from_slice(record);
    } else if chunks.contains(&chunk) {
        State::of(total).merge(s, record);
    }
}

/// Merges the records of all chunks of a key/value head's queries and writes the output.
pub(crate) struct Merge<'a> {
    pub(crate) queries: Queries<'a>,
    /// The records of all queries for the first chunk, for the second, and so on.
    pub(crate) records: &'a [f32],
    /// Working memory for one record.
    pub(crate) total: &'a mut [f32],
    /// All output rows; no other item writes these queries' heads.
    pub(crate) out: DisjointMut<'a, f32>,
}

impl Kernel for Merge<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let queries = self.queries;
        let record = self.total.len();
        for i in 0..queries.n {
            State::of(self.total).reset();
            for (chunk, records) in queries.all_chunks().zip(self.records.chunks_exact(queries.n * record)) {
                add_chunk(s, queries.chunks(i), chunk, self.total, &records[i * record..][..record]);
            }
            // SAFETY: every query has a head of `head_dim` numbers of its own in the output, one item merges all chunks of a
            // key/value head's queries, and this slice of query `i` is gone before the next one is made.
            let to = unsafe { self.out.part(queries.offset(i), queries.params.head_dim()) };
            State::of(self.total).finish(s, queries.sink(i), to);
        }
    }
}
