//! Scales for one group of 32 weights, before the scale is rounded to its stored type.
//!
//! With codes `q` given, the scale that minimises the squared error is `d = sum(x q) / sum(q q)`, and
//! the error is then `sum(x x) - sum(x q)^2 / sum(q q)`. `sum(x x)` is the same for every choice of
//! codes, so the best codes are those with the largest *gain* `sum(x q)^2 / sum(q q)`.
//!
//! There are four rules, from worst to best:
//!
//! * [`max7_group`]: `d = max|x| / 7`, codes -7..=7. It is symmetric and leaves the code -8 unused.
//! * [`max_rule_group`]: the biggest weight becomes -8 exactly, which gives the scale its sign. This is the
//!   rule of GGUF writers. A weight as big and of the other sign would be 8 and is clipped to 7.
//! * [`fit_group`]: twenty tries, each refitted by least squares. Over the recorded groups of
//!   `goldens/q4_groups.json` its total error is at most 0.6% above the least that any scale gives, for
//!   every kind of group; for a single group it can be 17% above. It is 0.69 times the error of max/7 on
//!   Gaussian groups and 0.71 times on Laplacian ones.
//! * [`optimal_group`]: the best of all scales, by enumeration.
//!
//! Sums are f64, because the error is a small difference of large numbers.

use crate::GROUP;
pub use crate::optimal::optimal_group;
use crate::rounding::round_clamped_f64;

/// One group quantized with a scale that is not rounded yet: `x[i]` is about `scale * codes[i]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupFit {
    /// Step between neighbouring codes; may be negative, 0 for a group of zeros.
    pub scale: f64,
    /// Signed codes, -8..=7.
    pub codes: [i8; GROUP],
    /// The squared error `sum((x - scale * code)^2)`.
    pub sse: f64,
}

impl GroupFit {
    pub(crate) fn new(x: &[f32; GROUP], scale: f64, codes: [i8; GROUP]) -> Self {
        Self { scale, codes, sse: squared_error(x, scale, &codes) }
    }

    /// The result for a group without a scale to choose (all zeros, or not all finite); `None` for other groups.
    pub(crate) fn degenerate(x: &[f32; GROUP]) -> Option<Self> {
        if x.iter().any(|v| !v.is_finite()) {
            Some(Self { scale: 0.0, codes: [0; GROUP], sse: f64::NAN })
        } else if x.iter().all(|&v| v == 0.0) {
            Some(Self { scale: 0.0, codes: [0; GROUP], sse: 0.0 })
        } else {
            None
        }
    }
}

/// `sum((x - scale * code)^2)` in f64.
fn squared_error(x: &[f32; GROUP], scale: f64, codes: &[i8; GROUP]) -> f64 {
    weighted_error(x, &[1.0; GROUP], scale, codes)
}

/// `sum(w (x - scale * code)^2)` in f64.
pub(crate) fn weighted_error(x: &[f32; GROUP], w: &[f64; GROUP], scale: f64, codes: &[i8; GROUP]) -> f64 {
    x.iter().zip(codes).zip(w).map(|((&x, &q), w)| w * (f64::from(x) - scale * f64::from(q)).powi(2)).sum()
}

/// The weight of the largest magnitude, the first of several.
pub(crate) fn biggest(x: &[f32; GROUP]) -> f32 {
    x.iter().fold(0.0f32, |best, &v| if v.abs() > best.abs() { v } else { best })
}

/// The code of the weight `v` for a scale whose reciprocal is `inv`.
fn code(v: f64, inv: f64) -> f64 {
    round_clamped_f64(v * inv, -8.0, 7.0)
}

/// `sum(a b)` of a multiple of eight products, in eight partial sums, so that no addition waits for the one before it.
pub(crate) fn dot<const N: usize>(a: &[f64; N], b: &[f64; N]) -> f64 {
    let mut sums = [0.0; 8];
    for (a, b) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum()
}

/// `d = max|x| / 7`, codes rounded to nearest even, -7..=7.
///
/// A group with a NaN or an infinity has no answer: scale 0, codes 0, `sse` NaN.
#[must_use]
pub fn max7_group(x: &[f32; GROUP]) -> GroupFit {
    GroupFit::degenerate(x).unwrap_or_else(|| {
        let amax = f64::from(biggest(x).abs());
        let codes = x.map(|v| code(f64::from(v), 7.0 / amax) as i8);
        GroupFit::new(x, amax / 7.0, codes)
    })
}

/// `d = max / -8` for the biggest weight with its sign, codes rounded to nearest, ties up, -8..=7.
///
/// A group with a NaN or an infinity has no answer: scale 0, codes 0, `sse` NaN.
#[must_use]
pub fn max_rule_group(x: &[f32; GROUP]) -> GroupFit {
    GroupFit::degenerate(x).unwrap_or_else(|| {
        let d = f64::from(biggest(x)) / -8.0;
        let codes = x.map(|v| (f64::from(v) / d + 0.5).floor().min(7.0) as i8);
        GroupFit::new(x, d, codes)
    })
}

/// The best of twenty tries: scales that put the biggest weight at -7.1, -7.2, ... -8.9, and
/// max|x| / 7. Each rounds the group to nearest even, clamps to -8..=7 and refits the scale by least
/// squares; the largest gain wins, the first of equals.
///
/// A group with a NaN or an infinity has no answer: scale 0, codes 0, `sse` NaN.
///
/// ```
/// // One +1 among -0.95s. The max rule spends its steps on the +1 and clips all the others.
/// use halfbyte_q4::fit::{fit_group, max_rule_group};
/// let mut x = [-0.95; 32];
/// x[0] = 1.0;
/// assert!(max_rule_group(&x).sse > 0.17);
/// assert!(fit_group(&x).sse < 0.0025);
/// ```
#[must_use]
pub fn fit_group(x: &[f32; GROUP]) -> GroupFit {
    fit_group_weighted(x, &[1.0; GROUP])
}

/// [`fit_group`] with squares weighted by `w`, finite and not negative; `sse` stays unweighted. Scale 0
/// when no weight with a code has any importance.
pub(crate) fn fit_group_weighted(x: &[f32; GROUP], w: &[f64; GROUP]) -> GroupFit {
    GroupFit::degenerate(x).unwrap_or_else(|| {
        let max = f64::from(biggest(x));
        // The places of the biggest weight, in steps of the scale.
        let places = (71..90).map(|tenths| -f64::from(tenths) / 10.0).chain([7.0 * max.signum()]);
        let wide = x.map(f64::from);
        let wx = std::array::from_fn(|i| w[i] * wide[i]);
        // Gain, scale, and the reciprocal that gave the codes.
        let mut best = (0.0, 0.0, 0.0);
        for place in places {
            let inv = place / max;
            let codes = wide.map(|v| code(v, inv));
            let wq = std::array::from_fn(|i| w[i] * codes[i]);
            let (xq, qq) = (dot(&wx, &codes), dot(&wq, &codes));
            // The gain is NaN when no weight with a code other than 0 has importance; the comparison is false then.
            let gain = xq * xq / qq;
            if gain > best.0 {
                best = (gain, xq / qq, inv);
            }
        }
        let (_, scale, inv) = best;
        GroupFit::new(x, scale, wide.map(|v| code(v, inv) as i8))
    })
}
