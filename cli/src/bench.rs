//! `halfbyte bench`: tokens a second, for prompts and for replies.

use std::time::{Duration, Instant};

use anyhow::Result;
use halfbyte::model::cuda::CudaModel;
use halfbyte::model::{Compute, SavedState, Sequence};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::args::{BenchArgs, GlobalArgs};
use super::loading::{self, LoadedModel};
use super::output;
use super::types::Types;

#[derive(Serialize)]
struct Output<'a> {
    /// Of the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    isa: Option<&'static str>,
    /// The device that computes, if it is not the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    model: &'a str,
    #[serde(flatten)]
    types: Types,
    /// Bytes of weights that each decoded token reads.
    weight_bytes_per_token: usize,
    reps: usize,
    results: Vec<Measured>,
}

#[derive(Serialize)]
struct Measured {
    /// Of the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<usize>,
    n_prompt: usize,
    n_gen: usize,
    /// Tokens in the context before the first that is timed.
    depth: usize,
    tokens_per_second: Spread,
    /// Weights read a second at the median, in 10^9 bytes; only where each token reads them all.
    #[serde(skip_serializing_if = "Option::is_none")]
    gigabytes_per_second: Option<f64>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    /// Of at least one number; the median of an even count is the mean of the middle two.
    fn new(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let (n, mid) = (values.len(), values.len() / 2);
        let median = if n % 2 == 1 { values[mid] } else { (values[mid - 1] + values[mid]) / 2.0 };
        Self { median, min: values[0], max: values[n - 1] }
    }
}

/// What one repetition feeds.
#[derive(Clone, Copy)]
enum Test {
    Prompt(usize),
    Decode { tokens: usize, depth: usize },
}

impl Test {
    /// Tokens that are timed.
    fn tokens(self) -> usize {
        match self {
            Self::Prompt(tokens) | Self::Decode { tokens, .. } => tokens,
        }
    }

    /// Tokens that the context has to hold.
    fn context(self) -> usize {
        match self {
            Self::Prompt(tokens) => tokens,
            Self::Decode { tokens, depth } => depth + tokens,
        }
    }

    /// Feeds the last of `ids` to a context that holds those before, and says how long that took. Whatever the context
    /// holds already began with the same ids.
    ///
    /// A state that can't be cut goes back to `mark`, which is made where there is none yet.
    fn once(
        self,
        session: &mut dyn Sequence,
        ids: &[u32],
        mark: &mut Option<SavedState>,
    ) -> Result<Duration> {
        let (before, ids) = ids.split_at(ids.len() - self.tokens());
        if session.cut(before.len()).is_err() {
            match mark.as_ref().filter(|mark| mark.len() == before.len()) {
                Some(mark) => session.rewind(mark)?,
                None => session.cut(0)?,
            }
        }
        if session.len() < before.len() {
            session.cut(0)?;
            session.prompt(before)?;
        }
        if !session.can_cut() && !before.is_empty() && mark.is_none() {
            *mark = Some(session.mark()?);
        }
        let start = Instant::now();
        match self {
            Self::Prompt(_) => {
                session.prompt(ids)?;
            }
            Self::Decode { .. } => {
                for id in ids {
                    session.window(std::slice::from_ref(id), &mut |_, _| {})?;
                }
            }
        }
        Ok(start.elapsed())
    }
}

