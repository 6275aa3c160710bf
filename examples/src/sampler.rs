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
