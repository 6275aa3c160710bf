//! The plot: mean KL by method.

use anyhow::{Context, Result};
use plotters::prelude::*;

use super::figures::Figures;
use super::method::METHODS;
use crate::plots::{COLORS, INK, failed};

const WIDTH: u32 = 860;
const ROW: u32 = 30;
const FRAME: u32 = 120;
/// Empty rows at the bottom, for the legend.
const LEGEND: i32 = 2;

/// An SVG of all methods that were measured, a point for each model with twice its standard error on both sides.
///
/// # Errors
/// If there is nothing to draw.
pub(super) fn svg(figures: &Figures) -> Result<String> {
    let shown: Vec<_> =
        METHODS.iter().filter(|m| figures.subjects.iter().any(|s| s.row(m.key).is_some())).collect();
    let values: Vec<f64> = figures
        .subjects
        .iter()
        .flat_map(|s| &s.rows)
        .flat_map(|row| {
            [row.kl.value - 2.0 * row.kl.stderr, row.kl.value + 2.0 * row.kl.stderr, row.kl.value]
        })
        .filter(|&kl| kl > 0.0)
        .collect();
    let low = values.iter().copied().min_by(f64::total_cmp).context("nothing was measured: no plot")?;
    let high = values.iter().copied().fold(low, f64::max);
    // Room for the dots and the numbers beside them.
    let margin = (high / low).powf(0.1).max(1.1);
    let range = low / margin..high * margin;
    let n = shown.len() as i32;

    let mut svg = String::new();
    {
        let root =
            SVGBackend::with_string(&mut svg, (WIDTH, ROW * shown.len() as u32 + FRAME)).into_drawing_area();
        root.fill(&WHITE).map_err(|e| failed(&e))?;
        let mut chart = ChartBuilder::on(&root)
            .margin(14)
            .x_label_area_size(46)
            .y_label_area_size(190)
            .build_cartesian_2d(range.clone().log_scale(), -LEGEND..n)
            .map_err(|e| failed(&e))?;
        // The first method on top.
        let label = |y: &i32| {
            let method = usize::try_from(n - 1 - y).ok().and_then(|i| shown.get(i));
            method.map_or_else(String::new, |m| m.label.replace('`', ""))
        };
        chart
            .configure_mesh()
            .x_desc("mean KL divergence from F32, nats a token (logarithmic); less is better")
            .label_style(("sans-serif", 13).into_font().color(&INK))
            .axis_style(INK)
            .light_line_style(TRANSPARENT)
            .bold_line_style(INK.mix(0.15))
            .y_labels(shown.len() + 1 + LEGEND as usize)
            .y_label_formatter(&label)
            .x_label_formatter(&|kl| format!("{kl}"))
            .draw()
            .map_err(|e| failed(&e))?;
        for (subject, color) in figures.subjects.iter().zip(COLORS.iter().cycle()) {
            let points: Vec<_> = shown
                .iter()
                .enumerate()
                .filter_map(|(i, m)| Some((n - 1 - i as i32, subject.row(m.key)?.kl)))
                .filter(|(_, kl)| kl.value > 0.0)
                .collect();
            let intervals = points.iter().map(|(y, kl)| {
                let ends = [kl.value - 2.0 * kl.stderr, kl.value + 2.0 * kl.stderr];
                PathElement::new(ends.map(|kl| (kl.max(range.start), *y)), color.stroke_width(2))
            });
            chart.draw_series(intervals).map_err(|e| failed(&e))?;
            let dots = points.iter().map(|(y, kl)| {
                EmptyElement::at((kl.value, *y))
                    + Circle::new((0, 0), 4, color.filled())
                    + Text::new(number(kl.value), (8, -5), ("sans-serif", 12).into_font().color(color))
            });
            chart
                .draw_series(dots)
                .map_err(|e| failed(&e))?
                .label(&subject.name)
                .legend(move |(x, y)| Circle::new((x + 10, y), 5, color.filled()));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .label_font(("sans-serif", 13).into_font().color(&INK))
            .background_style(WHITE)
            .border_style(INK.mix(0.3))
            .draw()
            .map_err(|e| failed(&e))?;
        root.present().map_err(|e| failed(&e))?;
    }
    Ok(svg)
}

/// Three digits that count.
fn number(kl: f64) -> String {
    let digits = (2 - kl.log10().floor() as i32).clamp(0, 9) as usize;
    format!("{kl:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::subject;
    use super::*;

    #[test]
    fn a_point_for_each_row_and_a_name_for_each_method() {
        let mut second = subject(&[("max7", 0.5, 8.0)]);
        second.name = "Another".to_owned();
        let figures = Figures { subjects: vec![subject(&[("max7", 0.5, 0.8), ("fit", 0.1, 0.2)]), second] };
        let svg = svg(&figures).unwrap();
        // Three, with their numbers, and one a model in the legend.
        assert_eq!(svg.matches("<circle").count(), 5);
        for text in ["max/7 (q4_row)", "fit", "Model", "Another", "0.800", "8.00", "0.200"] {
            assert!(svg.lines().any(|line| line.trim() == text), "{text}: {svg}");
        }
        assert!(!svg.contains("gptq"));
    }

    #[test]
    fn no_figures_no_plot() {
        assert!(svg(&Figures::default()).unwrap_err().to_string().contains("nothing was measured"));
    }
}
