//! `cargo xtask compare`: halfbyte beside llama.cpp and candle, and the tables and the plot that say how it went.
//!
//! ```text
//! build -> test model -> benches/compare/compare.py -> target/compare/figures.json
//! figures -> docs/performance.json, behind those of earlier runs -> docs/performance.svg
//! figures -> the tables between the markers of docs/performance.md and README.md
//! ```

mod history;
mod plot;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{fetch_model, markers, shell};

const SCRIPT: &str = "benches/compare/compare.py";
const CANDLE: &str = "benches/compare/candle/Cargo.toml";
/// Where tables go, which, and what stands above them.
const DOCUMENTS: [(&str, &str, &str); 2] = [
    ("docs/performance.md", "full", ""),
    ("README.md", "short", "![Tokens a second](docs/performance.svg)\n\n"),
];
const MARKER: &str = "compare";
const JSON: &str = "docs/performance.json";
const SVG: &str = "docs/performance.svg";

/// Options of `cargo xtask compare`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A Python with llama-cpp-python, made as compare.py says [default: python3]
    #[arg(long, value_name = "PYTHON")]
    peer_python: Option<PathBuf>,
    /// Build candle, too: some minutes
    #[arg(long)]
    candle: bool,
    /// One round of one small model, to see that everything works; writes no document
    #[arg(long)]
    quick: bool,
    /// Print the tables, write no document
    #[arg(long)]
    dry_run: bool,
    /// Make tables and plot of the figures there are, measure nothing: those that were measured here, else the newest of
    /// docs/performance.json
    #[arg(long, conflicts_with = "quick")]
    tables: bool,
    /// Further arguments of compare.py, such as `--models smollm2-q4_0 --work rates`
    #[arg(last = true)]
    further: Vec<String>,
}

/// Measures, and writes what comes of it.
///
/// # Errors
/// If a build, the model or a run fails, or a document has no place for its table.
pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = shell::target()?.join("compare");
    let figures = folder.join(if args.quick { "quick.json" } else { "figures.json" });
    let recorded = shell::root().join(JSON);
    let recorded = recorded.is_file().then(|| std::fs::read_to_string(&recorded)).transpose();
    let mut runs = history::read(recorded.context(JSON)?.as_deref()).context(JSON)?;
    if !args.tables {
        measure(args, &folder, &figures)?;
    } else if let Some(newest) = runs.last().filter(|_| !figures.is_file()) {
        std::fs::create_dir_all(&folder)?;
        std::fs::write(&figures, serde_json::to_vec(newest)?)?;
    }
    if args.quick || args.dry_run {
        for (_, extent, _) in DOCUMENTS {
            println!("\n{}", print(&figures, extent)?);
        }
        return Ok(());
    }
    // Found out before anything is written: that every document has its place.
    let mut files = Vec::new();
    for (path, extent, above) in DOCUMENTS {
        let table = print(&figures, extent)?;
        let document = std::fs::read_to_string(shell::root().join(path));
        let document = document.with_context(|| format!("{path}: can't be read"))?;
        files.push((path, markers::replace(&document, MARKER, &format!("{above}{table}")).context(path)?));
    }
    let run = std::fs::read(&figures).with_context(|| figures.display().to_string())?;
    history::add(&mut runs, serde_json::from_slice(&run).with_context(|| figures.display().to_string())?);
    files.push((SVG, plot::svg(&bars(&runs, &folder)?)?));
    files.push((JSON, serde_json::to_string_pretty(&runs)? + "\n"));
    for (path, text) in files {
        std::fs::write(shell::root().join(path), text)
            .with_context(|| format!("{path}: can't be written"))?;
        println!("{path} written");
    }
    Ok(())
}

fn measure(args: &Args, folder: &Path, figures: &Path) -> Result<()> {
    shell::cargo("build --release --locked --package halfbyte-cli")?;
    shell::cargo("build --release --locked --package halfbyte-benches --examples")?;
    let candle = folder.join("candle");
    if args.candle {
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        build
            .args(["build", "--release", "--locked", "--manifest-path", CANDLE, "--target-dir"])
            .arg(&candle);
        // What it has no run-time choice for, it has by these flags alone.
        shell::run(build.env("RUSTFLAGS", "-Ctarget-cpu=native"))?;
    }
    if !fetch_model::path().is_file() {
        fetch_model::run()?;
    }
    let mut script = python();
    script.arg(SCRIPT).arg("--json").arg(figures).arg("--folder").arg(folder);
    script.arg("--halfbyte").arg(shell::release("halfbyte")?);
    script.arg("--candle").arg(candle.join("release").join("candle-compare"));
    script.arg("--examples").arg(shell::target()?.join("release").join("examples"));
    if let Some(python) = &args.peer_python {
        script.arg("--peer-python").arg(python);
    }
    if args.quick {
        script.arg("--quick");
    }
    shell::run(script.args(&args.further))
}

/// What the plot shows of the runs: compare.py knows which of its figures, and what they are called.
fn bars(runs: &[Value], folder: &Path) -> Result<Vec<plot::Run>> {
    let path = folder.join("run.json");
    let shown = runs.iter().map(|run| {
        std::fs::write(&path, serde_json::to_vec(run)?).with_context(|| path.display().to_string())?;
        serde_json::from_str(&print(&path, "bars")?).context("compare.py --print bars")
    });
    shown.collect()
}

/// The tables of `figures`, or the bars of the plot, as compare.py prints them.
fn print(figures: &Path, what: &str) -> Result<String> {
    if !figures.is_file() {
        bail!("{} is not there: `cargo xtask compare` measures first", figures.display());
    }
    let mut script = python();
    script.arg(SCRIPT).arg("--json").arg(figures).args(["--print", what]);
    let output = script.current_dir(shell::root()).output().context("python3 can't be started")?;
    if !output.status.success() {
        bail!("{SCRIPT}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The system's Python; what it runs needs no package.
fn python() -> Command {
    Command::new("python3")
}
