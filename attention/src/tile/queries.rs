//! The queries of a tile: which they are, where they are stored, and which keys they see.

use super::{CHUNK, Sinks};
use crate::params::AttentionParams;
use core::ops::Range;

/// Consecutive queries of one key/value head. Queries are numbered row by row and, within a row, head by head.
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
    /// The number of the first query.
    pub(crate) first: usize,
    /// How many queries there are.
    pub(crate) n: usize,
    /// Whether to prefetch the next block of keys and values.
    pub(crate) prefetch: bool,
}

impl Queries<'_> {
    /// The query head of query `i`.
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

    /// The keys that query `i` sees. Neither end is less than that of the query before it.
    #[inline(always)]
    pub(super) fn visible(&self, i: usize) -> Range<usize> {
        let row = (self.first + i) / self.params.group();
        self.params.visible(self.first_position + row, self.len)
    }

    /// The chunks of keys of which query `i` sees at least one key.
    #[inline(always)]
    pub(super) fn chunks(&self, i: usize) -> Range<usize> {
        let seen = self.visible(i);
        if seen.is_empty() { 0..0 } else { seen.start / CHUNK..seen.end.div_ceil(CHUNK) }
    }

    /// The chunks of keys of which any query sees at least one key.
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
