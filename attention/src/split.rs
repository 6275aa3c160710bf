//! How the queries of a call are shared among threads. The result does not depend on it, only the speed.

use crate::tile::MAX_QUERIES;

/// The items of work of a call, each being some consecutive queries of one key/value head.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Split {
    /// Queries of a key/value head.
    queries: usize,
    n_kv_heads: usize,
    /// The number of heads that are cut into tiles of `tile` queries; the heads after them are cut into tiles of
    /// `last_tile`.
    even_heads: usize,
    tile: usize,
    last_tile: usize,
}

impl Split {
    /// Splits the work of a call.
    ///
    /// With few queries (a decode step) a head is one tile, because its queries share each load of a key. Only the heads
    /// that remain after every thread has the same number of them are cut, into as many tiles as there are threads for
    /// each. Many queries are cut into tiles of [`MAX_QUERIES`], or smaller ones if there were fewer than three tiles a
    /// thread: later rows see more keys than earlier ones, so tiles differ in their work.
    pub(crate) fn new(queries: usize, n_kv_heads: usize, threads: usize) -> Self {
        let (tile, last_tile) = if threads == 1 {
            (MAX_QUERIES, MAX_QUERIES)
        } else if queries <= MAX_QUERIES {
            let left = n_kv_heads % threads;
            let pieces = threads.checked_div(left).unwrap_or(1);
            (MAX_QUERIES, queries.div_ceil(pieces))
        } else {
            let share = (queries * n_kv_heads).div_ceil(3 * threads).next_multiple_of(4).min(MAX_QUERIES);
            (share, share)
        };
        let even_heads = n_kv_heads - n_kv_heads % threads;
        Self { queries, n_kv_heads, even_heads, tile: tile.max(1), last_tile: last_tile.max(1) }
    }

    /// Number of items.
    pub(crate) fn items(self) -> usize {
        let last_heads = self.n_kv_heads - self.even_heads;
        self.even_heads * self.queries.div_ceil(self.tile)
            + last_heads * self.queries.div_ceil(self.last_tile)
    }

    /// The key/value head, the first query and the number of queries of item `i`.
    ///
    /// The tiles of a head follow each other, so that its keys stay in a shared cache. Later queries come first: they see
    /// more keys, and so the items that are claimed last are the short ones.
    pub(crate) fn item(self, i: usize) -> (usize, usize, usize) {
        let even = self.even_heads * self.queries.div_ceil(self.tile);
        let (i, head, tile) =
            if i < even { (i, 0, self.tile) } else { (i - even, self.even_heads, self.last_tile) };
        let tiles = self.queries.div_ceil(tile);
        let first = (tiles - 1 - i % tiles) * tile;
        (head + i / tiles, first, tile.min(self.queries - first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_query_is_in_one_item() {
        for queries in [0, 1, 3, 4, 24, 64, 65, 200] {
            for heads in 1..10 {
                for threads in [1, 2, 3, 5, 12, 64] {
                    let split = Split::new(queries, heads, threads);
                    let mut seen = vec![0; queries * heads];
                    for i in 0..split.items() {
                        let (head, first, n) = split.item(i);
                        assert!(n > 0 && n <= MAX_QUERIES && first + n <= queries, "{split:?}");
                        seen[head * queries..][first..first + n].iter_mut().for_each(|s| *s += 1);
                    }
                    assert!(seen.iter().all(|&s| s == 1), "{split:?}");
                }
            }
        }
    }

    #[test]
    fn a_decode_step_is_balanced() {
        let sizes = |queries, heads, threads| {
            let split = Split::new(queries, heads, threads);
            (0..split.items()).map(|i| split.item(i).2).collect::<Vec<_>>()
        };
        assert_eq!(sizes(3, 3, 1), [3; 3]);
        assert_eq!(sizes(3, 3, 2), [3, 3, 1, 2]);
        assert_eq!(sizes(4, 8, 4), [4; 8]);
        assert_eq!(sizes(4, 8, 12), [4; 8]);
        assert_eq!(sizes(4, 8, 16), [2; 16]);
    }
}
