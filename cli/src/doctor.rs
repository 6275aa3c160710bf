//! `halfbyte doctor`: what this machine offers, what would run on it, and what is slow and why.

use std::fmt::Write;

use anyhow::{Context as _, Result};
use halfbyte::model::{Description, SessionOptions};
use halfbyte::weight_types::WeightType;
use halfbyte_cpu_kernels::Isa;
use halfbyte_threadpool::CpuLimits;
use serde::Serialize;

use super::args::{DoctorArgs, GlobalArgs};
use super::loading::{self, Chosen, LoadedModel};
use super::memory::{self, Memory};
use super::output;
use super::words::HumanBytes;

#[derive(Serialize)]
struct Report {
    version: &'static str,
    os: &'static str,
    arch: &'static str,
    debug_build: bool,
    isa: IsaReport,
    threads: ThreadsReport,
    memory: MemoryReport,
    /// `null` if it can't be loaded.
    model: Option<ModelReport>,
    /// What is slower than it could be, and why: one sentence each.
    slow: Vec<String>,
}

#[derive(Serialize)]
struct IsaReport {
    known: Vec<&'static str>,
    available: Vec<&'static str>,
    selected: &'static str,
    reason: String,
}

#[derive(Serialize)]
struct ThreadsReport {
    count: usize,
    reason: String,
    usable_cpus: usize,
    online_cpus: usize,
    affinity: Option<usize>,
    quota: Option<f64>,
}

/// Bytes; `null` where the system does not say.
#[derive(Serialize)]
struct MemoryReport {
    total: Option<u64>,
    available: Option<u64>,
}

#[derive(Serialize)]
struct ModelReport {
    name: String,
    architecture: &'static str,
    layers: usize,
    file_bytes: u64,
    activations: &'static str,
    kv_cache: &'static str,
    context: usize,
    trained_context: usize,
    /// The KV cache when the context is full.
    kv_cache_bytes: u64,
    /// The state of recurrent layers, whatever the number of tokens.
    state_bytes: u64,
    weight_bytes_per_token: usize,
    matrices: usize,
    int8_matrices: usize,
    chat_template: bool,
    /// Why the tokenizer can't be used; `null` if it can.
    tokenizer_error: Option<String>,
    types: Vec<TypeReport>,
}

/// The matrices of one tensor type.
#[derive(Serialize)]
struct TypeReport {
    #[serde(rename = "type")]
    ty: &'static str,
    tensors: usize,
    bytes: u64,
    /// Whether they are multiplied by int8 activations when asked for.
    int8: bool,
}

/// Reports on the machine even if the model can't be loaded; that is an error afterwards.
pub(crate) fn run(global: &GlobalArgs, args: &DoctorArgs) -> Result<()> {
    let (isa, threads) = (loading::isa(global)?, loading::threads(global)?);
    let (limits, memory) = (CpuLimits::detect(), memory::detect());
    let (model, error) = match model_report(global) {
        Ok(model) => (Some(model), None),
        Err(error) => (None, Some(error)),
    };
    let names = |isas: Vec<Isa>| isas.into_iter().map(Isa::name).collect();
    let mut slow = slow_machine(&isa, &threads, &limits);
    if let Some(model) = &model {
        slow_model(model, memory, &mut slow);
    }
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        os: std::env::consts::OS,
        arch: std::env::consts::ARCH,
        debug_build: cfg!(debug_assertions),
        isa: IsaReport {
            known: Isa::known(),
            available: names(Isa::available()),
            selected: isa.value.name(),
            reason: isa.reason,
        },
        threads: ThreadsReport {
            count: threads.value,
            reason: threads.reason,
            usable_cpus: limits.usable(),
            online_cpus: limits.online,
            affinity: limits.affinity,
            quota: limits.quota,
        },
        memory: MemoryReport { total: memory.total, available: memory.available },
        model,
        slow,
    };
    if args.json {
        output::json(&report)?;
    } else {
        output::text(&describe(&report)?)?;
    }
    error.map_or(Ok(()), |error| Err(error.context("the model can't be run")))
}

fn model_report(global: &GlobalArgs) -> Result<ModelReport> {
    let gguf = loading::load(global)?;
    let model = LoadedModel::new(&gguf, global)?;
    let options = model.engine.options().cpu().context("expected a model on the CPU")?;
    let transformer = model.engine.transformer();
    let config = transformer.description();
    let (int8_matrices, matrices) = transformer.int8_matrices();
    let tokenizer = model.tokenizer();
    // A convolution's taps have two dimensions, and are no matrix.
    let is_matrix = |name: &str| config.matrices.iter().any(|matrix| matrix.tensor == name);
    let types = WeightType::all().iter().filter_map(|entry| {
        let ty = entry.tensor_type();
        let of_type = || gguf.tensors().iter().filter(|t| t.ty == ty && is_matrix(&t.name));
        let tensors = of_type().count();
        let bytes = of_type().map(|t| t.n_bytes as u64).sum();
        (tensors > 0).then_some(TypeReport { ty: ty.name(), tensors, bytes, int8: entry.int8() })
    });
    Ok(ModelReport {
        name: model.name.clone(),
        architecture: config.architecture,
        layers: config.layers.len(),
        file_bytes: gguf.n_bytes() as u64,
        activations: options.activations.name(),
        kv_cache: options.kv_type.name(),
        context: options.context,
        trained_context: config.context,
        kv_cache_bytes: kv_bytes(config, &options),
        state_bytes: config.state_bytes() as u64,
        weight_bytes_per_token: transformer.bytes_per_token(),
        matrices,
        int8_matrices,
        chat_template: tokenizer.as_ref().is_ok_and(|t| t.chat_template().is_some()),
        tokenizer_error: tokenizer.err().map(|error| format!("{error:#}")),
        types: types.collect(),
    })
}

