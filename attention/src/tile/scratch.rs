//! Working memory of a thread: what a tile keeps between blocks.

use super::{BLOCK, MAX_QUERIES};
use bytemuck::{Pod, Zeroable};
use core::cell::RefCell;
use halfbyte_cpu_kernels::simd::LANES;

/// A vector on a cache line of its own.
#[repr(C, align(64))]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Line([f32; LANES]);

thread_local! {
    static MEMORY: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// The slices of a tile of `n` queries whose heads are `vectors` vectors. Contents are left over from earlier tiles.
pub(crate) struct Scratch<'a> {
    /// The queries, scaled and padded: `n * vectors * 16`.
    pub(crate) queries: &'a mut [f32],
    /// The outputs so far, not yet divided by the sum of weights: as `queries`.
    pub(crate) outputs: &'a mut [f32],
    /// The sums of weights so far, in lanes: `n * 16`.
    pub(crate) sums: &'a mut [f32],
    /// The largest scores so far: `n`, rounded up to 16.
    pub(crate) max: &'a mut [f32],
    /// A widened block of keys: `BLOCK * vectors * 16`.
    pub(crate) keys: &'a mut [f32],
    /// A widened block of values.
    pub(crate) values: &'a mut [f32],
}

/// Calls `f` with this thread's working memory, which grows to the largest head seen and is kept.
pub(crate) fn with_scratch(vectors: usize, f: impl FnOnce(Scratch<'_>)) {
    MEMORY.with_borrow_mut(|memory| {
        let lines = MAX_QUERIES * (2 * vectors + 1) + MAX_QUERIES.div_ceil(LANES) + 2 * BLOCK * vectors;
        if memory.len() < lines {
            memory.resize(lines, Line::zeroed());
        }
        let all: &mut [f32] = bytemuck::cast_slice_mut(memory);
        let (queries, all) = all.split_at_mut(MAX_QUERIES * vectors * LANES);
        let (outputs, all) = all.split_at_mut(MAX_QUERIES * vectors * LANES);
        let (sums, all) = all.split_at_mut(MAX_QUERIES * LANES);
        let (max, all) = all.split_at_mut(MAX_QUERIES.next_multiple_of(LANES));
        let (keys, all) = all.split_at_mut(BLOCK * vectors * LANES);
        let values = &mut all[..BLOCK * vectors * LANES];
        f(Scratch { queries, outputs, sums, max, keys, values });
    });
}
