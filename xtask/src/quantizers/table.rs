//! The figures as Markdown.

use std::fmt::Write as _;

use super::figures::{Estimate, Figures, Row, Subject};
use super::method::label;

/// The short table, for the crate's README.
pub(super) fn short(subject: &Subject) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{} as Q4_0 ({}), {} tokens of held-out text:\n",
        subject.name, subject.source, subject.scored_tokens
    );
    text.push_str("| method | weight error | output error | perplexity | mean KL | gap closed | seconds |\n");
    text.push_str("|---|---|---|---|---|---|---|\n");
    let _ = writeln!(text, "| F32 | 0 | 0 | {:.3} | 0 | 100% | |", subject.base.perplexity.value);
    for row in subject.rows.iter().filter(|row| !row.method.starts_with("q4_1")) {
        let Some(relative) = subject.relative(row) else { continue };
        let _ = writeln!(
            text,
            "| {} | {:.3} | {:.3} | {:.3} | {:.5} | {} | {} |",
            label(&row.method),
            relative.weight_error,
            relative.output_error,
            row.quantized.perplexity.value,
            row.kl.value,
            percent(relative.gap_closed.value),
            seconds(row.seconds),
        );
    }
    text.push_str(
        "\nErrors are squared and relative to max/7's; the gap is that in loss from max/7 to F32. \
         `cargo xtask quantizers` makes this table;\n`docs/quantizers.md` has it whole, with standard errors.\n",
    );
    text
}

/// All tables, with what they are of, and the goals.
pub(super) fn full(figures: &Figures) -> String {
    let mut text = String::new();
    for subject in &figures.subjects {
        describe(&mut text, subject);
    }
    text.push_str("## Goals\n\n");
    for subject in &figures.subjects {
        let _ = writeln!(text, "{}:\n", subject.name);
        for goal in goals(subject) {
            let _ = writeln!(text, "- {goal}");
        }
        text.push('\n');
    }
    text
}

fn describe(text: &mut String, subject: &Subject) {
    let Subject { name, source, windows, context, scored_tokens, .. } = subject;
    let _ = writeln!(text, "## {name}\n");
    let _ = writeln!(
        text,
        "Source: {source}. Text: `{}`, of which the first {} bytes are evaluated ({windows} windows of {context} tokens, \
         {scored_tokens} scored) and the other {} calibrate. Output errors: {} tokens. {} threads; the imatrix took {} s, \
         which is not in the last column.\n",
        subject.text,
        subject.evaluated_bytes,
        subject.calibration_bytes,
        subject.output_tokens,
        subject.threads,
        seconds(subject.imatrix_seconds),
    );
    text.push_str(
        "| method | bits/weight | weight error | output error | loss | loss - F32's | perplexity | mean KL | same top token \
         | gap closed | KL removed | seconds |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let _ = writeln!(
        text,
        "| F32 | 32 | 0 | 0 | {} | 0 | {} | 0 | 100% | 100% | 100% | |",
        plus_minus(subject.base.loss, 4),
        plus_minus(subject.base.perplexity, 3),
    );
    for row in &subject.rows {
        let Some(relative) = subject.relative(row) else { continue };
        let _ = writeln!(
            text,
            "| {} | {:.2} | {:.3} | {:.3} | {} | {} | {} | {} | {:.1}% | {} | {} | {} |",
            label(&row.method),
            row.bits_per_weight,
            relative.weight_error,
            relative.output_error,
            plus_minus(row.quantized.loss, 4),
            plus_minus(row.loss_difference, 4),
            plus_minus(row.quantized.perplexity, 3),
            plus_minus(row.kl, 5),
            row.same_top_percent,
            percents(relative.gap_closed),
            percent(relative.kl_removed),
            seconds(row.seconds),
        );
    }
    let mut programs: Vec<&str> = subject.rows.iter().map(|row| row.by.as_str()).collect();
    programs.sort_unstable();
    programs.dedup();
    let _ = writeln!(text, "\nQuantized by {}.\n", programs.join(" and "));
}

