//! Codes that stand for fixed levels: `w = d * level`. Q5_0, IQ4_NL and MXFP4, and the sub-blocks of [`scales`](super::scales).

use super::quadratic::{Quadratic, nearest_f16, round_clamped};
use half::f16;

/// The levels of a format, in units of the scale.
pub(super) trait Levels {
    /// The lowest level, below 0, and the highest.
    const ENDS: (f64, f64);

    /// The level nearest to `t`; one of the ends where `t` is beyond them.
    fn nearest(t: f64) -> f64;
}

/// All whole numbers from `-HALF` to `HALF - 1`.
pub(super) struct Whole<const HALF: i32>;

impl<const HALF: i32> Levels for Whole<HALF> {
    const ENDS: (f64, f64) = (-(HALF as f64), (HALF - 1) as f64);

    #[inline(always)]
    fn nearest(t: f64) -> f64 {
        round_clamped(t, Self::ENDS.0, Self::ENDS.1)
    }
}

/// A sorted list of sixteen levels.
fn nearest_of(levels: &[f64; 16], t: f64) -> f64 {
    // The number of midpoints below `t`, by halving.
    let mut at = 0;
    for step in [8, 4, 2, 1] {
        if t > (levels[at + step - 1] + levels[at + step]) / 2.0 {
            at += step;
        }
    }
    levels[at]
}

/// [`IQ4_LEVELS`](crate::IQ4_LEVELS).
pub(super) struct Uneven;

impl Levels for Uneven {
    const ENDS: (f64, f64) = (-127.0, 113.0);

    #[inline(always)]
    fn nearest(t: f64) -> f64 {
        const LEVELS: [f64; 16] = [
            -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0,
            89.0, 113.0,
        ];
        nearest_of(&LEVELS, t)
    }
}

/// [`FP4_LEVELS`](crate::FP4_LEVELS), sorted; there are two zeros.
pub(super) struct Fp4;

impl Levels for Fp4 {
    const ENDS: (f64, f64) = (-12.0, 12.0);

    #[inline(always)]
    fn nearest(t: f64) -> f64 {
        const LEVELS: [f64; 16] =
            [-12.0, -8.0, -6.0, -4.0, -3.0, -2.0, -1.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0];
        nearest_of(&LEVELS, t)
    }
}

/// Weights that share a scale, in f64, with their importances.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group<'a> {
    pub(super) x: &'a [f64],
    pub(super) v: &'a [f64],
}

impl Group<'_> {
    /// The sums for the codes of scale `d`, which are 0 for a scale of 0.
    #[inline(always)]
    pub(super) fn rounded<L: Levels>(&self, d: f64) -> Quadratic {
        let sums = Quadratic::of_weights(self.x, self.v);
        if d == 0.0 {
            return sums;
        }
        let inverse = 1.0 / d;
        sums.with_codes(self.x, self.v, |x| L::nearest(x * inverse))
    }

    /// The error for scale `d` and the codes that are best for it.
    #[inline(always)]
    pub(super) fn error<L: Levels>(&self, d: f64) -> f64 {
        if d == 0.0 {
            return self.x.iter().zip(self.v).map(|(x, v)| v * x * x).sum();
        }
        let inverse = 1.0 / d;
        let mut sums = [0.0; 4];
        for (x, v) in self.x.as_chunks::<4>().0.iter().zip(self.v.as_chunks::<4>().0) {
            for i in 0..4 {
                let off = x[i] - d * L::nearest(x[i] * inverse);
                sums[i] += v[i] * off * off;
            }
        }
        (sums[0] + sums[1]) + (sums[2] + sums[3])
    }

    /// The weight of the largest magnitude, the first of several.
    pub(super) fn biggest(&self) -> f64 {
        self.x.iter().fold(0.0, |best: f64, x| if x.abs() > best.abs() { *x } else { best })
    }

    /// The scale of least error, before it is rounded, and the sums of its codes; 0 for a group of zeros.
    ///
    /// The biggest weight is put at `places` places of each end of the levels, from 0.6 times the end, where the outer
    /// levels are not used, to 1.6 times, where it is cut off because others count more. Each place is refitted, and the
    /// best of them until that gains nothing.
    pub(super) fn best_scale<L: Levels>(&self, places: usize) -> (f64, Quadratic) {
        let biggest = self.biggest();
        let sums = Quadratic::of_weights(self.x, self.v);
        if biggest == 0.0 {
            return (0.0, sums);
        }
        // What the codes take off the error, its first term being the same for all.
        let gain = |sums: &Quadratic| if sums.qq > 0.0 { sums.xq * sums.xq / sums.qq } else { 0.0 };
        let mut best = (0.0, sums);
        for end in [L::ENDS.0, L::ENDS.1] {
            for i in 0..places {
                let place = end * (0.6 + i as f64 / (places - 1) as f64);
                let tried = sums.with_codes(self.x, self.v, |x| L::nearest(x * (place / biggest)));
                if gain(&tried) > gain(&best.1) {
                    best = (tried.best_scale(), tried);
                }
            }
        }
        while best.0 != 0.0 {
            let again = self.rounded::<L>(best.0);
            if gain(&again) <= gain(&best.1) {
                break;
            }
            best = (again.best_scale(), again);
        }
        best
    }
}

/// The f16 scale of least error that is found for a group, and the levels of its weights.
pub(super) fn fit_scale<L: Levels>(group: Group<'_>) -> (f16, Vec<f64>) {
    let (scale, _) = group.best_scale::<L>(48);
    let mut best = f16::ZERO;
    let mut least = group.error::<L>(0.0);
    // Neighbours, for scales so small that an f16 has few bits.
    let stored = nearest_f16(scale);
    for bits in [stored.to_bits(), stored.to_bits().wrapping_add(1), stored.to_bits().wrapping_sub(1)] {
        let d = f16::from_bits(bits);
        if d.is_finite() && d != f16::ZERO {
            let error = group.error::<L>(d.to_f64());
            if error < least {
                (best, least) = (d, error);
            }
        }
    }
    (best, levels::<L>(group.x, best.to_f64()))
}

/// The levels nearest to weights for scale `d`; 0 where it is 0.
pub(super) fn levels<L: Levels>(x: &[f64], d: f64) -> Vec<f64> {
    if d == 0.0 { vec![0.0; x.len()] } else { x.iter().map(|x| L::nearest(x * (1.0 / d))).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<L: Levels>(levels: &[i8]) {
        for t in -300..300 {
            let t = f64::from(t) / 2.0 + 0.1;
            let distance = |level: f64| (t - level).abs();
            let nearest = levels.iter().map(|&l| distance(l.into())).fold(f64::INFINITY, f64::min);
            assert_eq!(distance(L::nearest(t)), nearest, "{t}");
        }
    }

    #[test]
    fn levels_are_the_nearest() {
        check::<Uneven>(&crate::IQ4_LEVELS);
        check::<Fp4>(&crate::FP4_LEVELS);
        check::<Whole<16>>(&std::array::from_fn::<i8, 32, _>(|i| i as i8 - 16));
    }
}
