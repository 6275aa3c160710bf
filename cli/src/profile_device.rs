//! `halfbyte profile` on a CUDA device: where the time goes, kernel by kernel; on the emulator, what the kernels do.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use halfbyte::model::cuda::{CudaOptions, CudaSession};
use halfbyte_cuda_emulator::{Emulator, LaunchRecord};
use halfbyte_cuda_kernels::profiler::{Report, Row};
use serde::Serialize;

use super::args::ProfileArgs;
use super::loading::LoadedModel;
use super::output;

/// Written above counts.
const NO_TIMES: &str = "no times, which would be the emulator's; what kernels do here, they do on a GPU\n";

#[derive(Serialize)]
struct Output<'a, R> {
    model: &'a str,
    on: String,
    n_prompt: usize,
    n_gen: usize,
    prompt: Vec<R>,
    decode: Vec<R>,
}

/// What all launches of a kernel on a shape took, on a GPU.
#[derive(Debug, PartialEq, Serialize)]
struct Timed {
    kernel: String,
    shape: String,
    calls: u64,
    total_ms: f64,
    mean_us: f64,
    /// Of all kernels.
    percent: f64,
    /// 10^9 bytes a second, each byte that has to be moved counted once.
    gigabytes_per_second: f64,
    /// 10^9 multiplications and additions a second; `null` of a kernel that is not there for them.
    gflops: Option<f64>,
}

/// What all launches of a kernel did, on the emulator.
#[derive(Debug, PartialEq, Serialize)]
struct Counted {
    kernel: String,
    calls: u64,
    /// Instructions, each once a warp.
    warp_instructions: u64,
    /// Products of tiles on the tensor cores.
    mma: u64,
    /// Bytes that threads loaded from and stored to global memory.
    bytes: u64,
    /// Bytes that have to be moved, each once.
    least_bytes: u64,
    /// Cycles lost to lanes that meet in a bank of shared memory.
    bank_conflicts: u64,
}

/// The report of the profiler, and the counts of the emulator.
type Seen = (Report, Vec<LaunchRecord>);

/// Profiles a prompt and the decode steps behind it. `ids` has the tokens of both.
pub(super) fn run(model: &LoadedModel, options: CudaOptions, args: &ProfileArgs, ids: &[u32]) -> Result<()> {
    let weights = model.engine.cuda().context("expected a model on a CUDA device")?;
    let mut session = CudaSession::new(weights, options)?;
    let emulator = model.device.emulator();
    let (prompt_ids, decode_ids) = ids.split_at(args.n_prompt);
    if emulator.is_none() {
        // The first pass has the driver compile the kernels, and is not counted.
        session.prompt(prompt_ids)?;
        session.window(&decode_ids[..1])?;
        session.truncate(0);
    }
    session.watch();
    let prompt = watched(&mut session, emulator, |session| {
        session.prompt(prompt_ids)?;
        Ok(())
    })?;
    let decode = watched(&mut session, emulator, |session| {
        for id in decode_ids {
            session.window(std::slice::from_ref(id))?;
        }
        Ok(())
    })?;
    let emulated = emulator.is_some();
    let text = |seen: &Seen| if emulated { counts(&counted(seen)) } else { seen.0.to_string() };
    if !args.json {
        let note = if emulated { NO_TIMES } else { "" };
        return Ok(output::text(&format!(
            "{}, {}\n{note}\nprompt of {} tokens\n{}\n{} decode steps behind it\n{}",
            model.name,
            model.summary(),
            args.n_prompt,
            text(&prompt),
            args.n_gen,
            text(&decode)
        ))?);
    }
    let (on, n_prompt, n_gen) = (model.summary(), args.n_prompt, args.n_gen);
    if emulated {
        let (prompt, decode) = (counted(&prompt), counted(&decode));
        return output::json(&Output { model: &model.name, on, n_prompt, n_gen, prompt, decode });
    }
    let (prompt, decode) = (timed(&prompt.0), timed(&decode.0));
    output::json(&Output { model: &model.name, on, n_prompt, n_gen, prompt, decode })
}

/// Runs `work` and returns what its launches took and did.
fn watched(
    session: &mut CudaSession,
    emulator: Option<&Emulator>,
    work: impl FnOnce(&mut CudaSession) -> Result<()>,
) -> Result<Seen> {
    let launches = || emulator.map(Emulator::take_launches).unwrap_or_default();
    drop(launches());
    work(session)?;
    Ok((session.profile()?, launches()))
}

fn timed(report: &Report) -> Vec<Timed> {
    let all = report.total_ms();
    let row = |row: &Row| Timed {
        kernel: row.kernel.clone(),
        shape: row.shape.clone(),
        calls: row.calls,
        total_ms: row.total_ms,
        mean_us: 1e3 * row.mean_ms(),
        percent: 100.0 * row.total_ms / all,
        gigabytes_per_second: row.gigabytes(),
        gflops: (row.work.operations > 0).then(|| 1e3 * row.tera_operations()),
    };
    report.rows.iter().map(row).collect()
}

/// Launches summed by kernel, those with the most instructions first.
fn counted((report, launches): &Seen) -> Vec<Counted> {
    let mut kernels = BTreeMap::<&str, Counted>::new();
    for launch in launches {
        let row = kernels.entry(&launch.kernel).or_insert_with(|| Counted {
            kernel: launch.kernel.clone(),
            calls: 0,
            warp_instructions: 0,
            mma: 0,
            bytes: 0,
            least_bytes: report
                .rows
                .iter()
                .filter(|row| row.kernel == launch.kernel)
                .map(|r| r.work.bytes)
                .sum(),
            bank_conflicts: 0,
        });
        row.calls += 1;
        row.warp_instructions += launch.stats.warp_instructions;
        row.mma += launch.stats.mma;
        row.bytes += launch.stats.global_loaded + launch.stats.global_stored;
        row.bank_conflicts += launch.stats.bank_conflicts;
    }
    let mut rows: Vec<_> = kernels.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.warp_instructions));
    rows
}

fn counts(rows: &[Counted]) -> String {
    let width = rows.iter().map(|row| row.kernel.len()).max().unwrap_or(0).max("kernel".len());
    let mut text = format!(
        "{:width$}  {:>7}  {:>17}  {:>10}  {:>10}  {:>8}  {:>14}\n",
        "kernel", "calls", "warp instructions", "mma", "KB moved", "of least", "bank conflicts"
    );
    for row in rows {
        text += &format!(
            "{:width$}  {:>7}  {:>17}  {:>10}  {:>10.1}  {:>8.2}  {:>14}\n",
            row.kernel,
            row.calls,
            row.warp_instructions,
            row.mma,
            row.bytes as f64 / 1e3,
            row.bytes as f64 / row.least_bytes as f64,
            row.bank_conflicts
        );
    }
    text
}
