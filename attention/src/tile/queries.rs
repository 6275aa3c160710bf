//! Which queries a tile has, where they lie, and what they see.

use super::{CHUNK, Sinks};
use crate::params::AttentionParams;
use core::ops::Range;

/// Some consecutive queries of one key/value head, counted row by row and, within a row, head by head.
#[derive(Clone, Copy)]
pub(crate) struct Queries<'a> {
    pub(crate) params: AttentionParams,
    /// A logit for each query head.
    pub(crate) sinks: Sinks<'a>,
    /// Keys in the cache.
    pub(crate) len: usize,
    /// Which key/value head.
    pub(crate) kv_head: usize,
    /// Position of query row 0.
    pub(crate) first_position: usize,
    pub(crate) first: usize,
    pub(crate) n: usize,
    /// Whether to ask for the next block of keys and values while one is read.
    pub(crate) asks_ahead: bool,
}

impl Queries<'_> {
    /// Which query head query `i` is of.
    #[inline(always)]
    fn head(&self, i: usize) -> usize {
        self.kv_head * self.params.group() + (self.first + i) % self.params.group()
    }

    /// Where query `i` begins in the query rows and in the output.
    #[inline(always)]
    pub(super) fn offset(&self, i: usize) -> usize {
        let row = (self.first + i) / self.params.group();
        (row * self.params.n_heads() + self.head(i)) * self.params.head_dim()
    }

    /// The keys that query `i` sees; both ends are never below those of the query before it.
    #[inline(always)]
    pub(super) fn visible(&self, i: usize) -> Range<usize> {
        let row = (self.first + i) / self.params.group();
        self.params.visible(self.first_position + row, self.len)
    }

    /// The chunks of keys that query `i` sees some of.
    #[inline(always)]
    pub(super) fn chunks(&self, i: usize) -> Range<usize> {
        let seen = self.visible(i);
        if seen.is_empty() { 0..0 } else { seen.start / CHUNK..seen.end.div_ceil(CHUNK) }
    }

    /// The chunks that any query sees some of.
    pub(crate) fn all_chunks(&self) -> Range<usize> {
        let (first, last) = (self.visible(0), self.visible(self.n - 1));
        let range = first.start / CHUNK..last.end.div_ceil(CHUNK);
        if range.is_empty() { 0..0 } else { range }
    }

    /// The sink of query `i`.
    #[inline(always)]
    pub(super) fn sink(&self, i: usize) -> Option<f32> {
        self.sinks.map(|sinks| sinks[self.head(i)])
    }
}
