//! The least squared error that any scale gives, by enumeration.
//!
//! For a scale of one sign let `t = 1 / |d|` grow from 0. Every code starts at 0, and the code of weight
//! `x` goes from magnitude `k` to `k + 1` at `t = (k + 1/2) / |x|`, up to 7 on one side of zero and 8
//! on the other. Between two such *breakpoints* the codes stay as they are, and the best scale for them
//! is the least-squares one. So the at most 240 breakpoints of each sign, sorted, visit every
//! assignment of nearest codes; each changes `sum(w x q)` by `w |x|` and `sum(w q q)` by `w (2k + 1)`.
//!
//! The same sweep finds the best f16 scale. For given codes the error is a parabola in the scale, so among
//! the f16s it is least at the one nearest to the vertex. The best f16 scale is therefore, for one of the
//! assignments, the f16 nearest to the refitted scale, and the sweep looks at all of these.

use half::f16;

use crate::GROUP;
use crate::fit::GroupFit;
use crate::rounding::nearest_f16;

/// A breakpoint: the code of weight `index` changes from magnitude `from` to `from + 1` at `t = at`.
#[derive(Clone, Copy)]
struct Breakpoint {
    at: f64,
    index: usize,
    from: u8,
}

/// One assignment of codes: its sums, and what is needed to compute the codes again.
#[derive(Clone, Copy)]
struct Assignment {
    sign: f64,
    /// `sum(w |x| |q|)`.
    xq: f64,
    /// `sum(w q q)`.
    qq: f64,
    /// How many breakpoints of this sign have been passed.
    passed: usize,
}

/// Calls `f` with the sorted breakpoints of the scales of a sign.
fn with_breakpoints<R>(x: &[f32; GROUP], sign: f64, f: impl FnOnce(&[Breakpoint]) -> R) -> R {
    let mut points = [Breakpoint { at: 0.0, index: 0, from: 0 }; 8 * GROUP];
    let mut n = 0;
    for (index, &v) in x.iter().enumerate() {
        let v = sign * f64::from(v);
        let codes = match v {
            0.0 => 0,
            v if v > 0.0 => 7,
            _ => 8,
        };
        for from in 0..codes {
            points[n] = Breakpoint { at: (f64::from(from) + 0.5) / v.abs(), index, from };
            n += 1;
        }
    }
    let points = &mut points[..n];
    // Ties are ordered by the index, so that the order does not depend on the sort algorithm.
    points.sort_unstable_by(|a, b| a.at.total_cmp(&b.at).then(a.index.cmp(&b.index)));
    f(points)
}

/// Visits every assignment of nearest codes that has a least-squares scale; `w` weights the squares.
fn sweep(x: &[f32; GROUP], w: &[f64; GROUP], mut visit: impl FnMut(Assignment)) {
    for sign in [1.0, -1.0] {
        with_breakpoints(x, sign, |points| {
            let (mut xq, mut qq) = (0.0, 0.0);
            for (i, point) in points.iter().enumerate() {
                xq += w[point.index] * f64::from(x[point.index]).abs();
                qq += w[point.index] * f64::from(2 * point.from + 1);
                // It is 0 as long as only codes of weights without importance have changed.
                if qq > 0.0 {
                    visit(Assignment { sign, xq, qq, passed: i + 1 });
                }
            }
        });
    }
}

/// The optimum: the least squared error over every scale of either sign, codes rounded to nearest and
/// clamped to -8..=7, the scale then refitted by least squares.
///
/// It takes about ten times as long as [`fit_group`](crate::fit::fit_group); use it offline, and to judge the other
/// rules. The scale is not rounded. A group with a NaN or an infinity has no answer: scale 0, codes 0, `sse` NaN.
///
/// ```
/// use halfbyte_q4::fit::{fit_group, optimal_group};
/// let x: [f32; 32] = std::array::from_fn(|i| (i as f32).sin());
/// assert!(optimal_group(&x).sse <= fit_group(&x).sse);
/// ```
#[must_use]
pub fn optimal_group(x: &[f32; GROUP]) -> GroupFit {
    if let Some(fit) = GroupFit::degenerate(x) {
        return fit;
    }
    let mut best: Option<(f64, Assignment)> = None;
    sweep(x, &[1.0; GROUP], |at| {
        let gain = at.xq * at.xq / at.qq;
        if best.is_none_or(|(most, _)| gain > most) {
            best = Some((gain, at));
        }
    });
    let mut codes = [0i8; GROUP];
    let Some((_, best)) = best else {
        return GroupFit::new(x, 0.0, codes);
    };
    with_breakpoints(x, best.sign, |points| {
        for point in &points[..best.passed] {
            let up = best.sign * f64::from(x[point.index]) > 0.0;
            codes[point.index] += if up { 1 } else { -1 };
        }
    });
    // The sums are computed again, because those of the sweep contain the rounding errors of all steps before.
    let (mut xq, mut qq) = (0.0, 0.0);
    for (&x, &q) in x.iter().zip(&codes) {
        xq += f64::from(x) * f64::from(q);
        qq += f64::from(q) * f64::from(q);
    }
    GroupFit::new(x, xq / qq, codes)
}

/// The f16 scale with the least error, weighted by `w`, when codes are chosen for it; `None` when no
/// scale but 0 is any better than 0.
pub(crate) fn optimal_stored_scale(x: &[f32; GROUP], w: &[f64; GROUP]) -> Option<f16> {
    let limit = f16::MAX.to_f64();
    let (mut most, mut best) = (0.0, None);
    sweep(x, w, |at| {
        // No f16 scale gains more than the unrounded one, so most assignments are skipped here.
        if at.xq * at.xq / at.qq <= most {
            return;
        }
        let scale = nearest_f16((at.xq / at.qq).min(limit));
        let d = scale.to_f64();
        let gain = d * (2.0 * at.xq - d * at.qq);
        if gain > most {
            (most, best) = (gain, Some(if at.sign < 0.0 { -scale } else { scale }));
        }
    });
    best
}
