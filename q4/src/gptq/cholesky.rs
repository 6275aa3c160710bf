//! The Cholesky factorisation `A = L L^T`, right-looking, by panels of columns.
//!
//! ```text
//! for each panel P of DEPTH columns
//!     for each block of COLUMNS columns of P
//!         subtract what the earlier blocks of P contribute
//!         factor the square on the diagonal, solve the rows below it
//!     subtract P's product with itself from everything to its right
//! ```
//!
//! All but the diagonal squares goes through [`tile`]. Above the diagonal the result is 0.

use super::product::{COLUMNS, DEPTH, ROWS, rows_of, tile};

/// Rows of a panel that are multiplied by one column block after the other while they are in a near cache.
const CHUNK: usize = 64;

const _: () = assert!(ROWS == COLUMNS && DEPTH.is_multiple_of(COLUMNS) && CHUNK.is_multiple_of(ROWS));

/// What [`factor_in_place`] found: the matrix is not positive definite, as far as rounding lets one say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotPositiveDefinite;

/// Replaces the lower triangle of the row-major `n` x `n` matrix `a` by its Cholesky factor and the rest by 0. `n` is a
/// multiple of [`ROWS`]; what stands above the diagonal is not read.
///
/// # Errors
/// [`NotPositiveDefinite`]; the contents of `a` are unspecified then.
pub(super) fn factor_in_place(a: &mut [f64], n: usize) -> Result<(), NotPositiveDefinite> {
    assert!(n.is_multiple_of(ROWS) && a.len() == n * n, "a square of whole tiles");
    let mut packed = vec![[0.0; COLUMNS]; n / COLUMNS * DEPTH];
    for start in (0..n).step_by(DEPTH) {
        let end = n.min(start + DEPTH);
        for column in (start..end).step_by(COLUMNS) {
            let block = &mut packed[..column - start];
            transpose(a, n, column, start, block);
            for row in (column..n).step_by(ROWS) {
                subtract(a, n, row, column, start, block);
                if row == column {
                    factor_square(a, n, row)?;
                } else {
                    solve(a, n, row, column);
                }
            }
        }
        let depth = end - start;
        for (block, column) in packed.chunks_exact_mut(depth).zip((end..n).step_by(COLUMNS)) {
            transpose(a, n, column, start, block);
        }
        for chunk in (end..n).step_by(CHUNK) {
            let last = n.min(chunk + CHUNK);
            for (block, column) in packed.chunks_exact(depth).zip((end..last).step_by(COLUMNS)) {
                for row in (chunk.max(column)..last).step_by(ROWS) {
                    subtract(a, n, row, column, start, block);
                }
            }
        }
    }
    (0..n).for_each(|i| a[i * n + i + 1..][..n - i - 1].fill(0.0));
    Ok(())
}

/// Writes the columns from `start` on of the rows `row .. row + COLUMNS` to `to`, transposed.
fn transpose(a: &[f64], n: usize, row: usize, start: usize, to: &mut [[f64; COLUMNS]]) {
    let rows = rows_of(a, n, row, start..start + to.len());
    for (k, to) in to.iter_mut().enumerate() {
        *to = rows.map(|row| row[k]);
    }
}

/// Subtracts from the tile at `(row, column)` the product of its rows' columns from `start` on with `block`.
fn subtract(a: &mut [f64], n: usize, row: usize, column: usize, start: usize, block: &[[f64; COLUMNS]]) {
    let product = tile(rows_of(a, n, row, start..start + block.len()), block);
    for (i, product) in product.iter().enumerate() {
        let to = &mut a[(row + i) * n + column..][..COLUMNS];
        to.iter_mut().zip(product).for_each(|(to, product)| *to -= product);
    }
}

/// Factors the square of [`ROWS`] rows on the diagonal at `at`.
fn factor_square(a: &mut [f64], n: usize, at: usize) -> Result<(), NotPositiveDefinite> {
    let place = |i: usize, j: usize| (at + i) * n + at + j;
    for j in 0..ROWS {
        let rest = a[place(j, j)] - (0..j).map(|k| a[place(j, k)] * a[place(j, k)]).sum::<f64>();
        // NaN is refused, too.
        if !(rest > 0.0 && rest.is_finite()) {
            return Err(NotPositiveDefinite);
        }
        let diagonal = rest.sqrt();
        a[place(j, j)] = diagonal;
        for i in j + 1..ROWS {
            let sum: f64 = (0..j).map(|k| a[place(i, k)] * a[place(j, k)]).sum();
            a[place(i, j)] = (a[place(i, j)] - sum) / diagonal;
        }
    }
    Ok(())
}

