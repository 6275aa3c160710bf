//! Choosing the next token from the model's logits.
//!
//! The filters run in the order of llama.cpp's default chain, each on what the
//! one before it left, with `p` always the softmax of the logits that are left:
//!
//! 1. **repeat penalty**: a token among the last `repeat_last_n` has its logit divided by the
//!    penalty if positive, else multiplied by it, once however often it occurs;
//! 2. **top-k**: the `k` highest logits;
//! 3. **top-p**: the fewest most probable tokens whose probabilities add up to at least `top_p`;
//! 4. **min-p**: the tokens at least `min_p` times as probable as the most probable one;
//! 5. **temperature**: the logits are divided by it, and one token is drawn.
//!
//! So top-p and min-p do not depend on the temperature. Of equal logits the lower id comes first.
//! Temperature 0 is greedy: the highest logit after the penalty.
//!
//! Sums are in f64. Draws come from PCG (`rand_pcg`'s `Pcg64`, whose output is part of its interface)
//! and logits only pass through IEEE operations and `exp`: the same seed and logits give the
//! same tokens, on every platform whose `exp` rounds alike.

use std::cmp::Ordering;

use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};

/// How to choose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplerConfig {
    /// 0 for the highest logit, else what logits are divided by: finite, not negative.
    pub temperature: f32,
    /// How many of the highest logits are kept. 0: all.
    pub top_k: usize,
    /// How much probability is kept, above 0 up to 1. 1: all.
    pub top_p: f32,
    /// How probable a token must be, against the most probable: 0 to 1. 0: no matter.
    pub min_p: f32,
    /// What repeated tokens' logits are divided by: finite, above 0. 1: nothing.
    pub repeat_penalty: f32,
    /// How far back a token counts as repeated. 0: never, `usize::MAX`: always.
    pub repeat_last_n: usize,
    /// Where the draws start.
    pub seed: u64,
}

impl Default for SamplerConfig {
    /// llama.cpp's defaults: temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, no penalty (over 64
    /// tokens if it is set), and seed 0.
    fn default() -> Self {
        Self {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            seed: 0,
        }
    }
}

impl SamplerConfig {
    /// The highest logit, always.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }
}

/// Why there is no sampler, or no token.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SamplerError {
    /// A setting out of its range.
    #[error("{name} is {got}: expected {expected}")]
    Setting {
        /// The setting.
        name: &'static str,
        /// Its range.
        expected: &'static str,
        /// Its value.
        got: f32,
    },
    /// No logits, or more than there are ids.
    #[error("{got} logits: expected 1 to 4294967295, one for each token")]
    Length {
        /// How many there are.
        got: usize,
    },
    /// A logit that is NaN or positive infinity.
    #[error("the logit of token {id} is {got}: expected a finite number or -inf")]
    Logit {
        /// The token.
        id: usize,
        /// Its logit.
        got: f32,
    },
    /// Every token is excluded.
    #[error("all {n_vocab} logits are -inf: expected at least one finite logit")]
    AllExcluded {
        /// How many there are.
        n_vocab: usize,
    },
}

/// A token that may still be chosen.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    logit: f32,
    id: u32,
}

impl Candidate {
    /// Most probable first, then by id.
    fn order(&self, other: &Self) -> Ordering {
        other.logit.total_cmp(&self.logit).then(self.id.cmp(&other.id))
    }
}

/// Chooses tokens; one for each conversation.
#[derive(Clone, Debug)]
pub struct Sampler {
    config: SamplerConfig,
    rng: Pcg64,
    candidates: Vec<Candidate>,
    /// For each token, whether it has been penalised for this draw; all false between calls.
    penalised: Vec<bool>,
    weights: Vec<f64>,
}

/// How many candidates top-p sorts at first; then twice as many, and so on.
const FIRST_SORTED: usize = 256;

