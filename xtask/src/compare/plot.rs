//! The plot: tokens a second, a bar for each engine.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use plotters::coord::Shift;
use plotters::prelude::*;
use serde::Deserialize;

use crate::plots::{COLORS, INK, failed};

const WIDTH: u32 = 860;
/// Of one engine's bar, and of the space between two groups of bars.
const BAR: f64 = 1.0;
const GAP: f64 = 0.7;
const PIXELS_A_BAR: f64 = 15.0;
/// Title and axis of a panel.
const FRAME: u32 = 86;
const LEGEND: u32 = 34;
/// What is drawn, from the top, and what its panel says.
const PANELS: [(&str, &str); 2] =
    [("prompt", "reading a prompt, tokens a second"), ("decode", "writing a reply, tokens a second")];
/// In the order of the bars.
const ENGINES: [&str; 2] = ["halfbyte", "llama.cpp"];

/// A run, as `compare.py --print bars` says it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Run {
    machine: String,
    date: String,
    bars: Vec<Bars>,
}

/// One work of one model, with every engine's rates, one a round.
#[derive(Debug, Clone, Deserialize)]
struct Bars {
    work: String,
    name: String,
    values: BTreeMap<String, Vec<f64>>,
}

/// The median of what was measured, its least and its most.
fn spread(values: &[f64]) -> Option<[f64; 3]> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (&least, &most) = (sorted.first()?, sorted.last()?);
    let n = sorted.len();
    Some([least, f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]), most])
}

/// An SVG of the newest run (the last): a bar for each engine's median with a line from the least to the most, and a ring at
/// the median of each earlier run of the same machine.
///
/// # Errors
/// If the newest run holds nothing to draw.
pub(super) fn svg(runs: &[Run]) -> Result<String> {
    let Some((newest, earlier)) = runs.split_last() else { anyhow::bail!("nothing was measured: no plot") };
    let earlier: Vec<&Run> = earlier.iter().filter(|run| run.machine == newest.machine).collect();
    let panels: Vec<(&str, Vec<&Bars>)> = PANELS
        .iter()
        .map(|&(work, title)| (title, newest.bars.iter().filter(|bars| bars.work == work).collect()))
        .filter(|(_, bars): &(_, Vec<_>)| !bars.is_empty())
        .collect();
    ensure!(!panels.is_empty(), "the run of {} has no rates: no plot", newest.date);
    let height = |bars: &[&Bars]| FRAME + (rows(bars.len()) * PIXELS_A_BAR) as u32;
    let whole = LEGEND + panels.iter().map(|(_, bars)| height(bars)).sum::<u32>();
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, whole)).into_drawing_area();
        root.fill(&WHITE).map_err(|e| failed(&e))?;
        let (head, mut rest) = root.split_vertically(LEGEND);
        legend(&head, newest, !earlier.is_empty())?;
        for (title, bars) in &panels {
            let (area, below) = rest.split_vertically(height(bars));
            panel(&area, title, bars, &earlier)?;
            rest = below;
        }
        root.present().map_err(|e| failed(&e))?;
    }
    Ok(svg)
}

