//! Rows of f32 weights to blocks, some columns mattering more than others.
//!
//! Minimised is `sum(importance * (x - w)^2)` of each group, as decoded. With `importance` the mean
//! square of the activation that a column is multiplied by, that is the expected squared error of the
//! output when activations are uncorrelated.
//!
//! A group whose importances are all equal is quantized as if they were 1, so that equal importances
//! give the bytes of the unweighted writer whatever their value.

use crate::error::{Error, check_len};
use crate::quantize::{check_q4_0_row, check_q4_1_row, fit_block_weighted, optimal_block, q4_1_block};
use crate::rounding::{nearest_f16, round_clamped_f64};
use crate::{BlockQ4_0, BlockQ4_1, GROUP, pack_nibbles};

/// What a weighted writer has to say about a row it has written.
#[must_use = "groups without importance are quantized with equal ones, which the caller may not want"]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Weighted {
    /// Groups whose importances were all 0, and that were quantized with equal ones instead.
    pub uniform_groups: usize,
}

/// `Ok` when there is one finite importance of at least 0 for each weight.
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
        let equal = importance.iter().all(|&v| v == importance[0]);
        report.uniform_groups += usize::from(equal && importance[0] == 0.0);
        *out = quantize(x, &if equal { [1.0; GROUP] } else { importance.map(f64::from) });
    }
    report
}

/// Q4_0 with fitted scales, [`q4_row_fit`](crate::q4_row_fit) for columns of unequal importance.
///
/// `x`: weights, a whole number of groups of 32. `importance`: one number of at least 0 for each of them.
/// `out`: `x.len() / 32` blocks. The weighted squared error of every group, as decoded, is at most
/// that of [`q4_row_fit`](crate::q4_row_fit), whose bytes equal importances give. A group
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

/// Q4_0 with the best scale there is, [`q4_row_optimal`](crate::q4_row_optimal) for columns of unequal
/// importance.
///
/// Shapes and report as for [`q4_row_fit_weighted`]. No f16 scale gives a group a smaller weighted squared
/// error, as decoded, but for the rounding of f64 sums; it is never more than any other writer's.
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
/// Shapes and report as for [`q4_row_fit_weighted`]. Twenty-one steps are tried for each group, each
/// refitted, and the best of them refitted until that gains nothing. The weighted squared error of every
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

/// A Q4_1 block, and its weighted error as decoded.
type Scored = (BlockQ4_1, f64);

fn q4_1_block_weighted(x: &[f32; GROUP], w: &[f64; GROUP]) -> BlockQ4_1 {
    let written = q4_1_block(x);
    let mut best = (written, q4_1_error(x, w, &written));
    let (lo, hi) = x.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(lo, hi), &v| (lo.min(v), hi.max(v)));
    let (lo, range) = (f64::from(lo), f64::from(hi) - f64::from(lo));
    if range > 0.0 {
        // How many steps the range is cut into: fewer leave codes unused, more clip the far end.
        for quarters in 48..=68 {
            let inv = f64::from(quarters) / 4.0 / range;
            let codes = x.map(|v| round_clamped_f64((f64::from(v) - lo) * inv, 0.0, 15.0));
            keep_better(&mut best, refit(x, w, &codes, 1.0 / inv));
        }
    }
    // Each round either lowers the error or is the last; sixteen are more than ever matter.
    for _ in 0..16 {
        let before = best.1;
        let next = refit(x, w, &best.0.codes().map(f64::from), best.0.scale.to_f64());
        keep_better(&mut best, next);
        if best.1 >= before {
            break;
        }
    }
    best.0
}

fn keep_better(best: &mut Scored, next: Option<Scored>) {
    if let Some(next) = next.filter(|next| next.1 < best.1) {
        *best = next;
    }
}

/// Scale and minimum by least squares for given codes, rounded to f16, and the codes nearest to the
/// weights for them. When all codes that matter are equal there is no such scale, and `step` is kept.
/// `None` when a parameter has no f16.
fn refit(x: &[f32; GROUP], w: &[f64; GROUP], codes: &[f64; GROUP], step: f64) -> Option<Scored> {
    let total: f64 = w.iter().sum();
    let mean = |of: &dyn Fn(usize) -> f64| (0..GROUP).map(|i| w[i] * of(i)).sum::<f64>() / total;
    let (x_mean, q_mean) = (mean(&|i| f64::from(x[i])), mean(&|i| codes[i]));
    // About the means: the sums of a group far from zero would cancel.
    let qq = mean(&|i| (codes[i] - q_mean).powi(2));
    let xq = mean(&|i| (f64::from(x[i]) - x_mean) * (codes[i] - q_mean));
    // Equal codes leave a variance of 0 but for the rounding of their mean.
    let scale = nearest_f16(if qq > 1e-24 { xq / qq } else { step });
    // The minimum for the scale as stored.
    let d = scale.to_f64();
    let min = nearest_f16(x_mean - d * q_mean);
    if !scale.is_finite() || !min.is_finite() || d <= 0.0 {
        return None;
    }
    let m = min.to_f64();
    let codes = x.map(|v| round_clamped_f64((f64::from(v) - m) / d, 0.0, 15.0) as u8);
    let block = BlockQ4_1 { scale, min, codes: pack_nibbles(&codes) };
    Some((block, q4_1_error(x, w, &block)))
}

/// Weighted squared error of a block, as decoded.
fn q4_1_error(x: &[f32; GROUP], w: &[f64; GROUP], block: &BlockQ4_1) -> f64 {
    let (d, m) = (block.scale.to_f64(), block.min.to_f64());
    let codes = block.codes();
    (0..GROUP).map(|i| w[i] * (f64::from(x[i]) - (d * f64::from(codes[i]) + m)).powi(2)).sum()
}