/// Bytes that the KV caches of `options` take when full.
fn kv_bytes(config: &Description, options: &SessionOptions) -> u64 {
    let position = config.kv_heads().map(|(heads, dim)| 2 * heads * options.kv_type.row_bytes(dim));
    (options.context * position.sum::<usize>()) as u64
}

fn slow_machine(isa: &Chosen<Isa>, threads: &Chosen<usize>, limits: &CpuLimits) -> Vec<String> {
    let mut slow = Vec::new();
    if cfg!(debug_assertions) {
        slow.push("this is a debug build: use `cargo run --release`".to_owned());
    }
    let fastest = Isa::fastest();
    if isa.value != fastest {
        slow.push(format!("the ISA path is {} ({}), {fastest} would be faster", isa.value, isa.reason));
    } else if fastest == Isa::scalar() {
        let others = Isa::known().into_iter().filter(|&name| name != fastest.name()).collect::<Vec<_>>();
        slow.push(format!(
            "only the scalar path runs on this CPU; faster ones in this build: {}",
            others.join(", ")
        ));
    }
    let usable = limits.usable();
    if threads.value > usable {
        slow.push(format!("{} threads ({}) share {usable} usable CPUs", threads.value, threads.reason));
    }
    if usable < limits.online {
        slow.push(format!("this process may use {usable} of the machine's CPUs ({limits})"));
    }
    slow
}

fn slow_model(model: &ModelReport, memory: Memory, slow: &mut Vec<String>) {
    if model.activations == "f32" && model.int8_matrices > 0 {
        slow.push("--activations f32 leaves the int8 kernels unused".to_owned());
    }
    for report in model.types.iter().filter(|report| !report.int8) {
        slow.push(format!(
            "{} tensors ({}) are {}, which has no int8 kernel: they are multiplied in f32",
            report.tensors,
            HumanBytes(report.bytes),
            report.ty
        ));
    }
    let needed = model.file_bytes + model.kv_cache_bytes + model.state_bytes;
    if let Some(available) = memory.available.filter(|&available| available < needed) {
        slow.push(format!(
            "the model and a full KV cache take {}, of which {} are available: weights will be read from disk again \
             and again; --ctx makes the KV cache smaller",
            HumanBytes(needed),
            HumanBytes(available)
        ));
    }
}

fn describe(r: &Report) -> Result<String> {
    let mut text = String::new();
    let size = |n: Option<u64>| n.map_or_else(|| "unknown".to_owned(), |n| HumanBytes(n).to_string());
    let build = if r.debug_build { ", debug build" } else { "" };
    writeln!(text, "halfbyte   {} on {} {}{build}", r.version, r.os, r.arch)?;
    writeln!(text, "isa        {} ({})", r.isa.selected, r.isa.reason)?;
    writeln!(
        text,
        "           can run: {}; in this build: {}",
        r.isa.available.join(", "),
        r.isa.known.join(", ")
    )?;
    writeln!(text, "threads    {} ({})", r.threads.count, r.threads.reason)?;
    writeln!(text, "memory     {} available of {}", size(r.memory.available), size(r.memory.total))?;
    match &r.model {
        Some(model) => describe_model(model, &mut text)?,
        None => writeln!(text, "model      can't be run")?,
    }
    if r.slow.is_empty() {
        writeln!(text, "slow       nothing found")?;
    }
    for (i, reason) in r.slow.iter().enumerate() {
        writeln!(text, "{:10} {reason}", if i == 0 { "slow" } else { "" })?;
    }
    Ok(text)
}

/// What the kind of activations in use rounds, and the command that measures what that costs.
fn rounding(m: &ModelReport) -> String {
    let codes = match m.activations {
        "int8" => "8 bits",
        "auto" => "8 bits, outliers to 16",
        "int16" => "16 bits",
        _ => return format!("{} activations: no input of a matrix is rounded", m.activations),
    };
    if m.int8_matrices == 0 {
        return format!(
            "{} activations, but no matrix has an int8 kernel: no input is rounded",
            m.activations
        );
    }
    format!(
        "{} activations: the inputs of {} of {} matrices are rounded to {codes}; `halfbyte kl --model M --text FILE` \
         measures what that costs",
        m.activations, m.int8_matrices, m.matrices
    )
}

fn describe_model(m: &ModelReport, text: &mut String) -> std::fmt::Result {
    writeln!(
        text,
        "model      {}: {}, {} layers, {}",
        m.name,
        m.architecture,
        m.layers,
        HumanBytes(m.file_bytes)
    )?;
    writeln!(text, "           {} of weights a token", HumanBytes(m.weight_bytes_per_token as u64))?;
    writeln!(text, "rounding   {}", rounding(m))?;
    let (kv, bytes) = (m.kv_cache, HumanBytes(m.kv_cache_bytes));
    writeln!(
        text,
        "context    {} of {} tokens; {kv} KV cache, {bytes} when full",
        m.context, m.trained_context
    )?;
    if m.state_bytes > 0 {
        writeln!(
            text,
            "state      {} of recurrent layers for any number of tokens, and copies of it that edited chats go back to",
            HumanBytes(m.state_bytes)
        )?;
    }
    match (&m.tokenizer_error, m.chat_template) {
        (None, true) => writeln!(text, "tokenizer  usable, with a chat template"),
        (None, false) => writeln!(text, "tokenizer  usable; no chat template, so no `halfbyte chat`"),
        (Some(error), _) => writeln!(text, "tokenizer  {error}"),
    }
}
