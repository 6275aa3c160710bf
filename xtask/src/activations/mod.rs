//! `cargo xtask activations`: what rounding activations costs, in predictions and in speed, as tables.
//!
//! ```text
//! file -> each kind: kl, run on recorded questions, bench -> figures
//! figures -> docs/activations.json, tables in docs/activations.md
//! ```

mod figures;
mod measure;
mod programs;
mod table;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::builder::PossibleValuesParser;

use crate::{fetch_model, markers, shell};
use figures::Figures;
use measure::{Extent, Task};
use programs::Programs;

const JSON: &str = "docs/activations.json";
const DOCUMENT: &str = "docs/activations.md";
const QUESTIONS: &str = "goldens/questions.json";
const TINY: &str = "cli/model/halfbyte-tiny.gguf";
const TINY_TEXT: &str = "cli/model/validation.txt";

/// What is measured, in the order of the tables: key, name, whether it is of SmolLM2, and what is made of the file that is
/// there.
const SUBJECTS: [(&str, &str, bool, Option<&str>); 7] = [
    ("smollm2-q4_0", "SmolLM2-135M-Instruct in Q4_0", true, Some("q4_0")),
    ("smollm2-q4_1", "SmolLM2-135M-Instruct in Q4_1", true, None),
    ("smollm2-q8_0", "SmolLM2-135M-Instruct in Q8_0", true, Some("q8_0")),
    ("tiny-f16", "halfbyte-tiny in F16", false, None),
    ("tiny-q4_0", "halfbyte-tiny in Q4_0", false, Some("q4_0")),
    ("tiny-q4_1", "halfbyte-tiny in Q4_1", false, Some("q4_1")),
    ("tiny-q8_0", "halfbyte-tiny in Q8_0", false, Some("q8_0")),
];
/// The file as it is that the questions' replies were recorded of.
const ASKED: &str = "smollm2-q4_1";

/// Options of `cargo xtask activations`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files to measure [default: all]; the figures of others stay as they are
    #[arg(long, value_name = "FILE", value_delimiter = ',', value_parser = PossibleValuesParser::new(
        SUBJECTS.iter().map(|s| s.0)
    ))]
    subject: Vec<String>,
    /// The text for SmolLM2; for the embedded model it is its own
    #[arg(long, value_name = "FILE", default_value = "goldens/eval_text.txt")]
    text: PathBuf,
    /// Windows of 512 tokens to evaluate, at most
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    windows: u32,
    /// Times to measure each rate, all kinds in turns
    #[arg(long, value_name = "R", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Instruction sets to measure rates with [default: the fastest, and avx2 if that is another]
    #[arg(long, value_name = "ISA", value_delimiter = ',')]
    isa: Vec<String>,
    /// Threads of everything but rates, which are measured with one and two [default: all CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
    /// A Python with llama-cpp-python, for llama.cpp beside it
    #[arg(long, value_name = "PYTHON")]
    llama: Option<PathBuf>,
    /// A halfbyte that is built already [default: a release build of the workspace's]
    #[arg(long, value_name = "PROGRAM")]
    halfbyte: Option<PathBuf>,
    /// Print the tables, write no document
    #[arg(long)]
    dry_run: bool,
    /// Make the tables of these figures, measure nothing
    #[arg(long, value_name = "JSON", conflicts_with_all = ["subject", "isa", "threads", "llama", "halfbyte"])]
    from: Option<PathBuf>,
}

/// Measures, and writes what comes of it.
///
/// # Errors
/// If a model or text is missing, a program fails, or the document has no place for its tables.
pub(crate) fn run(args: &Args) -> Result<()> {
    let json = shell::root().join(JSON);
    let figures = match &args.from {
        Some(path) => read(path)?,
        None => {
            // The figures of files that are not measured now.
            let before = if json.exists() { read(&json)? } else { Figures::default() };
            measured(args, before)?
        }
    };
    let table = table::full(&figures);
    if args.dry_run {
        println!("\n{table}");
        return Ok(());
    }
    let document = std::fs::read_to_string(shell::root().join(DOCUMENT));
    let document = document.with_context(|| format!("{DOCUMENT}: can't be read"))?;
    // Found out before anything is written: that the document has its place.
    let document = markers::replace(&document, "activations", &table).context(DOCUMENT)?;
    let mut written = serde_json::to_string_pretty(&figures)?;
    written.push('\n');
    for (path, text) in [(JSON, written), (DOCUMENT, document)] {
        std::fs::write(shell::root().join(path), text)
            .with_context(|| format!("{path}: can't be written"))?;
        println!("{path} written");
    }
    Ok(())
}

/// `before`, with the figures of the files that the options ask for in place of the old ones.
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
        println!("without --llama PYTHON, llama.cpp is left out");
    }
    let threads = match args.threads {
        Some(n) => n as usize,
        None => std::thread::available_parallelism().context("the number of CPUs is unknown")?.get(),
    };
    let programs = Programs::new(args.halfbyte.clone(), args.llama.clone(), threads)?;
    let extent = Extent {
        windows: args.windows as usize,
        rounds: args.rounds as usize,
        isas: if args.isa.is_empty() { programs.default_isas()? } else { args.isa.clone() },
    };
    let work = shell::target()?.join("activations");
    std::fs::create_dir_all(&work).with_context(|| format!("{}: can't be made", work.display()))?;
    let mut figures = Figures::default();
    for task in &tasks {
        if wanted(task.key) {
            let subject = measure::measure(task, &programs, &extent, &work);
            figures.subjects.push(subject.with_context(|| task.name)?);
        } else {
            figures.subjects.extend(before.subjects.iter().find(|s| s.key == task.key).cloned());
        }
    }
    Ok(figures)
}

/// What can be measured. Paths are those of the workspace.
fn tasks(text: &Path) -> Vec<Task> {
    let root = shell::root();
    let task =
        |&(key, name, smollm2, made): &(&'static str, &'static str, bool, Option<&'static str>)| Task {
            key,
            name,
            model: if smollm2 { fetch_model::path() } else { root.join(TINY) },
            made,
            text: root.join(if smollm2 { text } else { Path::new(TINY_TEXT) }),
            questions: (key == ASKED).then(|| root.join(QUESTIONS)),
        };
    SUBJECTS.iter().map(task).collect()
}

fn read(path: &Path) -> Result<Figures> {
    let text = std::fs::read(path).with_context(|| format!("{}: can't be read", path.display()))?;
    serde_json::from_slice(&text)
        .with_context(|| format!("{}: expected figures of `cargo xtask activations`", path.display()))
}
