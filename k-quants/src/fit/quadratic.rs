//! Sums over a group whose codes are given, and what every search needs besides.

use half::f16;

/// The largest f16.
pub(super) const F16_MAX: f64 = 65504.0;

/// The f16 nearest to `v`, never an infinity.
pub(super) fn nearest_f16(v: f64) -> f16 {
    f16::from_f64(v.clamp(-F16_MAX, F16_MAX))
}

/// The whole number nearest to `v`, ties to even, within `low..=high`. NaN becomes `low`.
///
/// Adding 1.5 * 2^52 leaves no bits behind the point, and compiles to vectors where `round_ties_even` is a call.
pub(super) fn round_clamped(v: f64, low: f64, high: f64) -> f64 {
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    let v = if v > low { v } else { low };
    let v = if v < high { v } else { high };
    (v + MAGIC) - MAGIC
}

/// The error of a group as a function of its scale and minimum, its codes `q` being given:
/// `sum(v (x - (a q + b))^2)`, from five sums that do not depend on `a` and `b`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Quadratic {
    /// `sum(v)`.
    pub(super) one: f64,
    /// `sum(v x)`.
    pub(super) x: f64,
    /// `sum(v x x)`.
    pub(super) xx: f64,
    /// `sum(v q)`.
    pub(super) q: f64,
    /// `sum(v q q)`.
    pub(super) qq: f64,
    /// `sum(v x q)`.
    pub(super) xq: f64,
}

impl Quadratic {
    /// The sums of a group without codes.
    pub(super) fn of_weights(x: &[f64], v: &[f64]) -> Self {
        let mut sums = Self::default();
        for (x, v) in x.iter().zip(v) {
            sums.one += v;
            sums.x += v * x;
            sums.xx += v * x * x;
        }
        sums
    }

    /// These sums, with those of the codes that `code` gives.
    pub(super) fn with_codes(self, x: &[f64], v: &[f64], code: impl Fn(f64) -> f64) -> Self {
        let (mut q_sums, mut qq, mut xq) = ([0.0; 4], [0.0; 4], [0.0; 4]);
        for (x, v) in x.as_chunks::<4>().0.iter().zip(v.as_chunks::<4>().0) {
            for i in 0..4 {
                let q = code(x[i]);
                q_sums[i] += v[i] * q;
                qq[i] += v[i] * q * q;
                xq[i] += v[i] * x[i] * q;
            }
        }
        let sum = |s: [f64; 4]| (s[0] + s[1]) + (s[2] + s[3]);
        Self { q: sum(q_sums), qq: sum(qq), xq: sum(xq), ..self }
    }

    /// The error for scale `a` and minimum `b`.
    pub(super) fn error(&self, a: f64, b: f64) -> f64 {
        self.xx - 2.0 * (a * self.xq + b * self.x) + a * a * self.qq + 2.0 * a * b * self.q + b * b * self.one
    }

    /// The scale of least error where there is no minimum; 0 if all codes of importance are 0.
    pub(super) fn best_scale(&self) -> f64 {
        if self.qq > 0.0 { self.xq / self.qq } else { 0.0 }
    }

    /// The best minimum for scale `a`.
    pub(super) fn best_min(&self, a: f64) -> f64 {
        (self.x - a * self.q) / self.one
    }

    /// The best scale and minimum together; `None` if all codes of importance are equal.
    pub(super) fn best_line(&self) -> Option<(f64, f64)> {
        let determinant = self.one * self.qq - self.q * self.q;
        // With equal codes it is 0 but for the rounding of the sums.
        if determinant <= 1e-12 * self.one * self.qq {
            return None;
        }
        let a = (self.one * self.xq - self.q * self.x) / determinant;
        Some((a, self.best_min(a)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_the_sum_of_squares() {
        let (x, v) = ([1.0, -2.0, 0.5, 4.0], [1.0, 0.5, 2.0, 0.25]);
        let code = |x: f64| round_clamped(x, 0.0, 3.0);
        let sums = Quadratic::of_weights(&x, &v).with_codes(&x, &v, code);
        let direct = |a: f64, b: f64| -> f64 {
            x.iter().zip(v).map(|(&x, v)| v * (x - (a * code(x) + b)).powi(2)).sum()
        };
        for (a, b) in [(1.0, 0.0), (0.75, -0.5), (-1.5, 2.0)] {
            assert!((sums.error(a, b) - direct(a, b)).abs() < 1e-12);
        }
        let (a, b) = sums.best_line().unwrap();
        for (da, db) in [(1e-3, 0.0), (-1e-3, 0.0), (0.0, 1e-3), (0.0, -1e-3)] {
            assert!(direct(a, b) < direct(a + da, b + db));
        }
        assert!(direct(sums.best_scale(), 0.0) < direct(sums.best_scale() + 1e-3, 0.0));
    }

    #[test]
    fn rounding_is_to_even_and_clamped() {
        let cases = [(0.5, 0.0), (1.5, 2.0), (-0.4, 0.0), (9.0, 3.0), (-9.0, -2.0), (f64::NAN, -2.0)];
        for (v, want) in cases {
            assert_eq!(round_clamped(v, -2.0, 3.0), want, "{v}");
        }
        assert_eq!(nearest_f16(1e9), f16::MAX);
    }
}