/// Solves `X L^T = B` for the tile `B` at `(row, column)`, `L` being the factored square on the diagonal at `column`.
fn solve(a: &mut [f64], n: usize, row: usize, column: usize) {
    let (above, below) = a.split_at_mut(row * n);
    for x in below.chunks_exact_mut(n).take(ROWS) {
        let x = &mut x[column..][..COLUMNS];
        for j in 0..COLUMNS {
            let l = &above[(column + j) * n + column..][..=j];
            let sum: f64 = x[..j].iter().zip(l).map(|(x, l)| x * l).sum();
            x[j] = (x[j] - sum) / l[j];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A matrix of small whole numbers, lower triangular with a positive diagonal, and its product with its transpose:
    /// both exact in f64, so the second's factor is known without factoring anything.
    fn known(n: usize) -> (Vec<f64>, Vec<f64>) {
        let mut l = vec![0.0; n * n];
        for i in 0..n {
            for j in 0..i {
                l[i * n + j] = ((i * 7 + j * 5 + i * j) % 5) as f64 - 2.0;
            }
            l[i * n + i] = [8.0, 16.0, 32.0][i % 3];
        }
        let mut a = vec![f64::NAN; n * n];
        for i in 0..n {
            for j in 0..=i {
                a[i * n + j] = (0..=j).map(|k| l[i * n + k] * l[j * n + k]).sum();
            }
        }
        (l, a)
    }

    #[test]
    fn a_known_factor_is_found_exactly() {
        // One tile, one panel, a panel and a tile, whole panels, and several chunks of rows.
        for n in [4, 8, 60, DEPTH, DEPTH + 4, 2 * DEPTH, 2 * DEPTH + 76] {
            let (l, mut a) = known(n);
            factor_in_place(&mut a, n).unwrap();
            assert!(a == l, "n = {n}: not the factor that the matrix was made of");
        }
        factor_in_place(&mut [], 0).unwrap();
    }

    #[test]
    fn rounding_stays_within_the_bound_of_the_method() {
        // |A - L L^T| <= (n + 1) u / (1 - (n + 1) u) * |L| |L|^T, element by element (Higham, theorem 10.3).
        let n = 332;
        let seed = 0x2545_F491_4F6C_DD1D_u64;
        println!("seed {seed:#x}");
        let mut state = seed;
        let mut a = vec![0.0; n * n];
        for i in 0..n {
            for j in 0..i {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                a[i * n + j] = (state >> 11) as f64 / 2f64.powi(53) - 0.5;
            }
            a[i * n + i] = n as f64 / 6.0;
        }
        let mut l = a.clone();
        factor_in_place(&mut l, n).unwrap();
        let gamma = (n as f64 + 1.0) * f64::EPSILON / 2.0 * 1.001;
        let mut worst = 0.0f64;
        for i in 0..n {
            for j in 0..=i {
                let terms = || (0..=j).map(|k| l[i * n + k] * l[j * n + k]);
                // The check's own sum has an error of that size, too.
                let bound = 2.0 * gamma * terms().map(f64::abs).sum::<f64>();
                let error = (terms().sum::<f64>() - a[i * n + j]).abs();
                worst = worst.max(error / bound);
                assert!(error <= bound, "{i} {j}: {error:e} is more than {bound:e}");
            }
        }
        assert!(worst > 0.0, "nothing was rounded, so nothing was tested");
    }

    #[test]
    fn what_is_not_positive_definite_is_refused() {
        for bad in [0, 5, DEPTH, DEPTH + 31] {
            for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
                let (_, mut a) = known(DEPTH + 32);
                a[bad * (DEPTH + 32) + bad] = value;
                assert_eq!(factor_in_place(&mut a, DEPTH + 32), Err(NotPositiveDefinite), "{value} at {bad}");
            }
        }
    }
}
