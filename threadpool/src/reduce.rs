//! A reduction whose result does not depend on timing.

use std::ops::Range;

use crate::ThreadPool;

/// Parts that a reduction is cut into when the caller does not say.
const DEFAULT_PARTS: usize = 64;

impl ThreadPool {
    /// Calls `map(range)` for each chunk of `0..n_items` and combines the results in the order of the chunks, from
    /// left to right: `combine(combine(r0, r1), r2)`, ... `None` if there are no items.
    ///
    /// `chunk` 0 means a 64th of the items, rounded up. Chunks are cut as by [`par_ranges`](Self::par_ranges), and
    /// unlike there their default does not depend on the number of threads either. So the result depends on the
    /// arguments alone, to the last bit, also where combining is not associative, as with floats.
    ///
    /// The results are combined by the calling thread, once all are there; the call allocates a place for each.
    /// A chunk is the item of the [common rules](Self).
    ///
    /// # Panics
    ///
    /// With the payload of a `map`, after it has been called for all chunks; or with that of a `combine`.
    ///
    /// ```
    /// # let pool = halfbyte_threadpool::ThreadPool::new(2)?;
    /// let x: Vec<f32> = (1..=1000).map(|i| 1.0 / i as f32).collect();
    /// let sum = pool.par_reduce(x.len(), 100, |range| x[range].iter().sum::<f32>(), |a, b| a + b);
    /// let expected = x.chunks(100).map(|part| part.iter().sum::<f32>()).reduce(|a, b| a + b);
    /// assert_eq!(sum, expected);
    /// # Ok::<(), halfbyte_threadpool::Error>(())
    /// ```
    pub fn par_reduce<T, M, C>(&self, n_items: usize, chunk: usize, map: M, combine: C) -> Option<T>
    where
        T: Send,
        M: Fn(Range<usize>) -> T + Sync,
        C: FnMut(T, T) -> T,
    {
        let chunk = if chunk == 0 { n_items.div_ceil(DEFAULT_PARTS).max(1) } else { chunk };
        let mut results: Vec<Option<T>> = (0..n_items.div_ceil(chunk)).map(|_| None).collect();
        self.par_chunks_mut(&mut results, 1, |part, result| {
            let start = part * chunk;
            result[0] = Some(map(start..n_items.min(start.saturating_add(chunk))));
        });
        results.into_iter().flatten().reduce(combine)
    }
}
