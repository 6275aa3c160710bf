//! The figures as Markdown.

use std::fmt::Write as _;

use super::figures::{AUTO, F32, Figures, INT16, KINDS, LLAMA, Rates, Subject, Work};

/// All tables, with what they are of, and the goals.
pub(super) fn full(figures: &Figures) -> String {
    let mut text = String::from("### Predictions and replies\n\n");
    text.push_str(&measured(figures));
    text.push_str(
        "\n| file | activations | mean KL | 99% | maximum | same top token | perplexity | equal replies |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for subject in &figures.subjects {
        predictions(&mut text, subject);
    }
    text.push_str("\n### Rates\n\n");
    text.push_str(&machines(figures));
    text.push_str(
        "\n| file | ISA | threads | work | int8 | auto | int16 | f32 | auto / int8 | int16 / int8 | f32 / int8 |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for subject in &figures.subjects {
        for rates in &subject.rates {
            speeds(&mut text, &subject.name, rates);
        }
    }
    text.push_str("\n### Goals\n\nThey are for SmolLM2; what is in brackets is the worst of its rows.\n\n");
    for goal in goals(figures) {
        let _ = writeln!(text, "- {goal}");
    }
    text
}

/// How the files came to be, and how much text there is.
fn measured(figures: &Figures) -> String {
    let mut text = String::new();
    for s in &figures.subjects {
        let _ = write!(
            text,
            "- {}: {}; `{}`, {} windows of {} tokens, {} tokens scored",
            s.name, s.source, s.text, s.windows, s.context, s.scored_tokens
        );
        if let (Some(version), Some(perplexity)) = (&s.llama, s.llama_perplexity) {
            let _ = write!(
                text,
                "; llama-cpp-python {version}, whose base is the file as F32, perplexity {perplexity:.3}"
            );
        }
        text.push_str(".\n");
    }
    text
}

fn predictions(text: &mut String, subject: &Subject) {
    let name = &subject.name;
    for kind in KINDS.into_iter().chain([LLAMA]) {
        let replies =
            subject.replies(kind).map(|r| format!("{} of {}", r.equal, r.asked)).unwrap_or_default();
        if kind == F32 {
            let perplexity = subject.perplexity;
            let _ = writeln!(text, "| {name} | f32 | 0 | 0 | 0 | 100% | {perplexity:.3} | {replies} |");
        } else if let Some(q) = subject.quality(kind) {
            let _ = writeln!(
                text,
                "| {name} | {kind} | {} | {} | {} | {:.2}% | {:.3} | {replies} |",
                nats(q.mean),
                nats(q.p99),
                nats(q.max),
                q.same_top_percent,
                q.perplexity,
            );
        }
    }
}

/// Which processor each file's rates are of, and over how many rounds.
fn machines(figures: &Figures) -> String {
    let timed = figures.subjects.iter().filter_map(|s| Some((&s.cpu, s.rates.first()?.rounds)));
    let mut machines: Vec<_> = timed.collect();
    machines.dedup();
    let mut text = String::new();
    for (cpu, rounds) in machines {
        let _ = writeln!(text, "Tokens a second on {cpu}, medians of {rounds} rounds.");
    }
    text
}

fn speeds(text: &mut String, name: &str, rates: &Rates) {
    let work = match rates.work {
        Work::Prompt => "prompt",
        Work::Decode => "decode",
    };
    let _ = write!(text, "| {name} | {} | {} | {work} |", rates.isa, rates.threads);
    let of = |kind| rates.kind(kind);
    for kind in KINDS {
        let rate = of(kind).map(|rate| format!("{:.1}", rate.tokens_per_second));
        let _ = write!(text, " {} |", rate.unwrap_or_default());
    }
    for kind in &KINDS[1..] {
        let ratio = of(kind).map(|rate| format!("{:.2}", rate.to_int8));
        let _ = write!(text, " {} |", ratio.unwrap_or_default());
    }
    text.push('\n');
}

/// What was aimed at, and whether it was reached.
fn goals(figures: &Figures) -> Vec<String> {
    let smollm2 = || figures.subjects.iter().filter(|s| s.key.starts_with("smollm2"));
    let most = |kind: &str, what: &str, value: fn(&super::figures::Quality) -> f64, limit: f64| {
        let worst = smollm2().filter_map(|s| s.quality(kind)).map(value).reduce(f64::max);
        let aim = format!("{kind}: {what} at most {}", nats(limit));
        goal(&aim, worst.map(|worst| (worst <= limit, nats(worst))))
    };
    let least = |kind: &str, work: Work, limit: f64| {
        let all = smollm2().flat_map(|s| &s.rates).filter(|r| r.work == work);
        let worst = all.filter_map(|r| r.kind(kind)).map(|r| r.to_int8).reduce(f64::min);
        let what = if work == Work::Prompt { "prompts" } else { "decoding" };
        let aim = format!("{kind}: {what} at least {limit:.2} of int8's rate");
        goal(&aim, worst.map(|worst| (worst >= limit, format!("{worst:.2}"))))
    };
    vec![
        most(AUTO, "mean KL", |q| q.mean, 0.0006),
        most(AUTO, "99%", |q| q.p99, 0.003),
        least(AUTO, Work::Decode, 0.97),
        least(AUTO, Work::Prompt, 0.85),
        most(INT16, "mean KL", |q| q.mean, 0.00001),
        least(INT16, Work::Decode, 0.9),
        least(INT16, Work::Prompt, 0.55),
    ]
}

