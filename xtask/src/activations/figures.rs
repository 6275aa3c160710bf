//! What was measured, as `docs/activations.json` keeps it.

use serde::{Deserialize, Serialize};

/// What `--activations` takes, from the coarsest to the exact one.
pub(super) const KINDS: [&str; 4] = [INT8, AUTO, INT16, F32];
pub(super) const INT8: &str = "int8";
pub(super) const AUTO: &str = "auto";
pub(super) const INT16: &str = "int16";
pub(super) const F32: &str = "f32";
/// In the place of a kind: another program.
pub(super) const LLAMA: &str = "llama.cpp";

/// Everything that the tables are made of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    pub(super) subjects: Vec<Subject>,
}

/// A file and what rounding activations does to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Subject {
    /// For `--subject`.
    pub(super) key: String,
    pub(super) name: String,
    /// How the file was made.
    pub(super) source: String,
    /// The processor that the rates are of, as it calls itself.
    pub(super) cpu: String,
    /// The version of llama-cpp-python, if llama.cpp was asked.
    pub(super) llama: Option<String>,
    pub(super) text: String,
    /// Tokens in a window.
    pub(super) context: usize,
    pub(super) windows: usize,
    pub(super) scored_tokens: usize,
    /// With activations, keys and values in f32.
    pub(super) perplexity: f64,
    /// llama.cpp's on the F32 file.
    pub(super) llama_perplexity: Option<f64>,
    /// The kinds but f32, and llama.cpp.
    pub(super) quality: Vec<Quality>,
    /// For the file that the replies were recorded of; else none.
    pub(super) replies: Vec<Replies>,
    pub(super) rates: Vec<Rates>,
}

/// How far predictions are from those of the same program without rounding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Quality {
    /// One of [`KINDS`], or [`LLAMA`].
    pub(super) kind: String,
    /// Mean, 99% quantile and maximum of the divergence, nats a token.
    pub(super) mean: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
    pub(super) same_top_percent: f64,
    pub(super) perplexity: f64,
}

/// How many questions get the whole reply that float64 arithmetic gives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Replies {
    /// One of [`KINDS`], or [`LLAMA`].
    pub(super) kind: String,
    pub(super) asked: usize,
    pub(super) equal: usize,
}

/// Tokens a second of one kind of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Rates {
    pub(super) isa: String,
    pub(super) threads: usize,
    pub(super) work: Work,
    pub(super) rounds: usize,
    /// One of each of [`KINDS`], in that order.
    pub(super) kinds: Vec<Rate>,
}

/// What was timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Work {
    Prompt,
    Decode,
}

/// One kind's tokens a second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Rate {
    pub(super) kind: String,
    /// The median over rounds.
    pub(super) tokens_per_second: f64,
    /// The median over rounds of the rate divided by int8's in the same round.
    pub(super) to_int8: f64,
}

impl Rates {
    /// Of `rounds`, each with the rates of [`KINDS`] in that order.
    pub(super) fn new(isa: &str, threads: usize, work: Work, rounds: &[[f64; KINDS.len()]]) -> Self {
        let kinds = KINDS.iter().enumerate().map(|(i, kind)| Rate {
            kind: (*kind).to_owned(),
            tokens_per_second: median(rounds.iter().map(|round| round[i])),
            to_int8: median(rounds.iter().map(|round| round[i] / round[0])),
        });
        Self { isa: isa.to_owned(), threads, work, rounds: rounds.len(), kinds: kinds.collect() }
    }

    pub(super) fn kind(&self, kind: &str) -> Option<&Rate> {
        self.kinds.iter().find(|rate| rate.kind == kind)
    }
}

impl Subject {
    pub(super) fn quality(&self, kind: &str) -> Option<&Quality> {
        self.quality.iter().find(|quality| quality.kind == kind)
    }

    pub(super) fn replies(&self, kind: &str) -> Option<&Replies> {
        self.replies.iter().find(|replies| replies.kind == kind)
    }
}

/// The middle value, or the mean of the middle two; NaN of none.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A subject with made-up figures: the mean divergences, and the rates of one round of prompts and one of replies.
    pub(crate) fn subject(kl: &[(&str, f64)], prompt: [f64; 4], decode: [f64; 4]) -> Subject {
        let quality = |&(kind, mean): &(&str, f64)| Quality {
            kind: kind.to_owned(),
            mean,
            p99: 4.0 * mean,
            max: 16.0 * mean,
            same_top_percent: 98.75,
            perplexity: 20.5,
        };
        Subject {
            key: "smollm2-q4_1".to_owned(),
            name: "Model in Q4_1".to_owned(),
            source: "from nowhere".to_owned(),
            cpu: "a processor".to_owned(),
            llama: None,
            text: "text.txt".to_owned(),
            context: 512,
            windows: 2,
            scored_tokens: 510,
            perplexity: 20.25,
            llama_perplexity: None,
            quality: kl.iter().map(quality).collect(),
            replies: vec![Replies { kind: AUTO.to_owned(), asked: 40, equal: 29 }],
            rates: vec![
                Rates::new("avx2", 1, Work::Prompt, &[prompt]),
                Rates::new("avx2", 1, Work::Decode, &[decode]),
            ],
        }
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        // The machine was twice as fast in the second round, and four times in the third.
        let rounds = [[10.0, 9.0, 5.0, 2.0], [20.0, 16.0, 10.0, 4.0], [40.0, 40.0, 30.0, 8.0]];
        let rates = Rates::new("avx2", 2, Work::Prompt, &rounds);
        let said: Vec<_> = rates.kinds.iter().map(|r| (r.tokens_per_second, r.to_int8)).collect();
        assert_eq!(said, [(20.0, 1.0), (16.0, 0.9), (10.0, 0.5), (4.0, 0.2)]);
    }

    #[test]
    fn medians_by_hand() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 8.0].into_iter()), 3.0);
        assert!(median(std::iter::empty()).is_nan());
    }

    #[test]
    fn json_keeps_all() {
        let one = subject(&[(INT8, 0.5)], [1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]);
        let figures = Figures { subjects: vec![one] };
        let json = serde_json::to_string(&figures).unwrap();
        assert_eq!(serde_json::from_str::<Figures>(&json).unwrap(), figures);
    }
}