impl Sampler {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`SamplerError::Setting`].
    pub fn new(config: SamplerConfig) -> Result<Self, SamplerError> {
        let SamplerConfig { temperature, top_p, min_p, repeat_penalty, .. } = config;
        // Negated, so that NaN is out of every range.
        let settings = [
            ("temperature", temperature, temperature.is_finite() && temperature >= 0.0, "0 or more, finite"),
            ("top_p", top_p, top_p > 0.0 && top_p <= 1.0, "more than 0, up to 1"),
            ("min_p", min_p, (0.0..=1.0).contains(&min_p), "0 to 1"),
            (
                "repeat_penalty",
                repeat_penalty,
                repeat_penalty.is_finite() && repeat_penalty > 0.0,
                "more than 0, finite",
            ),
        ];
        if let Some(&(name, got, _, expected)) = settings.iter().find(|(_, _, ok, _)| !ok) {
            return Err(SamplerError::Setting { name, expected, got });
        }
        let rng = Pcg64::seed_from_u64(config.seed);
        Ok(Self { config, rng, candidates: Vec::new(), penalised: Vec::new(), weights: Vec::new() })
    }

    /// The settings.
    pub fn config(&self) -> &SamplerConfig {
        &self.config
    }

    /// Whether the highest logit is taken, whatever came before.
    pub fn is_greedy(&self) -> bool {
        let SamplerConfig { temperature, repeat_penalty, repeat_last_n, .. } = self.config;
        temperature == 0.0 && (repeat_penalty == 1.0 || repeat_last_n == 0)
    }

    /// Chooses a token.
    ///
    /// `logits`: one for each token; -inf excludes a token. `history`: the
    /// tokens so far, the latest last; ids without a logit are ignored.
    /// After the first call with a vocabulary's size nothing is allocated. A
    /// greedy choice leaves the random numbers where they are.
    ///
    /// # Errors
    /// [`SamplerError::Length`], [`SamplerError::Logit`], [`SamplerError::AllExcluded`].
    pub fn sample(&mut self, logits: &[f32], history: &[u32]) -> Result<u32, SamplerError> {
        check(logits)?;
        self.weights.clear();
        self.weights.reserve(logits.len());
        self.candidates.clear();
        // Adding 0 makes -0 equal to 0 in the total order.
        self.candidates.extend((0_u32..).zip(logits).map(|(id, &l)| Candidate { logit: l + 0.0, id }));
        self.penalise(history);
        self.candidates.retain(|c| c.logit > f32::NEG_INFINITY);
        if self.candidates.is_empty() {
            return Err(SamplerError::AllExcluded { n_vocab: logits.len() });
        }
        if self.config.temperature == 0.0 {
            let first = |a: Candidate, b: &Candidate| if b.order(&a).is_lt() { *b } else { a };
            return Ok(self.candidates[1..].iter().fold(self.candidates[0], first).id);
        }
        self.top_k();
        self.top_p();
        self.min_p();
        Ok(self.draw())
    }

    fn penalise(&mut self, history: &[u32]) {
        let SamplerConfig { repeat_penalty, repeat_last_n, .. } = self.config;
        if repeat_penalty == 1.0 || repeat_last_n == 0 {
            return;
        }
        self.penalised.resize(self.candidates.len(), false);
        let recent = &history[history.len().saturating_sub(repeat_last_n)..];
        for &id in recent {
            let Some(seen) = self.penalised.get_mut(id as usize) else { continue };
            if !std::mem::replace(seen, true) {
                let logit = &mut self.candidates[id as usize].logit;
                let penalised = if *logit > 0.0 { *logit / repeat_penalty } else { *logit * repeat_penalty };
                // An overflow must neither exclude a token nor make it infinitely probable.
                if logit.is_finite() {
                    *logit = penalised.clamp(f32::MIN, f32::MAX);
                }
            }
        }
        for &id in recent {
            if let Some(seen) = self.penalised.get_mut(id as usize) {
                *seen = false;
            }
        }
    }

    // Each filter leaves the candidates either in order of id, as they came, or in
    // `Candidate::order`: a draw must not depend on how a selection shuffles.

    /// Leaves the `top_k` first candidates.
    fn top_k(&mut self) {
        let k = self.config.top_k;
        if k > 0 && k < self.candidates.len() {
            self.candidates.select_nth_unstable_by(k - 1, Candidate::order);
            self.candidates.truncate(k);
            self.candidates.sort_unstable_by(Candidate::order);
        }
    }

    /// Leaves the first candidates that add up to `top_p`.
    fn top_p(&mut self) {
        if self.config.top_p >= 1.0 {
            return;
        }
        let max = self.max_logit();
        let total: f64 = self.candidates.iter().map(|c| weight(c.logit, max)).sum();
        let wanted = f64::from(self.config.top_p) * total;
        let (mut sum, mut sorted, mut step) = (0.0, 0, FIRST_SORTED);
        // A sharp distribution needs few candidates of a large vocabulary in order.
        while sorted < self.candidates.len() {
            let rest = &mut self.candidates[sorted..];
            let n = step.min(rest.len());
            if n < rest.len() {
                rest.select_nth_unstable_by(n - 1, Candidate::order);
            }
            rest[..n].sort_unstable_by(Candidate::order);
            for (i, c) in rest[..n].iter().enumerate() {
                sum += weight(c.logit, max);
                if sum >= wanted {
                    self.candidates.truncate(sorted + i + 1);
                    return;
                }
            }
            sorted += n;
            step *= 2;
        }
    }

    /// Leaves the candidates that are probable enough.
    fn min_p(&mut self) {
        let min_p = f64::from(self.config.min_p);
        if min_p > 0.0 {
            let max = self.max_logit();
            self.candidates.retain(|c| weight(c.logit, max) >= min_p);
        }
    }

    /// Draws by the softmax of logits over temperature.
    fn draw(&mut self) -> u32 {
        let (max, temperature) = (self.max_logit(), f64::from(self.config.temperature));
        let mut total = 0.0;
        self.weights.extend(self.candidates.iter().map(|c| {
            total += ((f64::from(c.logit) - f64::from(max)) / temperature).exp();
            total
        }));
        // 53 bits: uniform in [0, 1).
        let point = (self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64 * total;
        let i = self.weights.partition_point(|&below| below <= point);
        self.candidates[i.min(self.candidates.len() - 1)].id
    }

    fn max_logit(&self) -> f32 {
        self.candidates.iter().map(|c| c.logit).fold(f32::NEG_INFINITY, f32::max)
    }
}

