//! Scale and bias of a group by weighted least squares: `w = scale * code + bias`, codes 0..=15.
//!
//! For given codes the best line through the points `(code, weight)` has a closed form. Its two parameters are
//! then rounded to their stored type, the scale first and the bias for the scale as stored, and codes are
//! chosen anew for what is stored. Everything is judged by the error as decoded, so a result is never worse
//! than the one it started from.

use crate::affine::AffineScale;
use crate::rounding::round_clamped_f64;

/// A quantized group of `N` weights: what is stored, and its weighted squared error as decoded.
#[derive(Clone, Copy)]
pub(crate) struct Line<S, const N: usize> {
    pub(crate) scale: S,
    pub(crate) bias: S,
    /// 0..=15.
    pub(crate) codes: [u8; N],
    error: f64,
}

impl<S: AffineScale, const N: usize> Line<S, N> {
    /// `x`: finite weights. `w`: their importances, finite, at least 0 and not all of them 0.
    pub(crate) fn new(x: &[f32; N], w: &[f64; N], scale: S, bias: S, codes: [u8; N]) -> Self {
        let (d, m) = (f64::from(scale.to_f32()), f64::from(bias.to_f32()));
        let error = (0..N).map(|i| w[i] * (f64::from(x[i]) - (d * f64::from(codes[i]) + m)).powi(2)).sum();
        Self { scale, bias, codes, error }
    }

    fn keep_better(&mut self, other: Option<Self>) {
        if let Some(other) = other.filter(|other| other.error < self.error) {
            *self = other;
        }
    }
}

/// The best of `start` and of the lines fitted to codes in steps of many sizes, each from either end of the group, the
/// best of them refitted until that gains nothing. No code of a fitted line decodes to more than `limit`.
pub(crate) fn improve<S: AffineScale, const N: usize>(
    x: &[f32; N],
    w: &[f64; N],
    start: Line<S, N>,
    limit: f32,
) -> Line<S, N> {
    let mut best = start;
    let (lo, hi) = x.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(lo, hi), &v| (lo.min(v), hi.max(v)));
    let (lo, hi) = (f64::from(lo), f64::from(hi));
    if hi > lo {
        // How many steps the range is cut into: fewer leave codes unused, more clip the far end.
        for quarters in 48..=68 {
            let inv = f64::from(quarters) / 4.0 / (hi - lo);
            let from_lo = x.map(|v| round_clamped_f64((f64::from(v) - lo) * inv, 0.0, 15.0));
            best.keep_better(refit(x, w, &from_lo, 1.0 / inv, limit));
            let from_hi = x.map(|v| 15.0 - round_clamped_f64((hi - f64::from(v)) * inv, 0.0, 15.0));
            best.keep_better(refit(x, w, &from_hi, 1.0 / inv, limit));
        }
    }
    // Each round either lowers the error or is the last; sixteen are more than ever matter.
    for _ in 0..16 {
        let before = best.error;
        let codes = best.codes.map(f64::from);
        best.keep_better(refit(x, w, &codes, f64::from(best.scale.to_f32()), limit));
        if best.error >= before {
            break;
        }
    }
    best
}

/// Scale and bias by least squares for given codes, as stored, and the codes nearest to the weights for
/// them. When all codes that matter are equal there is no such scale, and `step` is kept. `None` when the stored
/// type has no such parameters.
fn refit<S: AffineScale, const N: usize>(
    x: &[f32; N],
    w: &[f64; N],
    codes: &[f64; N],
    step: f64,
    limit: f32,
) -> Option<Line<S, N>> {
    let total: f64 = w.iter().sum();
    let mean = |of: &dyn Fn(usize) -> f64| (0..N).map(|i| w[i] * of(i)).sum::<f64>() / total;
    let (x_mean, q_mean) = (mean(&|i| f64::from(x[i])), mean(&|i| codes[i]));
    // About the means: the sums of a group far from zero would cancel.
    let qq = mean(&|i| (codes[i] - q_mean).powi(2));
    let xq = mean(&|i| (f64::from(x[i]) - x_mean) * (codes[i] - q_mean));
    // Equal codes leave a variance of 0 but for the rounding of their mean.
    let scale = S::from_f64(if qq > 1e-24 { xq / qq } else { step });
    // The bias for the scale as stored.
    let d = f64::from(scale.to_f32());
    let bias = S::from_f64(x_mean - d * q_mean);
    let m = f64::from(bias.to_f32());
    // Code 15 and its product, the largest there are, whether or not it is used. Infinite where a parameter is.
    let reach = (15.0 * d).abs().max((15.0 * d + m).abs());
    if d == 0.0 || !m.is_finite() || reach.is_nan() || reach > f64::from(limit) {
        return None;
    }
    let codes = x.map(|v| round_clamped_f64((f64::from(v) - m) / d, 0.0, 15.0) as u8);
    Some(Line::new(x, w, scale, bias, codes))
}
