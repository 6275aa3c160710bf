//! Sixteen rows to a panel, bit for bit.

use crate::simd::{LANES, Simd};

/// Word `k` of row `r`, rows `stride` apart, becomes word `16 k + r` of `panel`.
///
/// # Panics
/// If the rows do not reach so far.
#[inline(always)]
pub(super) fn transpose_words<S: Simd>(s: S, rows: &[u32], stride: usize, panel: &mut [u32]) {
    let mut at = 0;
    let mut quads = panel.chunks_exact_mut(4 * LANES);
    for quad in &mut quads {
        let span = &rows[at..at + (LANES - 1) * stride + 4];
        // SAFETY: `span` reaches from the four words of row 0 to the end of those of row 15.
        let columns = unsafe { s.load_rows(span.as_ptr().cast(), stride * size_of::<u32>()) };
        for (column, words) in columns.into_iter().zip(quad.chunks_exact_mut(LANES)) {
            // SAFETY: `words` are 16.
            unsafe { s.store_u32(words.as_mut_ptr(), column) };
        }
        at += 4;
    }
    one_by_one(rows, stride, at, quads.into_remainder());
}

/// The same with numbers of 16 bits.
///
/// # Panics
/// If the rows do not reach so far.
#[inline(always)]
pub(super) fn transpose_halves<S: Simd>(s: S, rows: &[u16], stride: usize, panel: &mut [u16]) {
    let mut at = 0;
    let mut eights = panel.chunks_exact_mut(8 * LANES);
    for eight in &mut eights {
        let span = &rows[at..at + (LANES - 1) * stride + 8];
        // SAFETY: `span` reaches from the eight numbers of row 0 to the end of those of row 15.
        let pairs = unsafe { s.load_rows(span.as_ptr().cast(), stride * size_of::<u16>()) };
        for (pair, numbers) in pairs.into_iter().zip(eight.chunks_exact_mut(2 * LANES)) {
            let (first, second) = numbers.split_at_mut(LANES);
            // SAFETY: `first` are 16 numbers.
            unsafe { s.store_u16(first.as_mut_ptr(), pair) };
            // SAFETY: `second` are 16 numbers.
            unsafe { s.store_u16(second.as_mut_ptr(), s.shr::<16>(pair)) };
        }
        at += 8;
    }
    one_by_one(rows, stride, at, eights.into_remainder());
}

/// The numbers from `at` on of each row.
#[inline(always)]
fn one_by_one<T: Copy>(rows: &[T], stride: usize, at: usize, panel: &mut [T]) {
    for (k, column) in panel.chunks_exact_mut(LANES).enumerate() {
        for (r, number) in column.iter_mut().enumerate() {
            *number = rows[r * stride + at + k];
        }
    }
}
