//! Numbers to text: the Markdown tables.

use crate::contender::Contender;
use crate::measure::{Cell, Samples};
use crate::scenario::Scenario;
use std::fmt::Write;

pub(crate) type Results = Vec<(Contender, Vec<Samples>)>;

/// The value below which a share `q` of the values lie.
pub(crate) fn quantile(values: &mut [f64], q: f64) -> f64 {
    let at = ((values.len() - 1) as f64 * q).round() as usize;
    *values.select_nth_unstable_by(at, f64::total_cmp).1
}

/// What a cell comes to, in nanoseconds.
pub(crate) struct Summary {
    /// Median time of a call less the work's.
    pub(crate) median: f64,
    /// The same at the 99th percentile.
    pub(crate) p99: f64,
    /// Mean time of a call, work included.
    pub(crate) mean: f64,
    /// CPU time a call beyond the work and the calling thread's gap.
    pub(crate) burnt: f64,
}

impl Summary {
    pub(crate) fn of(samples: &Samples, threads: usize) -> Self {
        let mut times = samples.times.clone();
        Self {
            median: quantile(&mut times, 0.5) - samples.alone,
            p99: quantile(&mut times, 0.99) - samples.alone,
            mean: times.iter().sum::<f64>() / times.len() as f64,
            burnt: samples.cpu - samples.alone * threads as f64,
        }
    }
}

pub(crate) fn cell(samples: &[Samples], cell: Cell) -> Option<&Samples> {
    samples.iter().find(|s| s.cell == cell)
}

/// A time with two digits that matter, in the unit that suits it.
pub(crate) fn show(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds.abs() {
        n if n < 1e3 => (nanoseconds, "ns"),
        n if n < 1e6 => (nanoseconds / 1e3, "us"),
        _ => (nanoseconds / 1e6, "ms"),
    };
    if unit != "ns" && value.abs() < 9.95 {
        format!("{value:.1} {unit}")
    } else {
        format!("{value:.0} {unit}")
    }
}

fn gap_title(gap: u64) -> String {
    match gap {
        0 => "back to back".to_owned(),
        5000 => "after 5 ms".to_owned(),
        _ => format!("after {gap} us"),
    }
}

/// A scenario's tables.
pub(crate) fn tables(scenario: Scenario, results: &Results, cpus: usize) -> String {
    match scenario {
        Scenario::Quiet => quiet(results, cpus),
        _ => disturbed(scenario, results),
    }
}

fn quiet(results: &Results, cpus: usize) -> String {
    let mut text = String::new();
    let cells = Scenario::Quiet.cells();
    let mut gaps: Vec<u64> = cells.iter().map(|c| c.gap).collect();
    gaps.dedup();
    for gap in gaps {
        let cells: Vec<Cell> = cells.iter().copied().filter(|c| c.gap == gap).collect();
        let _ = write!(text, "\n{}, {cpus} threads:\n\n| pool |", capitalised(&gap_title(gap)));
        for c in &cells {
            let _ = write!(text, " {} us of work |", c.work);
        }
        let _ = write!(text, " CPU burnt |\n|---|{}---|\n", "---|".repeat(cells.len()));
        for (contender, samples) in results {
            let _ = write!(text, "| {} |", contender.title);
            for &c in &cells {
                let summary = cell(samples, c).map(|s| Summary::of(s, cpus));
                let shown =
                    summary.map_or(String::new(), |s| format!("{} ({})", show(s.median), show(s.p99)));
                let _ = write!(text, " {shown} |");
            }
            let idle = Cell { gap, work: 0 };
            let burnt = cell(samples, idle).map_or(String::new(), |s| show(Summary::of(s, cpus).burnt));
            let _ = writeln!(text, " {burnt} |");
        }
    }
    text
}

fn disturbed(scenario: Scenario, results: &Results) -> String {
    let mut text = String::from("\n| pool |");
    let cells = scenario.cells();
    for c in &cells {
        let _ = write!(text, " {} us of work, {} |", c.work, gap_title(c.gap));
    }
    let _ = write!(text, "\n|---|{}\n", "---|".repeat(cells.len()));
    for (contender, samples) in results {
        let _ = write!(text, "| {} |", contender.title);
        for &c in &cells {
            let shown = cell(samples, c).map_or(String::new(), |s| {
                let mut times = s.times.clone();
                let (median, p99) = (quantile(&mut times, 0.5), quantile(&mut times, 0.99));
                format!("{}, {} ({})", show(median), show(Summary::of(s, 0).mean), show(p99))
            });
            let _ = write!(text, " {shown} |");
        }
        text.push('\n');
    }
    text
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}
