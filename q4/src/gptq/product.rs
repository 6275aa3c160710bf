//! Products of f64 matrices, one register tile at a time.
//!
//! Each sum has one chain of a multiplication and an addition a step, in the order of the inner index, and nothing is
//! fused: a result is the same on every machine. The tile is four by four, which is what sixteen registers of two
//! numbers hold beside their operands, so that the baseline of x86-64 runs it well without run-time dispatch.

/// Rows of a tile.
pub(super) const ROWS: usize = 4;

/// Columns of a tile.
pub(super) const COLUMNS: usize = 4;

/// Terms of a sum that one pass adds up, so that the operands of a pass stay in the nearest caches.
pub(super) const DEPTH: usize = 128;

/// The sums over `k` of `a[i][k] * b[k][j]`.
///
/// # Panics
/// If a row of `a` is shorter than `b`.
#[inline]
pub(super) fn tile(a: [&[f64]; ROWS], b: &[[f64; COLUMNS]]) -> [[f64; COLUMNS]; ROWS] {
    let a = a.map(|row| &row[..b.len()]);
    let mut sums = [[0.0; COLUMNS]; ROWS];
    for (k, b) in b.iter().enumerate() {
        for i in 0..ROWS {
            for j in 0..COLUMNS {
                sums[i][j] += a[i][k] * b[j];
            }
        }
    }
    sums
}

/// The columns `columns` of [`ROWS`] consecutive rows of a matrix of `stride` columns, the first being row `first`.
#[inline]
pub(super) fn rows_of(
    matrix: &[f64],
    stride: usize,
    first: usize,
    columns: core::ops::Range<usize>,
) -> [&[f64]; ROWS] {
    core::array::from_fn(|i| &matrix[(first + i) * stride..][columns.clone()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_is_the_products_of_its_rows_and_columns() {
        // Whole numbers, so that every order of a sum is exact.
        let a: Vec<f64> = (0..ROWS * 7).map(|i| ((i * i) % 11) as f64 - 5.0).collect();
        let b: Vec<[f64; COLUMNS]> = (0..5).map(|k| [1.0, k as f64, -2.0, (k * k) as f64 - 3.0]).collect();
        let sums = tile(rows_of(&a, 7, 0, 1..6), &b);
        for (i, sums) in sums.iter().enumerate() {
            for (j, &sum) in sums.iter().enumerate() {
                assert_eq!(sum, (0..5).map(|k| a[i * 7 + 1 + k] * b[k][j]).sum::<f64>(), "{i} {j}");
            }
        }
    }
}