/// Bars that `n` groups and the space around them would fill.
fn rows(n: usize) -> f64 {
    n as f64 * (ENGINES.len() as f64 * BAR + GAP) + GAP
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A square and a name for each engine, and what was measured where.
fn legend(area: &Area<'_>, newest: &Run, rings: bool) -> Result<()> {
    let font = ("sans-serif", 13).into_font().color(&INK);
    let mut x = 14;
    for (engine, color) in ENGINES.iter().zip(COLORS) {
        area.draw(&Rectangle::new([(x, 12), (x + 12, 24)], color.filled())).map_err(|e| failed(&e))?;
        area.draw(&Text::new(*engine, (x + 18, 11), font.clone())).map_err(|e| failed(&e))?;
        x += 110;
    }
    let rings = if rings { "; rings: earlier runs there" } else { "" };
    let said = format!("{}, {}{rings}", newest.machine, newest.date);
    area.draw(&Text::new(said, (x, 11), font)).map_err(|e| failed(&e))
}

fn panel(area: &Area<'_>, title: &str, bars: &[&Bars], earlier: &[&Run]) -> Result<()> {
    let most = bars.iter().flat_map(|b| b.values.values().flatten()).copied().fold(0.0, f64::max);
    let height = rows(bars.len());
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .x_label_area_size(42)
        .y_label_area_size(290)
        // Room for the number behind the longest bar.
        .build_cartesian_2d(0.0..most * 1.12, 0.0..height)
        .map_err(|e| failed(&e))?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(0)
        .x_desc(title)
        .label_style(("sans-serif", 13).into_font().color(&INK))
        .axis_style(INK)
        .light_line_style(TRANSPARENT)
        .bold_line_style(INK.mix(0.15))
        .x_label_formatter(&|rate| format!("{rate:.0}"))
        .draw()
        .map_err(|e| failed(&e))?;
    for (i, group) in bars.iter().enumerate() {
        // The first on top.
        let top = height - GAP - i as f64 * (ENGINES.len() as f64 * BAR + GAP);
        let label = EmptyElement::at((0.0, top - 0.5 * ENGINES.len() as f64 * BAR))
            + Text::new(group.name.clone(), (-282, -7), ("sans-serif", 13).into_font().color(&INK));
        chart.plotting_area().draw(&label).map_err(|e| failed(&e))?;
        for (j, (engine, color)) in ENGINES.iter().zip(COLORS).enumerate() {
            let Some([least, median, longest]) = group.values.get(*engine).and_then(|v| spread(v)) else {
                continue;
            };
            let (above, below) = (top - j as f64 * BAR, top - (j + 1) as f64 * BAR);
            let middle = 0.5 * (above + below);
            let bar = Rectangle::new([(0.0, above), (median, below)], color.mix(0.75).filled());
            chart.plotting_area().draw(&bar).map_err(|e| failed(&e))?;
            let line = PathElement::new([(least, middle), (longest, middle)], INK.stroke_width(1));
            chart.plotting_area().draw(&line).map_err(|e| failed(&e))?;
            let number = EmptyElement::at((longest, middle))
                + Text::new(format!("{median:.0}"), (6, -6), ("sans-serif", 12).into_font().color(&INK));
            chart.plotting_area().draw(&number).map_err(|e| failed(&e))?;
            let before = earlier.iter().flat_map(|run| &run.bars);
            for old in before.filter(|old| (&old.work, &old.name) == (&group.work, &group.name)) {
                let Some([_, median, _]) = old.values.get(*engine).and_then(|v| spread(v)) else { continue };
                let ring = EmptyElement::at((median, middle)) + Circle::new((0, 0), 3, INK.stroke_width(1));
                chart.plotting_area().draw(&ring).map_err(|e| failed(&e))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(machine: &str, date: &str, rates: &[(&str, &str, [&[f64]; 2])]) -> Run {
        let bars = rates.iter().map(|&(work, name, [ours, theirs])| {
            let values = [("halfbyte", ours), ("llama.cpp", theirs)].into_iter();
            let values = values.filter(|(_, v)| !v.is_empty()).map(|(name, v)| (name.to_owned(), v.to_vec()));
            Bars { work: work.to_owned(), name: name.to_owned(), values: values.collect() }
        });
        Run { machine: machine.to_owned(), date: date.to_owned(), bars: bars.collect() }
    }

    #[test]
    fn a_bar_for_each_engine_and_a_ring_for_each_earlier_run() {
        let runs = [
            run("another CPU", "2026-01-01", &[("decode", "Small, 1 thread", [&[70.0], &[60.0]])]),
            run("a CPU", "2026-01-02", &[("decode", "Small, 1 thread", [&[80.0], &[60.0]])]),
            run(
                "a CPU",
                "2026-01-03",
                &[
                    ("prompt", "Small, 2 threads", [&[300.0, 100.0, 201.4], &[54.0, 53.0]]),
                    ("decode", "Small, 1 thread", [&[83.0], &[]]),
                ],
            ),
        ];
        let svg = svg(&runs).unwrap();
        let words = |text: &str| svg.lines().filter(|line| line.trim() == text).count();
        // The medians, of three and of two; the engine that is absent has no bar, and no ring for what it did once.
        for (text, count) in [("201", 1), ("54", 1), ("83", 1), ("llama.cpp", 1), ("Small, 2 threads", 1)] {
            assert_eq!(words(text), count, "{text}: {svg}");
        }
        assert_eq!(words("a CPU, 2026-01-03; rings: earlier runs there"), 1, "{svg}");
        assert_eq!(svg.matches("<circle").count(), 1, "{svg}");
        // The background, the legend's two, and three bars.
        assert_eq!(svg.matches("<rect").count(), 6, "{svg}");
    }

    #[test]
    fn no_rates_no_plot() {
        assert!(svg(&[]).unwrap_err().to_string().contains("nothing was measured"));
        let error = svg(&[run("a CPU", "2026-01-03", &[])]).unwrap_err().to_string();
        assert!(error.contains("the run of 2026-01-03 has no rates"), "{error}");
    }
}
