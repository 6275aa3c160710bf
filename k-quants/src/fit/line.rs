//! Codes and a minimum: `w = a * code + b`, codes `0..=TOP`. Q5_1, and the sub-blocks of [`lines`](super::lines).

use super::quadratic::{Quadratic, nearest_f16, round_clamped};
use super::symmetric::Group;
use half::f16;

/// A scale and a minimum, with the sums of their codes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    pub(super) a: f64,
    pub(super) b: f64,
    pub(super) sums: Quadratic,
}

impl Line {
    fn error(&self) -> f64 {
        self.sums.error(self.a, self.b)
    }
}

impl Group<'_> {
    /// The code of each weight for scale `a` and minimum `b`; 0 for a scale of 0.
    #[inline(always)]
    pub(super) fn code(x: f64, inverse: f64, b: f64, top: f64) -> f64 {
        round_clamped((x - b) * inverse, 0.0, top)
    }

    /// The error for scale `a`, minimum `b` and the codes that are best for them.
    #[inline(always)]
    pub(super) fn line_error(&self, a: f64, b: f64, top: f64) -> f64 {
        let inverse = if a == 0.0 { 0.0 } else { 1.0 / a };
        let mut sums = [0.0; 4];
        for (x, v) in self.x.as_chunks::<4>().0.iter().zip(self.v.as_chunks::<4>().0) {
            for i in 0..4 {
                let off = x[i] - (a * Self::code(x[i], inverse, b, top) + b);
                sums[i] += v[i] * off * off;
            }
        }
        (sums[0] + sums[1]) + (sums[2] + sums[3])
    }

    /// The line through the codes that `a` and `b` give, refitted. With `below`, its minimum is at most 0.
    fn refit(&self, weights: &Quadratic, a: f64, b: f64, top: f64, below: bool) -> Option<Line> {
        let inverse = 1.0 / a;
        let sums = weights.with_codes(self.x, self.v, |x| Self::code(x, inverse, b, top));
        let line = match sums.best_line() {
            Some((a, b)) if a > 0.0 && (b <= 0.0 || !below) => Line { a, b, sums },
            _ if below && sums.best_scale() > 0.0 => Line { a: sums.best_scale(), b: 0.0, sums },
            _ => return None,
        };
        Some(line)
    }

    /// The line of least error, before it is rounded. With `below`, its minimum is at most 0.
    ///
    /// The range of the weights is divided in `tries` ways into 0.7 to 1.5 times as many steps as there are codes, from
    /// either end; each division is refitted, and the best of them until that gains nothing.
    pub(super) fn best_line(&self, top: f64, below: bool, tries: usize) -> Line {
        let (low, high) =
            self.x.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), &x| (l.min(x), h.max(x)));
        let low = if below { low.min(0.0) } else { low };
        let weights = Quadratic::of_weights(self.x, self.v);
        // The best minimum alone.
        let flat = if below { weights.best_min(0.0).min(0.0) } else { weights.best_min(0.0) };
        let mut best = Line { a: 0.0, b: flat, sums: weights };
        if high <= low {
            return best;
        }
        let keep = |best: &mut Line, line: Option<Line>| {
            if let Some(line) = line.filter(|line| line.error() < best.error()) {
                *best = line;
            }
        };
        for i in 0..tries {
            let a = (high - low) / (top * (0.7 + 0.8 * i as f64 / (tries - 1) as f64));
            keep(&mut best, self.refit(&weights, a, low, top, below));
            keep(&mut best, self.refit(&weights, a, high - top * a, top, below));
        }
        for _ in 0..8 {
            let before = best.error();
            if best.a > 0.0 {
                let again = self.refit(&weights, best.a, best.b, top, below);
                keep(&mut best, again);
            }
            if best.error() >= before {
                break;
            }
        }
        best
    }
}

/// The f16 scale and minimum of least error that are found for a group, and its codes.
pub(super) fn fit_line(group: Group<'_>, top: f64) -> (f16, f16, Vec<u8>) {
    let line = group.best_line(top, false, 65);
    let mut best = (f16::ZERO, nearest_f16(line.sums.x / line.sums.one));
    let mut least = group.line_error(0.0, best.1.to_f64(), top);
    let mut start = line;
    for _ in 0..6 {
        // The scale as stored, then the best minimum for it.
        let a = nearest_f16(start.a);
        let b = nearest_f16(start.sums.best_min(a.to_f64()));
        let error = group.line_error(a.to_f64(), b.to_f64(), top);
        if error.is_nan() || error >= least || a == f16::ZERO {
            break;
        }
        (best, least) = ((a, b), error);
        // The codes of what is stored may have a better line.
        let weights = Quadratic::of_weights(group.x, group.v);
        match group.refit(&weights, a.to_f64(), b.to_f64(), top, false) {
            Some(line) => start = line,
            None => break,
        }
    }
    let (a, b) = (best.0.to_f64(), best.1.to_f64());
    (best.0, best.1, codes(group.x, a, b, top))
}

/// The codes nearest to weights for scale `a` and minimum `b`; 0 where the scale is 0.
pub(super) fn codes(x: &[f64], a: f64, b: f64, top: f64) -> Vec<u8> {
    let inverse = if a == 0.0 { 0.0 } else { 1.0 / a };
    x.iter().map(|&x| Group::code(x, inverse, b, top) as u8).collect()
}
