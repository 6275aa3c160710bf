//! Chooses how many tokens to draft, from the cost of a window of rows and the chance that drafted tokens are right.
//!
//! ```text
//! a window of 1 + k rows costs   1 + slope * k     steps of one row
//! and is expected to make        1 + p + p^2 + .. + p^k     tokens, p being the chance that a drafted token is right
//! ```
//!
//! Both `slope` and `p` are moving averages of measurements, `p` for each kind of draft by itself. The `k` with the most
//! tokens for the cost is chosen; if no `k` makes more than one token for the cost of one step, nothing is drafted.
//!
//! Estimates can be wrong, and texts change. So the time that windows cost beyond a step, and the time that their tokens
//! saved, are added up. Drafts are made only while they have lost less than [`ALLOWANCE`] of the time spent so far (and two
//! steps to begin with). A kind of draft that does not pay is tried again now and then within the same allowance.

/// The share of the time that wrong drafts may cost.
const ALLOWANCE: f64 = 0.02;
/// The number of steps that wrong drafts may cost in addition.
const CREDIT: f64 = 2.0;
/// The weight of a new measurement in a moving average.
const WEIGHT: f64 = 0.15;
/// Plain steps before a kind of draft that does not pay is tried again.
const RETRY: u32 = 32;

/// Estimates for one session.
#[derive(Clone, Debug)]
pub(super) struct Pricing {
    /// Seconds of a step of one row; `None` before the first.
    step: Option<f64>,
    /// Steps that each further row costs.
    slope: f64,
    kinds: Vec<Kind>,
    /// Seconds that drafts have saved; negative for a loss.
    saved: f64,
    /// Seconds of all steps and windows.
    spent: f64,
    most: usize,
}

#[derive(Clone, Copy, Debug)]
struct Kind {
    /// The chance that a drafted token is right, if those before it were.
    chance: f64,
    /// How often drafting did not pay since it last did.
    idle: u32,
}

impl Pricing {
    /// For kinds of drafts with these chances to begin with, of up to `most` tokens.
    pub(super) fn new(chances: &[f64], most: usize) -> Self {
        let kinds = chances.iter().map(|&chance| Kind { chance, idle: 0 }).collect();
        Self { step: None, slope: 0.3, kinds, saved: 0.0, spent: 0.0, most }
    }

    /// How many tokens of a draft of this kind to take, of `available`.
    pub(super) fn choose(&mut self, kind: usize, available: usize) -> usize {
        let most = self.most.min(available);
        let Some(step) = self.step else { return 0 };
        let cost = |k: usize| 1.0 + self.slope * k as f64;
        let affordable = |k: usize| {
            let lost = -self.saved + step * (cost(k) - 1.0);
            lost <= ALLOWANCE * self.spent + CREDIT * step
        };
        let Kind { chance, .. } = self.kinds[kind];
        let (mut best, mut best_value) = (0, 1.0);
        let (mut expected, mut right) = (1.0, 1.0);
        for k in (1..=most).take_while(|&k| affordable(k)) {
            right *= chance;
            expected += right;
            let value = expected / cost(k);
            if value > best_value {
                (best, best_value) = (k, value);
            }
        }
        let retry = most > 0 && affordable(1);
        let kind = &mut self.kinds[kind];
        kind.idle = if best > 0 { 0 } else { kind.idle + 1 };
        if kind.idle >= RETRY && retry {
            kind.idle = 0;
            return 1;
        }
        best
    }

    /// A step of one row took so many seconds.
    pub(super) fn stepped(&mut self, seconds: f64) {
        // A step that was delayed by something else is no measurement.
        let seen = self.step.map_or(seconds, |step| seconds.min(4.0 * step));
        self.step = Some(self.step.map_or(seen, |step| step + WEIGHT * (seen - step)));
        self.spent += seconds;
    }

    /// A window with `drafted` tokens of this kind, of which the first `accepted` were right, took so many seconds, making
    /// the draft included.
    pub(super) fn verified(&mut self, kind: usize, drafted: usize, accepted: usize, seconds: f64) {
        let step = *self.step.get_or_insert(seconds);
        let slope = ((seconds / step - 1.0) / drafted as f64).clamp(0.0, 2.0);
        self.slope += WEIGHT * (slope - self.slope);
        let kind = &mut self.kinds[kind];
        for _ in 0..accepted {
            kind.chance += WEIGHT * (1.0 - kind.chance);
        }
        if accepted < drafted {
            kind.chance -= WEIGHT * kind.chance;
        }
        self.saved += accepted as f64 * step - (seconds - step);
        self.spent += seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine where a window of `1 + k` rows takes `1 + slope * k` seconds, and a text where every drafted token is
    /// right with a chance: the speed with drafts over the speed without.
    fn simulate(slope: f64, chance: f64, steps: usize, mut state: u64) -> f64 {
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as f64 / (1_u64 << 31) as f64
        };
        let mut pricing = Pricing::new(&[0.5], 15);
        let (mut tokens, mut seconds) = (0, 0.0);
        for _ in 0..steps {
            let k = pricing.choose(0, 15);
            let took = 1.0 + slope * k as f64;
            if k == 0 {
                pricing.stepped(took);
                tokens += 1;
            } else {
                let accepted = (0..k).take_while(|_| random() < chance).count();
                pricing.verified(0, k, accepted, took);
                tokens += 1 + accepted;
            }
            seconds += took;
        }
        tokens as f64 / seconds
    }

    #[test]
    fn drafts_that_fail_cost_a_few_percent() {
        for slope in [0.05, 0.3, 1.0, 3.0] {
            for chance in [0.0, 0.1, 0.3] {
                for steps in [128, 1000] {
                    let speed = simulate(slope, chance, steps, 7);
                    assert!(speed > 0.95, "slope {slope}, chance {chance}, {steps} steps: {speed}");
                }
            }
        }
    }

    #[test]
    fn drafts_that_are_right_are_taken() {
        // The best there is: 16 tokens for 1 + 15 * slope steps.
        for slope in [0.05, 0.3] {
            let (speed, best) = (simulate(slope, 1.0, 500, 7), 16.0 / (1.0 + 15.0 * slope));
            assert!(speed > 0.8 * best, "slope {slope}: {speed} of {best}");
        }
        assert!(simulate(0.1, 0.8, 500, 7) > 1.8);
        // Where a row costs a step there is nothing to gain.
        assert!((0.97..1.1).contains(&simulate(1.0, 0.9, 500, 7)));
    }

    #[test]
    fn a_change_of_the_text_is_noticed() {
        let mut pricing = Pricing::new(&[0.5, 0.5], 15);
        assert_eq!(pricing.choose(0, 15), 0, "nothing is known of the costs yet");
        pricing.stepped(1.0);
        for _ in 0..100 {
            let k = pricing.choose(0, 15).max(1);
            pricing.verified(0, k, k, 1.0 + 0.1 * k as f64);
        }
        assert_eq!(pricing.choose(0, 15), 15);
        assert_eq!(pricing.choose(0, 4), 4);
        assert_eq!(pricing.choose(0, 0), 0);
        for _ in 0..20 {
            pricing.verified(0, 15, 0, 2.5);
        }
        assert_eq!(pricing.choose(0, 15), 0);
    }
}
