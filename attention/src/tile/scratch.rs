//! The working memory of a thread: what a tile keeps between blocks, and what a call keeps between its two passes.

use super::{BLOCK, MAX_QUERIES, record};
use bytemuck::{Pod, Zeroable};
use core::cell::RefCell;
use halfbyte_cpu_kernels::simd::LANES;

/// A vector on a cache line of its own.
#[repr(C, align(64))]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Line([f32; LANES]);

thread_local! {
    static MEMORY: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
    /// Separate from `MEMORY`, because a call keeps it borrowed while its thread works on tiles.
    static PARTS: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// The slices that a tile with heads of `vectors` vectors needs. They hold leftovers of earlier tiles.
pub(crate) struct Scratch<'a> {
    /// The queries, scaled and padded: `MAX_QUERIES * vectors * 16`.
    pub(crate) queries: &'a mut [f32],
    /// The records of a chunk: `MAX_QUERIES`.
    pub(crate) chunk: &'a mut [f32],
    /// The merged records of the chunks so far.
    pub(crate) total: &'a mut [f32],
    /// A widened block of keys: `BLOCK * vectors * 16`.
    pub(crate) keys: &'a mut [f32],
    /// A widened block of values.
    pub(crate) values: &'a mut [f32],
}

/// Calls `f` with this thread's working memory, which grows to the largest head seen and is kept.
pub(crate) fn with_scratch<R>(vectors: usize, f: impl FnOnce(Scratch<'_>) -> R) -> R {
    let sizes = [
        MAX_QUERIES * vectors * LANES,
        MAX_QUERIES * record(vectors),
        MAX_QUERIES * record(vectors),
        BLOCK * vectors * LANES,
        BLOCK * vectors * LANES,
    ];
    MEMORY.with_borrow_mut(|memory| {
        let mut rest = grown(memory, sizes.iter().sum());
        let [queries, chunk, total, keys, values] = sizes.map(|size| {
            let (slice, others) = core::mem::take(&mut rest).split_at_mut(size);
            rest = others;
            slice
        });
        f(Scratch { queries, chunk, total, keys, values })
    })
}

/// Calls `f` with `len` numbers of this thread's memory, which hold leftovers of earlier calls.
pub(crate) fn with_parts<R>(len: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    PARTS.with_borrow_mut(|memory| f(grown(memory, len)))
}

fn grown(memory: &mut Vec<Line>, len: usize) -> &mut [f32] {
    let lines = len.div_ceil(LANES);
    if memory.len() < lines {
        memory.resize(lines, Line::zeroed());
    }
    &mut bytemuck::cast_slice_mut(memory)[..len]
}