/// Probability up to a factor that all share; 1 for the most probable.
fn weight(logit: f32, max: f32) -> f64 {
    (f64::from(logit) - f64::from(max)).exp()
}

fn check(logits: &[f32]) -> Result<(), SamplerError> {
    if logits.is_empty() || u32::try_from(logits.len()).is_err() {
        return Err(SamplerError::Length { got: logits.len() });
    }
    match logits.iter().position(|l| l.is_nan() || *l == f32::INFINITY) {
        Some(id) => Err(SamplerError::Logit { id, got: logits[id] }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFF: SamplerConfig = SamplerConfig {
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        repeat_penalty: 1.0,
        repeat_last_n: 64,
        seed: 7,
    };

    fn random_logits(n: usize, seed: u64) -> Vec<f32> {
        let mut rng = Pcg64::seed_from_u64(seed);
        // A coarse grid, so that equal logits occur.
        (0..n).map(|_| (rng.next_u64() % 160) as f32 / 16.0 - 5.0).collect()
    }

    /// The filters by the book, in f64 and with full sorts: ids and probabilities.
    fn brute_force(logits: &[f32], config: &SamplerConfig, history: &[u32]) -> Vec<(u32, f64)> {
        let mut left: Vec<(u32, f64)> = (0..).zip(logits).map(|(i, &l)| (i, f64::from(l))).collect();
        for (id, logit) in &mut left {
            if history.iter().rev().take(config.repeat_last_n).any(|h| h == id) {
                let penalty = f64::from(config.repeat_penalty);
                *logit = f64::from((if *logit > 0.0 { *logit / penalty } else { *logit * penalty }) as f32);
            }
        }
        left.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        if config.top_k > 0 {
            left.truncate(config.top_k);
        }
        let softmax = |left: &[(u32, f64)], t: f64| -> Vec<f64> {
            let e: Vec<f64> = left.iter().map(|(_, l)| ((l - left[0].1) / t).exp()).collect();
            let sum: f64 = e.iter().sum();
            e.iter().map(|e| e / sum).collect()
        };
        let p = softmax(&left, 1.0);
        let mut sum = 0.0;
        let kept = p.iter().take_while(|&&p| {
            let more = sum < f64::from(config.top_p) - 1e-12;
            sum += p;
            more
        });
        left.truncate(kept.count());
        let p = softmax(&left, 1.0);
        let kept = p.iter().filter(|&&q| q >= f64::from(config.min_p) * p[0] * (1.0 - 1e-12)).count();
        left.truncate(kept);
        let p = softmax(&left, f64::from(config.temperature));
        left.iter().map(|l| l.0).zip(p).collect()
    }

    #[test]
    fn draws_follow_the_exact_distribution() {
        let history = [3, 5, 5, 900, 1, 8];
        for (case, config) in [
            OFF,
            SamplerConfig { temperature: 0.5, ..OFF },
            SamplerConfig { temperature: 3.0, top_k: 5, ..OFF },
            SamplerConfig { top_p: 0.7, ..OFF },
            SamplerConfig { min_p: 0.2, temperature: 1.5, ..OFF },
            SamplerConfig { repeat_penalty: 1.7, repeat_last_n: 3, ..OFF },
            SamplerConfig { repeat_penalty: 0.6, top_k: 9, top_p: 0.9, min_p: 0.05, temperature: 1.2, ..OFF },
        ]
        .into_iter()
        .enumerate()
        {
            let logits = random_logits(12, case as u64);
            let exact = brute_force(&logits, &config, &history);
            let mut sampler = Sampler::new(config).unwrap();
            let n = 40_000;
            let mut counts = [0_u32; 12];
            for _ in 0..n {
                counts[sampler.sample(&logits, &history).unwrap() as usize] += 1;
            }
            for (id, &count) in counts.iter().enumerate() {
                let p = exact.iter().find(|e| e.0 as usize == id).map_or(0.0, |e| e.1);
                let frequency = f64::from(count) / f64::from(n);
                // Five standard deviations; exactly none of what is filtered out.
                let bound = 5.0 * (p * (1.0 - p) / f64::from(n)).sqrt();
                assert!(
                    (frequency - p).abs() <= bound,
                    "seed 7 case {case} id {id}: {frequency} against {p}"
                );
            }
        }
    }

    #[test]
    fn filters_leave_the_set_that_brute_force_leaves() {
        let mut rng = Pcg64::seed_from_u64(11);
        for round in 0..300 {
            let n = 1 + (rng.next_u64() % 1500) as usize;
            let logits = random_logits(n, round);
            let config = SamplerConfig {
                top_k: [0, 1, 3, 40, 700][(rng.next_u64() % 5) as usize],
                top_p: [1.0, 0.95, 0.5, 0.01][(rng.next_u64() % 4) as usize],
                min_p: [0.0, 0.05, 0.5, 1.0][(rng.next_u64() % 4) as usize],
                ..OFF
            };
            let mut sampler = Sampler::new(config).unwrap();
            sampler.sample(&logits, &[]).unwrap();
            let mut got: Vec<u32> = sampler.candidates.iter().map(|c| c.id).collect();
            let mut want: Vec<u32> = brute_force(&logits, &config, &[]).iter().map(|e| e.0).collect();
            got.sort_unstable();
            want.sort_unstable();
            assert_eq!(got, want, "round {round}: {config:?}");
        }
    }

    #[test]
    fn greedy_takes_the_first_of_the_highest() {
        let mut sampler = Sampler::new(SamplerConfig::greedy()).unwrap();
        assert_eq!(sampler.sample(&[1.0, 3.0, 3.0, 2.0], &[]), Ok(1));
        assert_eq!(sampler.sample(&[-0.0, 0.0], &[]), Ok(0));
        assert_eq!(sampler.sample(&[f32::NEG_INFINITY, -1e30], &[]), Ok(1));
        let penalty = SamplerConfig { repeat_penalty: 2.0, ..SamplerConfig::greedy() };
        let mut sampler = Sampler::new(penalty).unwrap();
        assert_eq!(sampler.sample(&[1.0, 3.0, 2.0], &[1, 1]), Ok(2));
        assert_eq!(sampler.sample(&[-1.0, -3.0, -1.5], &[0]), Ok(2));
        // An overflow excludes nothing.
        let mut sampler = Sampler::new(SamplerConfig { repeat_penalty: 10.0, ..penalty }).unwrap();
        assert_eq!(sampler.sample(&[f32::MIN], &[0]), Ok(0));
    }

    #[test]
    fn a_seed_gives_the_same_tokens() {
        let logits = vec![0.0; 1000];
        let draw = |seed| {
            let mut sampler = Sampler::new(SamplerConfig { seed, ..OFF }).unwrap();
            (0..5).map(|_| sampler.sample(&logits, &[]).unwrap()).collect::<Vec<u32>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        // Equal logits draw floor(1000 u), with u from the generator's own interface.
        let mut rng = Pcg64::seed_from_u64(1);
        let expected: Vec<u32> =
            (0..5).map(|_| ((rng.next_u64() >> 11) as f64 / 2_f64.powi(53) * 1000.0) as u32).collect();
        assert_eq!(draw(1), expected);
    }

    #[test]
    fn bad_settings_and_logits_are_named() {
        let new = |config| Sampler::new(config).map(drop).map_err(|e| e.to_string());
        for (config, message) in [
            (
                SamplerConfig { temperature: f32::NAN, ..OFF },
                "temperature is NaN: expected 0 or more, finite",
            ),
            (SamplerConfig { temperature: -1.0, ..OFF }, "temperature is -1: expected 0 or more, finite"),
            (
                SamplerConfig { temperature: f32::INFINITY, ..OFF },
                "temperature is inf: expected 0 or more, finite",
            ),
            (SamplerConfig { top_p: 0.0, ..OFF }, "top_p is 0: expected more than 0, up to 1"),
            (SamplerConfig { top_p: f32::NAN, ..OFF }, "top_p is NaN: expected more than 0, up to 1"),
            (SamplerConfig { min_p: 1.5, ..OFF }, "min_p is 1.5: expected 0 to 1"),
            (
                SamplerConfig { repeat_penalty: 0.0, ..OFF },
                "repeat_penalty is 0: expected more than 0, finite",
            ),
        ] {
            assert_eq!(new(config), Err(message.to_owned()));
        }
        for config in [OFF, SamplerConfig::greedy()] {
            let mut sampler = Sampler::new(config).unwrap();
            let mut sample = |logits: &[f32]| sampler.sample(logits, &[]).map_err(|e| e.to_string());
            assert_eq!(
                sample(&[0.0, f32::NAN]),
                Err("the logit of token 1 is NaN: expected a finite number or -inf".into())
            );
            assert_eq!(
                sample(&[f32::INFINITY]),
                Err("the logit of token 0 is inf: expected a finite number or -inf".into())
            );
            assert_eq!(
                sample(&[f32::NEG_INFINITY; 2]),
                Err("all 2 logits are -inf: expected at least one finite logit".into())
            );
            assert_eq!(sample(&[]), Err("0 logits: expected 1 to 4294967295, one for each token".into()));
            assert_eq!(sample(&[f32::NEG_INFINITY, -5.0]), Ok(1));
        }
    }

    #[test]
    fn the_tiniest_temperature_and_widest_logits() {
        let config = SamplerConfig { temperature: f32::MIN_POSITIVE, ..OFF };
        assert_eq!(Sampler::new(config).unwrap().sample(&[f32::MIN, 1.0, 1.0 + f32::EPSILON], &[]), Ok(2));
        assert_eq!(Sampler::new(OFF).unwrap().sample(&[f32::MIN, f32::MAX], &[]), Ok(1));
    }
}