pub(crate) fn run(global: &GlobalArgs, args: &BenchArgs) -> Result<()> {
    let model = LoadedModel::new(&loading::load(global)?, global)?;
    let engine = &model.engine;
    let decode = Test::Decode { tokens: args.n_gen, depth: args.depth };
    let tests: Vec<Test> =
        [Test::Prompt(args.n_prompt), decode].into_iter().filter(|test| test.tokens() > 0).collect();
    let longest = tests.iter().map(|test| test.context()).max().unwrap_or(1);
    // Without --ctx the context is as long as the longest test.
    let context = global.ctx.unwrap_or(longest);
    let options = engine.options().with_context(context);
    if global.ctx.is_some() {
        model.require_fit("the longest test", longest)?;
    }
    let thread_counts = args.thread_counts.clone().unwrap_or_else(|| vec![model.threads.value]);
    let bytes =
        engine.cuda().map_or_else(|| engine.transformer().bytes_per_token(), CudaModel::bytes_per_token);

    let on_cpu = engine.cuda().is_none();
    let bar = progress_bar(thread_counts.len() * tests.len() * (args.reps + 1));
    let mut results = Vec::new();
    for &threads in &thread_counts {
        let compute = Compute::new(threads)?.with_isa(model.isa.value);
        let mut session = engine.sequence_with(&compute, options)?;
        let on = if on_cpu { format!("{threads} threads") } else { model.summary() };
        for &test in &tests {
            let (n_prompt, n_gen, depth) = match test {
                Test::Prompt(n) => (n, 0, 0),
                Test::Decode { tokens, depth } => (0, tokens, depth),
            };
            let ids = pseudo_random_ids(test.context(), engine.transformer().description().n_vocab);
            let (mut rates, mut mark) = (Vec::with_capacity(args.reps), None);
            for rep in 0..=args.reps {
                bar.set_message(format!("{on}, {n_prompt} prompt, {n_gen} decode"));
                let time = test.once(&mut *session, &ids, &mut mark)?;
                // The first repetition warms caches up and is not counted.
                if rep > 0 {
                    rates.push(test.tokens() as f64 / time.as_secs_f64());
                }
                bar.inc(1);
            }
            let tokens_per_second = Spread::new(rates);
            let gigabytes_per_second = (n_gen > 0).then_some(tokens_per_second.median * bytes as f64 / 1e9);
            results.push(Measured {
                threads: on_cpu.then_some(threads),
                n_prompt,
                n_gen,
                depth,
                tokens_per_second,
                gigabytes_per_second,
            });
        }
    }
    bar.finish_and_clear();

    let output = Output {
        isa: on_cpu.then(|| model.isa.value.name()),
        device: (!on_cpu).then(|| model.summary()),
        model: &model.name,
        types: Types::new(options),
        weight_bytes_per_token: bytes,
        reps: args.reps,
        results,
    };
    if args.json { output::json(&output) } else { table(&output) }
}

fn table(output: &Output<'_>) -> Result<()> {
    let mut text = format!(
        "{}, {}, {:.1} MB of weights a token, {} repetitions\n\
         threads          test   tokens/s (median)        min        max     GB/s\n",
        output.model,
        match (&output.device, output.isa) {
            (Some(device), _) => device.clone(),
            (None, isa) => format!("isa {}, {}", isa.unwrap_or_default(), output.types),
        },
        output.weight_bytes_per_token as f64 / 1e6,
        output.reps
    );
    for m in &output.results {
        let test = match (m.n_gen, m.depth) {
            (0, _) => format!("pp {}", m.n_prompt),
            (n, 0) => format!("tg {n}"),
            (n, depth) => format!("tg {n} @ {depth}"),
        };
        let rate = &m.tokens_per_second;
        let bytes = m.gigabytes_per_second.map_or_else(String::new, |v| format!("{v:.2}"));
        text += &format!(
            "{:>7}  {test:>12}  {:>18.1}  {:>9.1}  {:>9.1}  {bytes:>7}\n",
            m.threads.map_or_else(|| "-".to_owned(), |threads| threads.to_string()),
            rate.median,
            rate.min,
            rate.max
        );
    }
    Ok(output::text(&text)?)
}

fn progress_bar(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:20} {pos}/{len} {msg}");
    ProgressBar::new(steps as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// The same ids every time, spread over the vocabulary: a 64-bit linear congruential generator's upper half.
pub(crate) fn pseudo_random_ids(n: usize, n_vocab: usize) -> Vec<u32> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 32) % n_vocab as u64) as u32
    };
    (0..n).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread() {
        assert_eq!(Spread::new(vec![3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::new(vec![4.0, 1.0, 2.0, 8.0]), Spread { median: 3.0, min: 1.0, max: 8.0 });
        assert_eq!(Spread::new(vec![5.0]), Spread { median: 5.0, min: 5.0, max: 5.0 });
    }

    #[test]
    fn ids_are_the_same_every_time_and_in_the_vocabulary() {
        let ids = pseudo_random_ids(1000, 49_152);
        assert_eq!(ids, pseudo_random_ids(1000, 49_152));
        assert!(ids.iter().all(|&id| id < 49_152));
        assert!(ids.iter().collect::<std::collections::HashSet<_>>().len() > 900);
    }
}
