//! Quantizers for rows whose columns differ in importance.
//!
//! They minimise `sum(importance * (x - w)^2)` of each group, as decoded. If `importance` is the mean
//! square of the activation that a column is multiplied by, this is the expected squared error of the
//! output for uncorrelated activations.
//!
//! A group whose importances are all equal is quantized as if they were 1, so that equal importances
//! give the bytes of the unweighted writer whatever their value.

use crate::error::{Error, check_len};
use crate::least_squares::improve;
use crate::quantize::{check_q4_0_row, check_q4_1_row, fit_block_weighted, optimal_block, q4_1_block};
use crate::{BlockQ4_0, BlockQ4_1, GROUP, pack_nibbles};

/// The report of a weighted quantizer about a row.
#[must_use = "groups without importance are quantized with equal ones, which the caller may not want"]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Weighted {
    /// The number of groups whose importances were all 0, which were quantized with equal ones instead.
    pub uniform_groups: usize,
}

impl Weighted {
    /// The weights of the squares of a group. Counts the groups whose importances are all 0.
    pub(crate) fn weights<const N: usize>(&mut self, importance: &[f32; N]) -> [f64; N] {
        let equal = importance.iter().all(|&v| v == importance[0]);
        self.uniform_groups += usize::from(equal && importance[0] == 0.0);
        if equal { [1.0; N] } else { importance.map(f64::from) }
    }
}

/// Checks that there is one finite importance of at least 0 for each weight.
pub(crate) fn check_importance(importance: &[f32], columns: usize) -> Result<(), Error> {
    check_len("importance", columns, importance.len())?;
    match importance.iter().position(|v| !v.is_finite() || *v < 0.0) {
        None => Ok(()),
        Some(index) => Err(Error::Importance { index, value: importance[index] }),
    }
}

/// Quantizes the groups of a checked row.
fn write<B>(
    x: &[[f32; GROUP]],
    importance: &[f32],
    out: &mut [B],
    quantize: fn(&[f32; GROUP], &[f64; GROUP]) -> B,
) -> Weighted {
    let mut report = Weighted::default();
    for ((x, importance), out) in x.iter().zip(importance.as_chunks::<GROUP>().0).zip(out) {
        *out = quantize(x, &report.weights(importance));
    }
    report
}

/// Q4_0 with fitted scales: [`q4_row_fit`](crate::q4_row_fit) for columns of unequal importance.
///
/// `x`: weights, a whole number of groups of 32. `importance`: one number of at least 0 for each of them.
/// `out`: `x.len() / 32` blocks. The weighted squared error of every group, as decoded, is at most
/// that of [`q4_row_fit`](crate::q4_row_fit), whose bytes result from equal importances. A group
/// whose importances are all 0 gets equal ones; the report counts them.
///
/// # Errors
///
/// [`Error::NotWholeGroups`], [`Error::Length`], [`Error::NonFinite`], [`Error::Importance`];
/// [`Error::Overflow`] when a weight is beyond 8 * 65504. Nothing is written then.
///
/// ```
/// use halfbyte_q4::{BlockQ4_0, q4_row_fit_weighted};
/// let x: [f32; 32] = std::array::from_fn(|i| (i as f32).sin());
/// let mut importance = [1.0; 32];
/// importance[3] = 1e6;
/// let mut out = [BlockQ4_0::ZERO];
/// let report = q4_row_fit_weighted(&x, &importance, &mut out)?;
/// assert_eq!(report.uniform_groups, 0);
/// assert!((out[0].dequantize()[3] - x[3]).abs() < 1e-3);
/// # Ok::<(), halfbyte_q4::Error>(())
/// ```
pub fn q4_row_fit_weighted(x: &[f32], importance: &[f32], out: &mut [BlockQ4_0]) -> Result<Weighted, Error> {
    let groups = check_q4_0_row(x, out.len(), 8.0)?;
    check_importance(importance, x.len())?;
    Ok(write(groups, importance, out, fit_block_weighted))
}

/// Q4_0 with the best scale: [`q4_row_optimal`](crate::q4_row_optimal) for columns of unequal
/// importance.
///
/// Shapes and report as for [`q4_row_fit_weighted`]. No f16 scale gives a group a smaller weighted squared
/// error, as decoded, except for the rounding of f64 sums; the error is never more than that of another Q4_0 quantizer here.
///
/// # Errors
///
/// As [`q4_row_fit_weighted`].
pub fn q4_row_optimal_weighted(
    x: &[f32],
    importance: &[f32],
    out: &mut [BlockQ4_0],
) -> Result<Weighted, Error> {
    let groups = check_q4_0_row(x, out.len(), 8.0)?;
    check_importance(importance, x.len())?;
    Ok(write(groups, importance, out, optimal_block))
}

/// Q4_1 with scale and minimum by weighted least squares.
///
/// Shapes and report as for [`q4_row_fit_weighted`]. Twenty-one steps from either end are tried for each
/// group, each refitted, and the best of them refitted until that gains nothing. The weighted squared error of every
/// group, as decoded, is at most that of [`q4_1_row`](crate::q4_1_row).
///
/// # Errors
///
/// [`Error::NotWholeGroups`], [`Error::Length`], [`Error::NonFinite`], [`Error::Importance`];
/// [`Error::Overflow`] when the minimum or the scale of [`q4_1_row`](crate::q4_1_row) is beyond 65504.
/// Nothing is written then.
pub fn q4_1_row_weighted(x: &[f32], importance: &[f32], out: &mut [BlockQ4_1]) -> Result<Weighted, Error> {
    let groups = check_q4_1_row(x, out.len())?;
    check_importance(importance, x.len())?;
    Ok(write(groups, importance, out, q4_1_block_weighted))
}

fn q4_1_block_weighted(x: &[f32; GROUP], w: &[f64; GROUP]) -> BlockQ4_1 {
    let rule = q4_1_block(x);
    // Decoded in f32, whatever the stored type.
    let best = improve(x, w, (rule.scale, rule.min, rule.codes()), f32::MAX);
    BlockQ4_1 { scale: best.scale, min: best.bias, codes: pack_nibbles(&best.codes()) }
}
