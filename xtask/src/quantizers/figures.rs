//! What was measured, as `docs/quantizers.json` keeps it.

use serde::{Deserialize, Serialize};

use super::method::REFERENCE;

/// Everything that tables and plot are made of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    pub(super) subjects: Vec<Subject>,
}

/// A model and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Subject {
    /// For `--subject`.
    pub(super) key: String,
    pub(super) name: String,
    /// Where its weights come from, for the table's legend.
    pub(super) source: String,
    /// Whether its weights were Q4_1 before: sixteen values a group, not spread as trained weights are.
    pub(super) on_grid: bool,
    /// The file that was cut in two.
    pub(super) text: String,
    pub(super) evaluated_bytes: usize,
    pub(super) calibration_bytes: usize,
    /// Tokens in a window.
    pub(super) context: usize,
    /// Of the evaluated text.
    pub(super) windows: usize,
    pub(super) scored_tokens: usize,
    /// Of the evaluated text, for the errors of outputs.
    pub(super) output_tokens: usize,
    pub(super) threads: usize,
    pub(super) imatrix_seconds: f64,
    /// The F32 model's.
    pub(super) base: Loss,
    pub(super) rows: Vec<Row>,
}

/// A mean and its standard error.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Estimate {
    pub(super) value: f64,
    pub(super) stderr: f64,
}

/// How well a text is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Loss {
    /// Nats a token.
    pub(super) loss: Estimate,
    pub(super) perplexity: Estimate,
}

/// One method's figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    /// Its key.
    pub(super) method: String,
    /// The program that quantized.
    pub(super) by: String,
    pub(super) bits_per_weight: f64,
    /// `sum (w - q)^2 / sum w^2` over the matrices.
    pub(super) relative_squared_error: f64,
    /// Mean over the matrices of `sum |W x - Q x|^2 / sum |W x|^2`.
    pub(super) relative_squared_output_error: f64,
    pub(super) quantized: Loss,
    /// Its loss less the F32 model's, token by token.
    pub(super) loss_difference: Estimate,
    /// Divergence from the F32 model, nats a token.
    pub(super) kl: Estimate,
    pub(super) same_top_percent: f64,
    pub(super) seconds: f64,
}

impl Subject {
    pub(super) fn row(&self, method: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.method == method)
    }

    /// `row` beside the reference; `None` if that was not measured.
    pub(super) fn relative(&self, row: &Row) -> Option<Relative> {
        let reference = self.row(REFERENCE)?;
        let share = row.loss_difference.value / reference.loss_difference.value;
        let uncertainty = |e: Estimate| e.stderr / e.value;
        let uncertainty = uncertainty(row.loss_difference).hypot(uncertainty(reference.loss_difference));
        Some(Relative {
            weight_error: row.relative_squared_error / reference.relative_squared_error,
            output_error: row.relative_squared_output_error / reference.relative_squared_output_error,
            gap_closed: Estimate {
                value: 1.0 - share,
                stderr: if row.method == REFERENCE { 0.0 } else { (share * uncertainty).abs() },
            },
            kl_removed: 1.0 - row.kl.value / reference.kl.value,
        })
    }
}

/// A method's figures by those of max/7.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Relative {
    pub(super) weight_error: f64,
    pub(super) output_error: f64,
    /// Share of the loss between the reference and F32. Its error is that of a quotient of independent numbers; the two
    /// have the text in common, so it is too large rather than too small.
    pub(super) gap_closed: Estimate,
    /// Share of the reference's divergence.
    pub(super) kl_removed: f64,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A subject with made-up round figures: the loss differences and divergences given.
    pub(crate) fn subject(rows: &[(&str, f64, f64)]) -> Subject {
        let estimate = |value| Estimate { value, stderr: 0.5 };
        let loss = |value| Loss { loss: estimate(value), perplexity: estimate(10.0 * value) };
        let rows = rows.iter().map(|&(method, difference, kl)| Row {
            method: method.to_owned(),
            by: "halfbyte".to_owned(),
            bits_per_weight: 4.5,
            relative_squared_error: 0.5 * kl,
            relative_squared_output_error: 0.25 * kl,
            quantized: loss(3.0 + difference),
            loss_difference: estimate(difference),
            kl: estimate(kl),
            same_top_percent: 90.0,
            seconds: 1.25,
        });
        Subject {
            key: "smollm2".to_owned(),
            name: "Model".to_owned(),
            source: "from nowhere".to_owned(),
            on_grid: false,
            text: "text.txt".to_owned(),
            evaluated_bytes: 600,
            calibration_bytes: 400,
            context: 512,
            windows: 2,
            scored_tokens: 1022,
            output_tokens: 1024,
            threads: 2,
            imatrix_seconds: 3.0,
            base: loss(3.0),
            rows: rows.collect(),
        }
    }

    #[test]
    fn shares_are_of_the_reference() {
        let subject = subject(&[("max7", 0.5, 0.8), ("fit", 0.125, 0.2)]);
        let relative = subject.relative(subject.row("fit").unwrap()).unwrap();
        assert_eq!((relative.weight_error, relative.output_error, relative.kl_removed), (0.25, 0.25, 0.75));
        // A quarter of the gap is left, 1/4 (1 +- hypot(0.5 / 0.125, 0.5 / 0.5)) of it.
        let stderr = 0.25 * 17.0_f64.sqrt();
        assert_eq!(relative.gap_closed.value, 0.75);
        assert!((relative.gap_closed.stderr - stderr).abs() < 1e-12, "{relative:?}");
        let reference = subject.relative(subject.row("max7").unwrap()).unwrap();
        assert_eq!((reference.weight_error, reference.kl_removed), (1.0, 0.0));
        assert_eq!(reference.gap_closed, Estimate { value: 0.0, stderr: 0.0 });
    }

    #[test]
    fn without_the_reference_there_are_none() {
        let subject = subject(&[("fit", 0.125, 0.2)]);
        assert_eq!(subject.relative(&subject.rows[0]), None);
    }

    #[test]
    fn json_keeps_all() {
        let figures = Figures { subjects: vec![subject(&[("max7", 0.5, 0.8)])] };
        let json = serde_json::to_string(&figures).unwrap();
        assert_eq!(serde_json::from_str::<Figures>(&json).unwrap(), figures);
    }
}
