//! Numbers to a picture: what a call costs beyond its work, by the gap before it.

use crate::measure::Cell;
use crate::report::{self, Results, Summary};
use anyhow::{Result, anyhow};
use plotters::prelude::*;
use std::path::Path;

const GAPS: [(u64, &str); 4] =
    [(0, "back to back"), (20, "after 20 us"), (200, "after 200 us"), (5000, "after 5 ms")];
const WORKS: [u64; 2] = [3, 100];
const COLOURS: [RGBColor; 10] = [
    RGBColor(200, 30, 30),
    RGBColor(30, 90, 200),
    RGBColor(20, 140, 60),
    RGBColor(120, 190, 120),
    RGBColor(120, 60, 160),
    RGBColor(180, 130, 210),
    RGBColor(230, 140, 20),
    RGBColor(240, 190, 90),
    RGBColor(90, 90, 90),
    RGBColor(170, 170, 170),
];
/// The axis in nanoseconds; what is beyond is drawn at its end.
const LOWEST: f64 = 50.0;
const HIGHEST: f64 = 1e6;

/// Draws the quiet scenario's medians as dots, with a line up to the 99th percentile.
pub(crate) fn draw(path: &Path, results: &Results, cpus: usize) -> Result<()> {
    let area = SVGBackend::new(path, (1000, 460)).into_drawing_area();
    area.fill(&WHITE)?;
    let (plots, legend) = area.split_horizontally(780);
    for (part, work) in plots.split_evenly((1, WORKS.len())).iter().zip(WORKS) {
        let mut chart = ChartBuilder::on(part)
            .caption(format!("{work} us of work in each of {cpus} threads"), ("sans-serif", 15))
            .margin(8)
            .x_label_area_size(28)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..GAPS.len() as f64, (LOWEST..HIGHEST).log_scale())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .y_desc("time of a call less its work")
            .y_label_formatter(&|y| report::show(*y))
            .draw()?;
        for (group, (gap, title)) in GAPS.into_iter().enumerate() {
            let label = Text::new(title, (group as f64 + 0.2, LOWEST * 1.45), ("sans-serif", 12));
            chart.draw_series([label])?;
            for (i, (_, samples)) in results.iter().enumerate() {
                let Some(cell) = report::cell(samples, Cell { gap, work }) else { continue };
                let summary = Summary::of(cell, cpus);
                let x = group as f64 + 0.08 + 0.84 * i as f64 / results.len() as f64;
                let inside = |y: f64| y.clamp(LOWEST, HIGHEST);
                let (low, high) = (inside(summary.median), inside(summary.p99));
                let colour = COLOURS[i % COLOURS.len()];
                chart.draw_series([PathElement::new(vec![(x, low), (x, high)], colour.stroke_width(2))])?;
                chart.draw_series([Circle::new((x, low), 4, colour.filled())])?;
            }
        }
    }
    for (i, (contender, _)) in results.iter().enumerate() {
        let (y, colour) = (50 + 24 * i as i32, COLOURS[i % COLOURS.len()]);
        legend.draw(&Circle::new((14, y), 4, colour.filled()))?;
        legend.draw(&Text::new(contender.title.replace('`', ""), (26, y - 6), ("sans-serif", 13)))?;
    }
    let note = ["dot: median", "line: up to the 99th percentile"];
    for (i, line) in note.into_iter().enumerate() {
        let y = 70 + 24 * results.len() as i32 + 18 * i as i32;
        legend.draw(&Text::new(line, (8, y), ("sans-serif", 12)))?;
    }
    area.present().map_err(|error| anyhow!("{}: {error}", path.display()))
}
