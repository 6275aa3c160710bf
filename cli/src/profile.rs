//! `halfbyte profile`: where the time goes, phase by phase.

use std::fmt::Write as _;

use anyhow::Result;
use halfbyte::model::{Phase, Profile, Sequence as _};
use serde::Serialize;

use super::args::{GlobalArgs, ProfileArgs};
use super::bench::pseudo_random_ids;
use super::loading::{self, LoadedModel};
use super::progress::Waiting;
use super::{output, profile_device};

#[derive(Serialize)]
struct Output<'a> {
    model: &'a str,
    on: String,
    n_prompt: usize,
    n_gen: usize,
    prompt: Vec<PhaseJson>,
    decode: Vec<PhaseJson>,
}

#[derive(Serialize)]
struct PhaseJson {
    phase: &'static str,
    calls: usize,
    total_ms: f64,
    mean_us: f64,
    /// Of all phases.
    percent: f64,
    /// 10^9 bytes of weights, or of keys and values, read a second; `null` where they are not counted.
    gigabytes_per_second: Option<f64>,
    /// 10^9 multiplications and additions a second; `null` where they are not counted.
    gflops: Option<f64>,
}

fn phases(profile: &Profile) -> Vec<PhaseJson> {
    let all = profile.time().as_secs_f64();
    let done = Phase::ALL.map(|phase| (phase, profile.phase(phase))).into_iter().filter(|p| p.1.calls > 0);
    done.map(|(phase, totals)| {
        let seconds = totals.time.as_secs_f64();
        let rate = |n: usize| (n > 0 && seconds > 0.0).then(|| n as f64 / seconds / 1e9);
        PhaseJson {
            phase: phase.name(),
            calls: totals.calls,
            total_ms: 1e3 * seconds,
            mean_us: 1e6 * seconds / totals.calls as f64,
            percent: if all > 0.0 { 100.0 * seconds / all } else { 0.0 },
            gigabytes_per_second: rate(totals.bytes),
            gflops: rate(totals.operations),
        }
    })
    .collect()
}

pub(crate) fn run(global: &GlobalArgs, args: &ProfileArgs) -> Result<()> {
    let model = LoadedModel::new(&loading::load(global)?, global)?;
    let tokens = args.n_prompt + args.n_gen;
    let context = global.ctx.unwrap_or(tokens);
    if global.ctx.is_some() {
        model.require_fit("the test", tokens)?;
    }
    let ids = pseudo_random_ids(tokens, model.engine.transformer().description().n_vocab);
    if let Some(options) = model.engine.options().with_context(context).cuda() {
        return profile_device::run(&model, options, args, &ids);
    }
    let mut session = model.cpu_session(context)?;
    let (prompt_ids, decode_ids) = ids.split_at(args.n_prompt);
    let waiting = Waiting::new(format!("{} tokens of prompt twice, {} of reply", args.n_prompt, args.n_gen));
    // The first pass warms caches up and is not counted.
    session.feed(prompt_ids)?;
    session.cut(0)?;
    session.start_profile();
    session.feed(prompt_ids)?;
    let prompt = session.finish_profile();
    let mark = session.mark()?;
    session.feed(&decode_ids[..1])?;
    session.rewind(&mark)?;
    session.start_profile();
    for id in decode_ids {
        session.feed(std::slice::from_ref(id))?;
    }
    let decode = session.finish_profile();
    drop(waiting);
    let output = Output {
        model: &model.name,
        on: model.summary(),
        n_prompt: args.n_prompt,
        n_gen: args.n_gen,
        prompt: phases(&prompt),
        decode: phases(&decode),
    };
    if args.json { output::json(&output) } else { Ok(output::text(&table(&output)?)?) }
}

fn table(output: &Output<'_>) -> Result<String> {
    let mut text = format!("{}, {}\n", output.model, output.on);
    let prompt = format!("prompt of {} tokens", output.n_prompt);
    let decode = format!("{} decode steps behind it", output.n_gen);
    for (title, phases) in [(prompt, &output.prompt), (decode, &output.decode)] {
        writeln!(text, "\n{title}")?;
        writeln!(text, "phase         calls    total ms     mean us   share      GB/s   GFLOP/s")?;
        let rate = |rate: Option<f64>| rate.map_or_else(String::new, |rate| format!("{rate:.2}"));
        for p in phases {
            writeln!(
                text,
                "{:<10}  {:>7}  {:>10.2}  {:>10.2}  {:>5.1}%  {:>8}  {:>8}",
                p.phase,
                p.calls,
                p.total_ms,
                p.mean_us,
                p.percent,
                rate(p.gigabytes_per_second),
                rate(p.gflops)
            )?;
        }
        writeln!(text, "all         {:>19.2}", phases.iter().map(|p| p.total_ms).sum::<f64>())?;
    }
    Ok(text)
}
