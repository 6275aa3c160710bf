//! `cargo xtask quantizers`: what the quantizers do to models, as a table and a plot.
//!
//! ```text
//! model -> F32 -> imatrix of the calibration text -> each method: quantize, compare, kl -> figures
//! figures -> docs/quantizers.json, docs/quantizers.svg, tables in docs/quantizers.md and q4/README.md
//! ```

mod figures;
mod measure;
mod method;
mod plot;
mod programs;
mod table;
mod text;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::builder::PossibleValuesParser;

use crate::{fetch_model, markers, shell};
use figures::Figures;
use measure::{Extent, Task};
use programs::Programs;

const JSON: &str = "docs/quantizers.json";
const SVG: &str = "docs/quantizers.svg";
const DOCUMENT: &str = "docs/quantizers.md";
const README: &str = "q4/README.md";
/// The model of the README's table.
const MAIN: &str = "smollm2";
/// All models, in the order of the tables.
const SUBJECTS: [&str; 2] = [MAIN, "tiny"];

/// Options of `cargo xtask quantizers`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Models to measure [default: both]; the figures of others stay as they are
    #[arg(long, value_name = "MODEL", value_parser = PossibleValuesParser::new(SUBJECTS))]
    subject: Vec<String>,
    /// Methods to measure beside max7 [default: all]
    #[arg(long, value_name = "METHOD", value_delimiter = ',', value_parser = PossibleValuesParser::new(
        method::METHODS.iter().map(|m| m.key)
    ))]
    only: Vec<String>,
    /// A Python with llama-cpp-python and gguf, for llama.cpp's quantizer
    #[arg(long, value_name = "PYTHON")]
    llama: Option<PathBuf>,
    /// The text for SmolLM2; for the embedded model it is its own
    #[arg(long, value_name = "FILE", default_value = "goldens/eval_text.txt")]
    text: PathBuf,
    /// Windows of 512 tokens to evaluate, at most [default: 48 for SmolLM2, all for the embedded model]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    windows: Option<u32>,
    /// Threads of all programs [default: all CPUs]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Print the tables, write nothing but what target keeps
    #[arg(long)]
    dry_run: bool,
    /// Make tables and plot of these figures, measure nothing
    #[arg(long, value_name = "JSON", conflicts_with_all = ["subject", "only", "llama", "windows", "threads"])]
    from: Option<PathBuf>,
}

/// Measures, and writes what comes of it.
///
/// # Errors
/// If a model or text is missing, a program fails, or a document has no place for its table.
pub(crate) fn run(args: &Args) -> Result<()> {
    let json = shell::root().join(JSON);
    let figures = match &args.from {
        Some(path) => read(path)?,
        None => {
            // The figures of models that are not measured now.
            let before = if json.exists() { read(&json)? } else { Figures::default() };
            measured(args, before)?
        }
    };
    if args.dry_run {
        println!("\n{}", table::full(&figures));
        return Ok(());
    }
    let mut written = serde_json::to_string_pretty(&figures)?;
    written.push('\n');
    // Found out before anything is written: that every document has its place.
    let mut files = vec![(JSON, written), (SVG, plot::svg(&figures)?)];
    files.push((DOCUMENT, replaced(DOCUMENT, &table::full(&figures))?));
    match figures.subjects.iter().find(|s| s.key == MAIN) {
        Some(subject) => files.push((README, replaced(README, &table::short(subject))?)),
        None => println!("no figures of {MAIN}: {README} stays as it is"),
    }
    for (path, text) in files {
        std::fs::write(shell::root().join(path), text)
            .with_context(|| format!("{path}: can't be written"))?;
        println!("{path} written");
    }
    Ok(())
}

/// `before`, with the figures of the models that the options ask for in place of the old ones.
fn measured(args: &Args, before: Figures) -> Result<Figures> {
    let wanted = |key: &str| args.subject.is_empty() || args.subject.iter().any(|s| s == key);
    let tasks = tasks(&args.text);
    for task in tasks.iter().filter(|task| wanted(task.key)) {
        if !task.model.is_file() {
            bail!("{} is missing: `cargo xtask fetch-model` fetches it", task.model.display());
        }
        if !task.text.is_file() {
            bail!("{} is missing: expected a text (--text FILE)", task.text.display());
        }
    }
    if args.llama.is_none() {
        println!("without --llama PYTHON, llama.cpp's quantizer is left out");
    }
    let threads = match args.threads {
        Some(0) => bail!("--threads 0: expected at least one"),
        Some(n) => n,
        None => std::thread::available_parallelism().context("the number of CPUs is unknown")?.get(),
    };
    let programs = Programs::new(args.llama.clone(), threads)?;
    let work = shell::target()?.join("quantizers");
    std::fs::create_dir_all(&work).with_context(|| format!("{}: can't be made", work.display()))?;
    let mut figures = Figures::default();
    for task in &tasks {
        if wanted(task.key) {
            let windows = args.windows.unwrap_or(task.windows);
            let extent = Extent { windows, only: &args.only };
            figures.subjects.push(measure::measure(task, &programs, &extent, &work)?);
        } else {
            figures.subjects.extend(before.subjects.iter().find(|s| s.key == task.key).cloned());
        }
    }
    Ok(figures)
}

/// What can be measured. Paths are those of the workspace.
fn tasks(text: &Path) -> [Task; 2] {
    let root = shell::root();
    [
        Task {
            key: SUBJECTS[0],
            name: "SmolLM2-135M-Instruct",
            source: "the Q4_1 file of `cargo xtask fetch-model`, dequantized to F32",
            model: fetch_model::path(),
            text: root.join(text),
            windows: 48,
            on_grid: true,
        },
        Task {
            key: SUBJECTS[1],
            name: "halfbyte-tiny",
            source: "the embedded model's F16 file, as F32",
            model: root.join("cli/model/halfbyte-tiny.gguf"),
            text: root.join("cli/model/validation.txt"),
            windows: u32::MAX,
            on_grid: false,
        },
    ]
}

fn read(path: &Path) -> Result<Figures> {
    let text = std::fs::read(path).with_context(|| format!("{}: can't be read", path.display()))?;
    serde_json::from_slice(&text)
        .with_context(|| format!("{}: expected figures of `cargo xtask quantizers`", path.display()))
}

/// The document at `path`, with `block` in its place.
fn replaced(path: &'static str, block: &str) -> Result<String> {
    let document = std::fs::read_to_string(shell::root().join(path));
    markers::replace(&document.with_context(|| format!("{path}: can't be read"))?, "quantizers", block)
        .context(path)
}