/// A goal with its outcome: whether it was met, and the worst figure.
fn goal(aim: &str, outcome: Option<(bool, String)>) -> String {
    match outcome {
        Some((true, worst)) => format!("met: {aim} ({worst})"),
        Some((false, worst)) => format!("**not met**: {aim} ({worst})"),
        None => format!("not measured: {aim}"),
    }
}

/// Two digits that count, without an exponent.
fn nats(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    // The exponent of what two digits round to, so that 0.0996 is 0.10.
    let rounded = format!("{value:.1e}");
    let exponent: i32 = rounded.split('e').nth(1).and_then(|e| e.parse().ok()).unwrap_or(0);
    format!("{value:.*}", usize::try_from(1 - exponent).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::subject;
    use super::super::figures::{INT8, Quality};
    use super::*;

    fn figures(auto: f64) -> Figures {
        let kl = [(INT8, 0.0032), (AUTO, auto), (INT16, 0.000_000_41)];
        Figures { subjects: vec![subject(&kl, [100.0, 90.0, 60.0, 20.0], [50.0, 49.0, 47.5, 10.0])] }
    }

    fn rows(text: &str) -> Vec<&str> {
        text.lines().filter(|line| line.starts_with("| Model")).collect()
    }

    #[test]
    fn rows_have_what_was_measured() {
        assert_eq!(
            rows(&full(&figures(0.0005))),
            [
                "| Model in Q4_1 | int8 | 0.0032 | 0.013 | 0.051 | 98.75% | 20.500 |  |",
                "| Model in Q4_1 | auto | 0.00050 | 0.0020 | 0.0080 | 98.75% | 20.500 | 29 of 40 |",
                "| Model in Q4_1 | int16 | 0.00000041 | 0.0000016 | 0.0000066 | 98.75% | 20.500 |  |",
                "| Model in Q4_1 | f32 | 0 | 0 | 0 | 100% | 20.250 |  |",
                "| Model in Q4_1 | avx2 | 1 | prompt | 100.0 | 90.0 | 60.0 | 20.0 | 0.90 | 0.60 | 0.20 |",
                "| Model in Q4_1 | avx2 | 1 | decode | 50.0 | 49.0 | 47.5 | 10.0 | 0.98 | 0.95 | 0.20 |",
            ]
        );
    }

    #[test]
    fn llama_has_a_row_where_it_was_asked() {
        let mut figures = figures(0.0005);
        let llama = Quality { kind: LLAMA.to_owned(), ..figures.subjects[0].quality[0].clone() };
        figures.subjects[0].quality.push(llama);
        (figures.subjects[0].llama, figures.subjects[0].llama_perplexity) = (Some("0.3".into()), Some(20.25));
        let text = full(&figures);
        assert_eq!(
            rows(&text)[4],
            "| Model in Q4_1 | llama.cpp | 0.0032 | 0.013 | 0.051 | 98.75% | 20.500 |  |"
        );
        assert!(
            text.contains("llama-cpp-python 0.3, whose base is the file as F32, perplexity 20.250."),
            "{text}"
        );
    }

    #[test]
    fn all_rows_of_a_table_have_its_columns() {
        for table in full(&figures(0.0005)).split("###") {
            let bars: Vec<_> =
                table.lines().filter(|l| l.starts_with('|')).map(|l| l.matches('|').count()).collect();
            assert!(bars.windows(2).all(|two| two[0] == two[1]), "{table}");
        }
    }

    #[test]
    fn goals_are_judged_by_the_worst() {
        let judged = |figures: &Figures| -> Vec<bool> {
            goals(figures).iter().map(|goal| goal.starts_with("met")).collect()
        };
        assert_eq!(judged(&figures(0.0005)), [true; 7]);
        // One slow and coarse file more.
        let mut two = figures(0.0005);
        two.subjects.push(subject(&[(AUTO, 0.0008)], [100.0, 80.0, 50.0, 20.0], [50.0, 48.0, 44.0, 10.0]));
        assert_eq!(judged(&two), [false, false, false, false, true, false, false]);
        assert_eq!(goals(&two)[3], "**not met**: auto: prompts at least 0.85 of int8's rate (0.80)");
        // Of other models they say nothing.
        two.subjects.iter_mut().for_each(|s| s.key = "tiny-q4_0".to_owned());
        assert!(goals(&two).iter().all(|goal| goal.starts_with("not measured")), "{:?}", goals(&two));
    }

    #[test]
    fn numbers_have_two_digits() {
        let said = [0.0032, 0.000_43, 0.0996, 4.1e-7, 1.26, 12.3, 0.0].map(nats);
        assert_eq!(said, ["0.0032", "0.00043", "0.10", "0.00000041", "1.3", "12", "0"]);
    }
}