/// What was aimed at, and whether it was reached.
fn goals(subject: &Subject) -> Vec<String> {
    // Both are shown: which of them is the better one was not known before.
    let calibrated = || ["gptq", "gptq_imatrix"].into_iter().filter_map(|key| subject.row(key));
    let mut goals = Vec::new();

    let aim = "the fit has 0.69 ± 0.01 of max/7's squared weight error";
    let fit = subject.row("fit").and_then(|row| subject.relative(row)).map(|fit| fit.weight_error);
    goals.push(match fit {
        Some(error) if subject.on_grid => {
            format!("not judged: {aim}, where weights are spread like Gaussian ones; here they lie on Q4_1's grid ({error:.3})")
        }
        _ => goal(aim, fit.map(|error| ((error - 0.69).abs() <= 0.01, format!("{error:.3}")))),
    });
    let closed: Vec<_> =
        calibrated().filter_map(|row| Some((row, subject.relative(row)?.gap_closed))).collect();
    let said = closed.iter().map(|(row, share)| format!("{}: {}", label(&row.method), percents(*share)));
    goals.push(goal(
        "gptq closes at least 60% of the loss between max/7 and F32",
        (!closed.is_empty()).then(|| {
            (closed.iter().any(|(_, share)| share.value >= 0.6), said.collect::<Vec<_>>().join(", "))
        }),
    ));
    let lower = |ours: Vec<&Row>, theirs: Option<&Row>| {
        let theirs = theirs.filter(|_| !ours.is_empty())?;
        let met = ours.iter().any(|row| row.kl.value < theirs.kl.value);
        let rows = ours.into_iter().chain([theirs]);
        let said = rows.map(|row| format!("{}: {}", label(&row.method), plus_minus(row.kl, 5)));
        Some((met, said.collect::<Vec<_>>().join(", ")))
    };
    goals.push(goal(
        "the fit has a lower KL than llama.cpp's Q4_0 without an imatrix",
        lower(subject.row("fit").into_iter().collect(), subject.row("llama")),
    ));
    goals.push(goal(
        "calibrated, ours has a lower KL than llama.cpp's with an imatrix",
        lower(calibrated().collect(), subject.row("llama_imatrix")),
    ));
    goals
}

/// A goal with its outcome: whether it was met, and the figures.
fn goal(aim: &str, outcome: Option<(bool, String)>) -> String {
    match outcome {
        Some((true, figures)) => format!("met: {aim} ({figures})"),
        Some((false, figures)) => format!("**not met**: {aim} ({figures})"),
        None => format!("not measured: {aim}"),
    }
}

fn plus_minus(estimate: Estimate, digits: usize) -> String {
    format!("{:.digits$} ± {:.digits$}", estimate.value, estimate.stderr)
}

fn percents(share: Estimate) -> String {
    format!("{} ± {}", percent(share.value), percent(share.stderr))
}

fn percent(share: f64) -> String {
    // No "-0%".
    format!("{}%", (100.0 * share).round() as i64)
}

/// Two digits that count, or all before the point.
fn seconds(seconds: f64) -> String {
    match seconds {
        s if s >= 10.0 => format!("{s:.0}"),
        s if s >= 1.0 => format!("{s:.1}"),
        s => format!("{s:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::subject;
    use super::*;

    #[test]
    fn the_short_table_has_q4_0_alone() {
        let text = short(&subject(&[("max7", 0.5, 0.8), ("fit", 0.125, 0.2), ("q4_1_max", 0.1, 0.1)]));
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).skip(2).collect();
        assert_eq!(
            rows,
            [
                "| F32 | 0 | 0 | 30.000 | 0 | 100% | |",
                "| max/7 (`q4_row`) | 1.000 | 1.000 | 35.000 | 0.80000 | 0% | 1.2 |",
                "| fit | 0.250 | 0.250 | 31.250 | 0.20000 | 75% | 1.2 |",
            ]
        );
        assert!(text.starts_with("Model as Q4_0 (from nowhere), 1022 tokens"), "{text}");
    }

    #[test]
    fn all_rows_of_a_table_have_its_columns() {
        let text = full(&Figures { subjects: vec![subject(&[("max7", 0.5, 0.8), ("q4_1_max", 0.1, 0.1)])] });
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(rows.len(), 5);
        for row in &rows {
            assert_eq!(row.matches('|').count(), rows[0].matches('|').count(), "{row}");
        }
        assert!(rows[4].contains("| 3.1000 ± 0.5000 | 0.1000 ± 0.5000 |"), "{}", rows[4]);
    }

    #[test]
    fn goals_are_judged_by_the_figures() {
        let said = |rows: &[(&str, f64, f64)]| {
            let goals = goals(&subject(rows));
            goals.iter().map(|goal| goal.split(':').next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(said(&[("max7", 0.5, 1.0)]), ["not measured"; 4]);
        // The weight error goes with the KL here.
        let rows = [("max7", 0.5, 1.0), ("fit", 0.4, 0.695), ("llama", 0.4, 0.7)];
        let calibrated = [("gptq", 0.3, 0.5), ("gptq_imatrix", 0.2, 0.4), ("llama_imatrix", 0.3, 0.45)];
        assert_eq!(said(&[&rows[..], &calibrated[..]].concat()), ["met"; 4]);
        let rows = [("max7", 0.5, 1.0), ("fit", 0.4, 0.675), ("llama", 0.4, 0.6)];
        let calibrated = [("gptq", 0.3, 0.5), ("llama_imatrix", 0.3, 0.45)];
        assert_eq!(said(&[&rows[..], &calibrated[..]].concat()), ["**not met**"; 4]);

        let mut on_grid = subject(&rows);
        on_grid.on_grid = true;
        let first = goals(&on_grid).remove(0);
        assert!(first.starts_with("not judged") && first.ends_with("(0.675)"), "{first}");
    }

    #[test]
    fn numbers_are_short() {
        let seconds = [0.125, 1.26, 9.96, 83.4].map(seconds);
        assert_eq!(seconds, ["0.12", "1.3", "10.0", "83"]);
        assert_eq!([-0.001, 0.604, -0.2].map(percent), ["0%", "60%", "-20%"]);
    }
}
