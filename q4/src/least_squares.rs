//! Scale and bias of a group by weighted least squares: `w = scale * code + bias`, codes 0..=15.
//!
//! For given codes the best line through the points `(code, weight)` has a closed form. Its two parameters are
//! then rounded to their stored type, the scale first and the bias for the scale as stored, and codes are
//! chosen again for what is stored. Candidates are compared by the error as decoded, so a result is never worse
//! than the one it started from.

use crate::affine::AffineScale;
use crate::fit::dot;
use crate::rounding::round_clamped_f64;

/// A quantized group of `N` weights: what is stored, and its weighted squared error as decoded.
#[derive(Clone, Copy)]
pub(crate) struct Line<S, const N: usize> {
    pub(crate) scale: S,
    pub(crate) bias: S,
    /// Whole numbers, 0..=15.
    codes: [f64; N],
    error: f64,
}

impl<S, const N: usize> Line<S, N> {
    /// 0..=15.
    pub(crate) fn codes(&self) -> [u8; N] {
        self.codes.map(|q| q as u8)
    }

    fn keep_better(&mut self, other: Option<Self>) {
        if let Some(other) = other.filter(|other| other.error < self.error) {
            *self = other;
        }
    }
}

/// A group to be quantized, with the values that all fits to it need.
struct Group<'a, const N: usize> {
    x: [f64; N],
    w: &'a [f64; N],
    /// `sum(w)`.
    total: f64,
    /// The weighted mean of `x`.
    mean: f64,
    /// `w (x - mean)`; without the mean, the sums of a group far from zero would cancel.
    wx: [f64; N],
    /// The largest magnitude that a code may decode to.
    limit: f64,
}

impl<const N: usize> Group<'_, N> {
    fn line<S: AffineScale>(&self, scale: S, bias: S, codes: [f64; N]) -> Line<S, N> {
        let (d, m) = (f64::from(scale.to_f32()), f64::from(bias.to_f32()));
        let off: [f64; N] = std::array::from_fn(|i| self.x[i] - (d * codes[i] + m));
        let weighted = std::array::from_fn(|i| self.w[i] * off[i]);
        Line { scale, bias, codes, error: dot(&weighted, &off) }
    }

    /// Scale and bias by least squares for given codes, as stored, and the codes nearest to the weights
    /// for them. When all codes of weights with importance are equal there is no such scale, and `step` is kept. `None` when
    /// the parameters are out of the range of the stored type.
    fn refit<S: AffineScale>(&self, codes: &[f64; N], step: f64) -> Option<Line<S, N>> {
        let mean = dot(self.w, codes) / self.total;
        let q = codes.map(|q| q - mean);
        let wq = std::array::from_fn(|i| self.w[i] * q[i]);
        let (xq, qq) = (dot(&self.wx, &q), dot(&wq, &q));
        // With equal codes the variance is 0 except for the rounding of their mean.
        let scale = S::from_f64(if qq > 1e-24 * self.total { xq / qq } else { step });
        // The bias for the scale as stored.
        let d = f64::from(scale.to_f32());
        let bias = S::from_f64(self.mean - d * mean);
        let m = f64::from(bias.to_f32());
        // The largest product and sum: those of code 15, whether or not it is used. They are infinite if a parameter is.
        let reach = (15.0 * d).abs().max((15.0 * d + m).abs());
        if d == 0.0 || !m.is_finite() || reach.is_nan() || reach > self.limit {
            return None;
        }
        let inv = 1.0 / d;
        Some(self.line(scale, bias, self.x.map(|v| round_clamped_f64((v - m) * inv, 0.0, 15.0))))
    }
}

/// The best of `start` (scale, bias and codes of 0..=15) and of the lines fitted to codes in steps of many sizes, each
/// from either end of the group, the best of them refitted until that gains nothing.
///
/// `x`: finite weights, a multiple of eight. `w`: their importances, finite, at least 0 and not all of them 0. No code
/// of a fitted line decodes to more than `limit`.
pub(crate) fn improve<S: AffineScale, const N: usize>(
    x: &[f32; N],
    w: &[f64; N],
    (scale, bias, codes): (S, S, [u8; N]),
    limit: f32,
) -> Line<S, N> {
    let (lo, hi) = x.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(lo, hi), &v| (lo.min(v), hi.max(v)));
    let (lo, hi) = (f64::from(lo), f64::from(hi));
    let x = x.map(f64::from);
    let total = w.iter().sum();
    let mean = dot(w, &x) / total;
    let wx = std::array::from_fn(|i| w[i] * (x[i] - mean));
    let group = Group { x, w, total, mean, wx, limit: limit.into() };
    let mut best = group.line(scale, bias, codes.map(f64::from));
    if hi > lo {
        // The number of steps that the range is divided into: fewer than 15 leave codes unused, more clip the far end.
        for quarters in 48..=68 {
            let inv = f64::from(quarters) / 4.0 / (hi - lo);
            let from_lo = x.map(|v| round_clamped_f64((v - lo) * inv, 0.0, 15.0));
            best.keep_better(group.refit(&from_lo, 1.0 / inv));
            let from_hi = x.map(|v| 15.0 - round_clamped_f64((hi - v) * inv, 0.0, 15.0));
            best.keep_better(group.refit(&from_hi, 1.0 / inv));
        }
    }
    // A round that does not lower the error is the last. The limit of sixteen is never reached in practice.
    for _ in 0..16 {
        let before = best.error;
        best.keep_better(group.refit(&best.codes, f64::from(best.scale.to_f32())));
        if best.error >= before {
            break;
        }
    }
    best
}
