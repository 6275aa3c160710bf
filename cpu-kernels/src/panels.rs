//! How the panels of a product, sixteen rows each, are shared among threads and read.

use crate::output::Output;
use crate::simd::LANES;
use core::ops::Range;
use halfbyte_threadpool::ThreadPool;

/// Calls `f` with the number of a matrix and a range of its panels, on the threads of `pool`, until every panel was in
/// one range. The panels of all matrices, whose outputs these are, are counted as if they were one matrix's.
pub(crate) fn share_panels(
    pool: &ThreadPool,
    outputs: &[Output<'_>],
    f: impl Fn(usize, Range<usize>) + Sync,
) {
    let panels = || outputs.iter().map(|output| output.rows().div_ceil(LANES));
    pool.par_ranges(panels().sum(), 0, |range| {
        let mut first = 0;
        for (matrix, count) in panels().enumerate() {
            let (start, end) = (range.start.max(first), range.end.min(first + count));
            if start < end {
                f(matrix, start - first..end - first);
            }
            first += count;
        }
    });
}

/// The numbers of `range` in pairs that are half the range apart, and the last one if it has no partner: for one token,
/// two streams bring more from memory than one.
#[inline(always)]
pub(crate) fn two_streams(range: Range<usize>) -> (impl Iterator<Item = [usize; 2]>, Option<usize>) {
    let (start, half) = (range.start, range.len() / 2);
    let last = (range.len() % 2 == 1).then(|| range.end - 1);
    ((start..start + half).map(move |panel| [panel, panel + half]), last)
}
