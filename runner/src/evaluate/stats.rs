//! Losses and divergences from logits, and their means and quantiles. All in f64.

/// `ln(sum(exp(x)))` without overflow; `-inf` for no logits, NaN if any logit is NaN.
pub fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    if max == f64::NEG_INFINITY {
        // There are no logits, or only -inf and NaN.
        return if logits.iter().any(|x| x.is_nan()) { f64::NAN } else { max };
    }
    max + logits.iter().map(|&x| (f64::from(x) - max).exp()).sum::<f64>().ln()
}

/// The divergence `KL(p || q)` in nats of two softmaxes of the same length, each given as logits and their
/// [`log_sum_exp`].
///
/// Equal logits give exactly 0. Rounding can't make the result negative: it is raised to 0. Tokens that have no
/// probability in `p` count as 0; one that has some in `p` and a logit of `-inf` in `q` gives infinity.
///
/// # Panics
/// If the lengths differ.
pub fn kl_divergence(p: (&[f32], f64), q: (&[f32], f64)) -> f64 {
    assert_eq!(p.0.len(), q.0.len(), "two distributions over the same tokens");
    let kl = p.0.iter().zip(q.0).map(|(&a, &b)| {
        let (ln_p, ln_q) = (f64::from(a) - p.1, f64::from(b) - q.1);
        let p = ln_p.exp();
        if p == 0.0 { 0.0 } else { p * (ln_p - ln_q) }
    });
    let kl: f64 = kl.sum();
    // `max` would turn NaN into a number.
    if kl < 0.0 { 0.0 } else { kl }
}

/// The index of the largest logit, the first of equal ones; 0 for no logits.
pub fn argmax(logits: &[f32]) -> usize {
    let mut best = 0;
    for (i, x) in logits.iter().enumerate() {
        if *x > logits[best] {
            best = i;
        }
    }
    best
}

/// A running mean and its standard error, by Welford's recurrence, which avoids the cancellation of sums of squares.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    count: u64,
    mean: f64,
    /// The sum of squared distances from the mean.
    spread: f64,
}

impl Mean {
    /// Adds a value.
    pub fn push(&mut self, value: f64) {
        self.count += 1;
        let before = value - self.mean;
        self.mean += before / self.count as f64;
        self.spread += before * (value - self.mean);
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The sum of the values.
    pub fn sum(&self) -> f64 {
        self.mean * self.count as f64
    }

    /// The mean; 0 for no values.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// The mean's standard error, the values taken as independent: `sqrt(sum((x - mean)^2) / (n (n - 1)))`; `None` for
    /// fewer than two values.
    pub fn standard_error(&self) -> Option<f64> {
        let n = self.count as f64;
        (self.count > 1).then(|| (self.spread / (n * (n - 1.0))).sqrt())
    }

    /// `exp` of the mean, which for losses in nats is the perplexity.
    pub fn exp(&self) -> f64 {
        self.mean.exp()
    }

    /// The standard error of [`Mean::exp`] to first order (the delta method): itself times the mean's.
    pub fn exp_standard_error(&self) -> Option<f64> {
        self.standard_error().map(|error| self.exp() * error)
    }
}

impl Extend<f64> for Mean {
    fn extend<I: IntoIterator<Item = f64>>(&mut self, values: I) {
        values.into_iter().for_each(|value| self.push(value));
    }
}

/// The value below which a share of `share` (0 to 1) of `sorted` lies, interpolated between neighbours: the one at
/// index `share * (n - 1)`. `None` for no values.
pub fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = share.clamp(0.0, 1.0) * last as f64;
    let below = at.floor();
    let (low, high) = (sorted[below as usize], sorted[at.ceil() as usize]);
    // At a whole index there is nothing to interpolate; infinity times 0 would be NaN.
    Some(if at == below { low } else { low + (high - low) * (at - below) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-12 * b.abs().max(1.0), "{a} is not {b}");
    }

