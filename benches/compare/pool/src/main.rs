//! What a caller of a parallel loop feels: halfbyte-threadpool beside its peers, in one run on one machine.

mod contender;
mod measure;
mod others;
mod plot;
mod publish;
mod report;
mod scenario;

use anyhow::{Context, Result, bail};
use measure::{Cell, Work};
use scenario::Scenario;
use std::time::Duration;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["child", name, threads, per_microsecond, cells @ ..] => {
            let work = Work { per_microsecond: per_microsecond.parse()? };
            let cells: Vec<_> = cells.iter().map(|cell| parse_cell(cell)).collect::<Result<_>>()?;
            measure::child(name, threads.parse()?, work, &cells)
        }
        ["spin", cpu] => scenario::spin(cpu.parse()?),
        names => compare(names),
    }
}

/// Measures in the scenarios of these names and prints the tables; in all of them without a name, and then writes the
/// results into the thread pool's folder.
fn compare(names: &[&str]) -> Result<()> {
    if let Some(name) = names.iter().find(|name| Scenario::ALL.iter().all(|s| s.name() != **name)) {
        bail!("no scenario is called {name:?}: quiet, crowded, busy, two");
    }
    let cpus = std::thread::available_parallelism()?.get();
    let mut runs = Vec::new();
    let mut loudest: f64 = 0.0;
    for scenario in Scenario::ALL {
        if names.is_empty() || names.contains(&scenario.name()) {
            let (results, noise) = scenario.measure(cpus)?;
            loudest = loudest.max(noise);
            println!("{}", report::tables(scenario, &results, cpus));
            runs.push((scenario, results));
        }
    }
    if names.is_empty() { publish::write(&runs, cpus, loudest) } else { Ok(()) }
}

/// Gap, work and budget in microseconds, microseconds and milliseconds, with commas between.
fn parse_cell(text: &str) -> Result<(Cell, Duration)> {
    let mut parts = text.split(',').map(str::parse::<u64>);
    let mut next = || parts.next().context("a cell is gap,work,budget")?.context("not a number");
    Ok((Cell { gap: next()?, work: next()? }, Duration::from_millis(next()?)))
}
