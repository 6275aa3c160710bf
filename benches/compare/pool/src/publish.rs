//! Writes a whole run into the thread pool's folder: tables, picture, and the README's summary.

use crate::measure::Cell;
use crate::plot;
use crate::report::{self, Results, Summary};
use crate::scenario::Scenario;
use anyhow::{Context, Result};
use std::fmt::Write;
use std::path::Path;

const BEGIN: &str = "<!-- written by benches/compare/pool: begin -->\n";
const END: &str = "<!-- written by benches/compare/pool: end -->\n";

/// The columns of the summary: which number of which cell in which scenario.
const COLUMNS: [(&str, Scenario, Cell, Number); 9] = [
    ("back to back", Scenario::Quiet, Cell { gap: 0, work: 3 }, Number::Overhead),
    ("after 20 us", Scenario::Quiet, Cell { gap: 20, work: 3 }, Number::Overhead),
    ("after 200 us", Scenario::Quiet, Cell { gap: 200, work: 3 }, Number::Overhead),
    ("after 5 ms", Scenario::Quiet, Cell { gap: 5000, work: 3 }, Number::Overhead),
    ("CPU burnt, back to back", Scenario::Quiet, Cell { gap: 0, work: 3 }, Number::Burnt),
    ("CPU burnt, 5 ms", Scenario::Quiet, Cell { gap: 5000, work: 3 }, Number::Burnt),
    ("4x threads", Scenario::Crowded, Cell { gap: 0, work: 10 }, Number::Mean),
    ("busy neighbour", Scenario::Busy, Cell { gap: 0, work: 10 }, Number::Mean),
    ("two processes", Scenario::Two, Cell { gap: 0, work: 10 }, Number::Mean),
];

#[derive(Clone, Copy, Debug)]
enum Number {
    Overhead,
    Burnt,
    Mean,
}

/// Writes `threadpool/docs/comparison.md`, `threadpool/docs/overhead.svg` and the marked part of
/// `threadpool/README.md`.
pub(crate) fn write(runs: &[(Scenario, Results)], cpus: usize, noise: f64) -> Result<()> {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../threadpool");
    let docs = crate_root.join("docs");
    std::fs::create_dir_all(&docs)?;

    let mut text = format!("# The pool beside its peers\n\nMade by {COMMAND}.\n\n{}", machine(cpus, noise));
    for (scenario, results) in runs {
        let _ = write!(text, "\n## {}\n{}", scenario.title(), report::tables(*scenario, results, cpus));
    }
    std::fs::write(docs.join("comparison.md"), text)?;

    if let Some((_, quiet)) = runs.iter().find(|(scenario, _)| *scenario == Scenario::Quiet) {
        plot::draw(&docs.join("overhead.svg"), quiet, cpus)?;
    }

    let path = crate_root.join("README.md");
    let readme = std::fs::read_to_string(&path)?;
    let (before, rest) = readme.split_once(BEGIN).context("README.md has lost its mark")?;
    let (_, after) = rest.split_once(END).context("README.md has lost its second mark")?;
    let summary = format!("{}\n{}", machine(cpus, noise), summary(runs, cpus));
    std::fs::write(path, format!("{before}{BEGIN}{summary}{END}{after}"))?;
    Ok(())
}

const COMMAND: &str = "`cargo run --release --manifest-path benches/compare/pool/Cargo.toml`";

/// One line on where it ran, and beside what.
fn machine(cpus: usize, noise: f64) -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|p| p.1));
    let model = model.unwrap_or("model unknown");
    let noise = noise * 100.0;
    format!(
        "One run on {cpus} CPUs ({model}); other programs took at most {noise:.0}% of one while it measured.\n"
    )
}

fn summary(runs: &[(Scenario, Results)], cpus: usize) -> String {
    let mut text = String::from("| pool |");
    for (title, ..) in COLUMNS {
        let _ = write!(text, " {title} |");
    }
    let _ = write!(text, "\n|---|{}\n", "---|".repeat(COLUMNS.len()));
    let titles = runs.first().map(|(_, results)| results.iter().map(|(c, _)| c.title)).into_iter().flatten();
    for (row, title) in titles.enumerate() {
        let _ = write!(text, "| {title} |");
        for (_, scenario, cell, number) in COLUMNS {
            let samples = runs
                .iter()
                .find(|(s, _)| *s == scenario)
                .and_then(|(_, results)| report::cell(&results[row].1, cell));
            let shown = samples.map_or(String::new(), |samples| {
                let summary = Summary::of(samples, cpus);
                match number {
                    Number::Overhead => {
                        format!("{} ({})", report::show(summary.median), report::show(summary.p99))
                    }
                    Number::Burnt => report::show(summary.burnt),
                    Number::Mean => report::show(summary.mean),
                }
            });
            let _ = write!(text, " {shown} |");
        }
        text.push('\n');
    }
    text
}