    #[test]
    fn log_sum_exp_by_hand() {
        close(log_sum_exp(&[0.0, 3_f32.ln()]), f64::from(3_f32.ln()).exp().ln_1p());
        assert_eq!(log_sum_exp(&[1000.0, 1000.0]), 1000.0 + 2_f64.ln());
        assert_eq!(log_sum_exp(&[-1000.0, f32::NEG_INFINITY]), -1000.0);
        assert_eq!(log_sum_exp(&[]), f64::NEG_INFINITY);
        assert_eq!(log_sum_exp(&[f32::NEG_INFINITY; 2]), f64::NEG_INFINITY);
        assert!(log_sum_exp(&[f32::NAN, 1.0]).is_nan());
        assert!(log_sum_exp(&[f32::NAN]).is_nan());
    }

    fn kl(p: &[f32], q: &[f32]) -> f64 {
        kl_divergence((p, log_sum_exp(p)), (q, log_sum_exp(q)))
    }

    #[test]
    fn divergence_by_hand() {
        // p = (1/2, 1/2), q = (1, 3) / 4 but for the rounding of ln 3: 1/2 ln(1/2 : 1/4) + 1/2 ln(1/2 : 3/4).
        let expected = 0.5 * 2_f64.ln() + 0.5 * (2.0_f64 / 3.0).ln();
        assert!((kl(&[7.0, 7.0], &[0.0, 3_f32.ln()]) - expected).abs() < 1e-7);
        // The other way round it is another number: 1/4 ln(1/4 : 1/2) + 3/4 ln(3/4 : 1/2).
        let expected = 0.25 * 0.5_f64.ln() + 0.75 * 1.5_f64.ln();
        assert!((kl(&[0.0, 3_f32.ln()], &[7.0, 7.0]) - expected).abs() < 1e-7);
    }

    #[test]
    fn divergence_of_equals_is_exactly_zero() {
        let p = [0.1, -3.7, 12.25, 5.5, f32::NEG_INFINITY, -80.0];
        assert_eq!(kl(&p, &p), 0.0);
    }

    #[test]
    fn divergence_at_the_edges() {
        assert_eq!(kl(&[0.0, f32::NEG_INFINITY], &[0.0, f32::NEG_INFINITY]), 0.0);
        close(kl(&[0.0, f32::NEG_INFINITY], &[0.0, 0.0]), 2_f64.ln());
        assert_eq!(kl(&[0.0, 0.0], &[0.0, f32::NEG_INFINITY]), f64::INFINITY);
        assert!(kl(&[0.0, f32::NAN], &[0.0, 0.0]).is_nan());
    }

    #[test]
    fn the_first_of_equals_is_the_top() {
        assert_eq!(argmax(&[1.0, 3.0, -2.0, 3.0]), 1);
        assert_eq!(argmax(&[f32::NEG_INFINITY, -1.0]), 1);
        assert_eq!(argmax(&[]), 0);
    }

    #[test]
    fn mean_by_hand() {
        let mut mean = Mean::default();
        assert_eq!((mean.count(), mean.mean(), mean.standard_error()), (0, 0.0, None));
        mean.push(2.0);
        assert_eq!((mean.mean(), mean.standard_error(), mean.exp_standard_error()), (2.0, None, None));
        mean.extend([4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        // The squared distances from 5 are 9, 1, 1, 1, 0, 0, 4, 16: sqrt(32 / (8 * 7)).
        assert_eq!((mean.count(), mean.mean(), mean.sum()), (8, 5.0, 40.0));
        close(mean.standard_error().unwrap(), (4.0_f64 / 7.0).sqrt());
        close(mean.exp_standard_error().unwrap(), 5_f64.exp() * (4.0_f64 / 7.0).sqrt());
    }

    #[test]
    fn a_large_mean_does_not_swallow_the_spread() {
        let mut mean = Mean::default();
        mean.extend([1e9 + 1.0, 1e9 + 2.0, 1e9 + 3.0]);
        close(mean.standard_error().unwrap(), (1.0_f64 / 3.0).sqrt());
    }

    #[test]
    fn quantiles_by_hand() {
        let sorted = [1.0, 2.0, 4.0, 8.0, 16.0];
        for (share, expected) in [(0.0, 1.0), (0.5, 4.0), (1.0, 16.0), (0.25, 2.0), (0.625, 6.0), (0.9, 12.8)]
        {
            close(quantile(&sorted, share).unwrap(), expected);
        }
        assert_eq!(quantile(&[3.0], 0.99), Some(3.0));
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[0.0, f64::INFINITY], 0.0), Some(0.0));
    }
}
