//! The Cholesky factor of a damped matrix of second moments.

use super::cholesky::factor_in_place;
use super::product::ROWS;
use crate::Error;
use crate::error::check_len;

/// The order in which columns are rounded. Those rounded first have the most columns left to compensate for their errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// From the first column to the last.
    #[default]
    Natural,
    /// The groups with the largest second moments first, and within a group its largest columns first. The place of a
    /// block in the output does not depend on it.
    Activation,
}

/// Options for the factorisation of second moments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// This share of the mean of the diagonal is added to the diagonal: at least 0, usually 0.01.
    pub damping: f64,
    /// The order of the columns.
    pub order: Order,
}

impl Options {
    /// Damping 0.01, activation order.
    pub const DEFAULT: Self = Self { damping: 0.01, order: Order::Activation };
}

impl Default for Options {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The Cholesky factor of the second moments of some inputs, used for all rows of all matrices that read these inputs.
///
/// Memory: `8 n^2` bytes.
#[derive(Debug)]
pub struct Factor {
    /// Lower triangular, row-major, rows `stride` apart. Positions are columns in the order of `order`, the last one rounded
    /// first. Up to `stride`, rows and columns of an identity matrix follow.
    pub(super) lower: Vec<f64>,
    /// The number of columns, rounded up to whole tiles.
    pub(super) stride: usize,
    /// The column at each position.
    pub(super) order: Vec<usize>,
    pub(super) group: usize,
}

impl Factor {
    /// Factors `hessian`, the `n` x `n` sums `sum(x_i x_j)` over inputs `x`, row-major, for groups of `group`
    /// columns. Only the lower triangle is read. Inputs that were all 0 count as uncorrelated and equal.
    ///
    /// # Errors
    ///
    /// [`Error::NotWholeGroups`] unless `n` is a whole number of groups, [`Error::Length`]; [`Error::Moment`] for a
    /// number that is not finite or a negative one on the diagonal; [`Error::NotPositiveDefinite`] when the damping
    /// (finite and at least 0, or it is this error too) is too small for the rounding in `hessian`.
    pub fn new(hessian: &[f64], n: usize, group: usize, options: Options) -> Result<Self, Error> {
        if group == 0 || !n.is_multiple_of(group) {
            return Err(Error::NotWholeGroups { group, got: n });
        }
        check_len("second moments", n.saturating_mul(n), hessian.len())?;
        for row in 0..n {
            for column in 0..=row {
                let value = hessian[row * n + column];
                if !value.is_finite() || (row == column && value < 0.0) {
                    return Err(Error::Moment { row, column, value });
                }
            }
        }
        let not_definite = Error::NotPositiveDefinite { damping: options.damping };
        if !(options.damping.is_finite() && options.damping >= 0.0) {
            return Err(not_definite);
        }
        let diagonal: Vec<f64> = (0..n).map(|i| hessian[i * n + i]).collect();
        let mean = diagonal.iter().sum::<f64>() / n.max(1) as f64;
        let damp = if mean > 0.0 { options.damping * mean } else { 1.0 };
        let order = match options.order {
            Order::Natural => (0..n).rev().collect(),
            Order::Activation => by_activation(&diagonal, group),
        };
        let stride = n.next_multiple_of(ROWS);
        let mut lower = vec![0.0; stride * stride];
        for (i, &a) in order.iter().enumerate() {
            for (j, &b) in order[..i].iter().enumerate() {
                lower[i * stride + j] = hessian[a.max(b) * n + a.min(b)];
            }
            lower[i * stride + i] = diagonal[a] + damp;
        }
        (n..stride).for_each(|i| lower[i * stride + i] = 1.0);
        factor_in_place(&mut lower, stride).map_err(|_| not_definite)?;
        Ok(Self { lower, stride, order, group })
    }

    /// Columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.order.len()
    }

    /// Columns in a group.
    #[must_use]
    pub fn group(&self) -> usize {
        self.group
    }
}

/// Positions by ascending second moments: groups by their sums, columns within their group.
fn by_activation(diagonal: &[f64], group: usize) -> Vec<usize> {
    let mut groups: Vec<(f64, usize)> =
        diagonal.chunks_exact(group).map(|d| d.iter().sum()).zip(0..).collect();
    // Of equal groups the first comes last, so that it is rounded first.
    groups.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
    let mut order = Vec::with_capacity(diagonal.len());
    for (_, g) in groups {
        let mut columns: Vec<usize> = (g * group..(g + 1) * group).collect();
        columns.sort_by(|&a, &b| diagonal[a].total_cmp(&diagonal[b]).then(b.cmp(&a)));
        order.extend(columns);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_times_itself_is_the_damped_matrix() {
        // Second moments of five inputs of four columns, groups of 2.
        let x = [[1.0, 2.0, 0.5, 0.0], [3.0, -1.0, 0.0, 1.0], [0.0, 4.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]];
        let h: Vec<f64> = (0..16).map(|k| x.iter().map(|x| x[k / 4] * x[k % 4]).sum()).collect();
        let diagonal = [11.0, 22.0, 2.25, 3.0];
        let damp = 0.1 * diagonal.iter().sum::<f64>() / 4.0;
        for (order, columns) in [(Order::Natural, [3, 2, 1, 0]), (Order::Activation, [2, 3, 0, 1])] {
            let factor = Factor::new(&h, 4, 2, Options { damping: 0.1, order }).unwrap();
            assert_eq!(factor.order, columns);
            let l = |i: usize, j: usize| factor.lower[i * factor.stride + j];
            for i in 0..4 {
                for j in 0..=i {
                    let product: f64 = (0..=j).map(|k| l(i, k) * l(j, k)).sum();
                    let (a, b) = (columns[i], columns[j]);
                    let expected = h[4 * a + b] + if i == j { damp } else { 0.0 };
                    assert!((product - expected).abs() < 1e-12, "{i} {j}: {product}, not {expected}");
                }
            }
        }
    }

    #[test]
    fn bad_moments_are_named() {
        let error = |h: &[f64], n, group, damping| {
            Factor::new(h, n, group, Options { damping, order: Order::Natural }).unwrap_err().to_string()
        };
        let one = [1.0, 0.0, 0.0, 1.0];
        assert!(error(&one, 2, 32, 0.01).contains("32"));
        assert!(error(&one[..3], 2, 2, 0.01).contains("4"));
        assert!(error(&[1.0, 0.0, f64::NAN, 1.0], 2, 2, 0.01).contains("row 1"));
        assert!(error(&[1.0, 0.0, 0.0, -1.0], 2, 2, 0.01).contains("-1"));
        // Two equal inputs without damping are singular; a moment beyond the diagonal is impossible.
        assert!(error(&[1.0, 0.0, 2.0, 1.0], 2, 2, 0.01).contains("positive definite"));
        assert!(error(&one, 2, 2, f64::NAN).contains("damping"));
        assert!(Factor::new(&[0.0; 4], 2, 2, Options::default()).is_ok());
    }
}
