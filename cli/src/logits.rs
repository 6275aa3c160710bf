//! `halfbyte logits`: what the model expects after every token of a text.

use std::fmt::Write;

use anyhow::{Result, bail};
use halfbyte::evaluate::log_sum_exp;
use serde::Serialize;

use super::args::{GlobalArgs, LogitsArgs};
use super::loading::{self, LoadedModel};
use super::output;
use super::progress::Waiting;
use super::prompt;

#[derive(Serialize)]
struct Output {
    ids: Vec<u32>,
    positions: Vec<Position>,
}

/// The likeliest next tokens after one token.
#[derive(Debug, PartialEq, Serialize)]
struct Position {
    top_ids: Vec<u32>,
    top_logits: Vec<f32>,
    logsumexp: f64,
}

impl Position {
    /// The `top` largest of `logits`, equal ones by rising id.
    fn new(logits: &[f32], top: usize) -> Self {
        let mut ids: Vec<u32> = (0..).take(logits.len()).collect();
        let at = |id: u32| logits[id as usize];
        let order = |a: &u32, b: &u32| at(*b).total_cmp(&at(*a)).then(a.cmp(b));
        if top < ids.len() {
            ids.select_nth_unstable_by(top, order);
            ids.truncate(top);
        }
        ids.sort_unstable_by(order);
        Self {
            top_logits: ids.iter().map(|&id| at(id)).collect(),
            top_ids: ids,
            logsumexp: log_sum_exp(logits),
        }
    }
}

pub(crate) fn run(global: &GlobalArgs, args: &LogitsArgs) -> Result<()> {
    let model = LoadedModel::new(&loading::load(global)?, global)?;
    let ids = match (&args.input.ids, &args.input.prompt) {
        (Some(ids), _) => ids.clone(),
        (None, Some(prompt)) => prompt::ids(&model.tokenizer()?, prompt, args.special)?,
        (None, None) => bail!("--prompt or --ids is needed"),
    };
    model.require_fit("the text", ids.len())?;
    let mut positions = Vec::with_capacity(ids.len());
    let waiting = Waiting::new(format!("{} tokens", ids.len()));
    let mut session = model.cpu_session(model.context())?;
    session.feed_all(&ids, |_, logits| positions.push(Position::new(logits, args.top)))?;
    drop(waiting);
    if args.json {
        return output::json(&Output { ids, positions });
    }
    let tokenizer = model.tokenizer()?;
    let shown = |id| output::quoted(tokenizer.token_text(id).unwrap_or("?"));
    let mut text = String::new();
    for (i, (&id, position)) in ids.iter().zip(&positions).enumerate() {
        writeln!(text, "{i}: after {id} {} (logsumexp {:.5})", shown(id), position.logsumexp)?;
        for (&id, &logit) in position.top_ids.iter().zip(&position.top_logits) {
            let percent = 100.0 * (f64::from(logit) - position.logsumexp).exp();
            writeln!(text, "  {id:>7}  {logit:>10.5}  {percent:>6.2}%  {}", shown(id))?;
        }
    }
    Ok(output::text(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_is_sorted_with_ties_by_id() {
        let logits = [1.0, 3.0, -2.0, 3.0, 0.0, 3.0];
        let position = Position::new(&logits, 4);
        assert_eq!(position.top_ids, [1, 3, 5, 0]);
        assert_eq!(position.top_logits, [3.0, 3.0, 3.0, 1.0]);
        // ln(3 e^3 + e + 1 + e^-2)
        assert!((position.logsumexp - 4.160_603_912_528).abs() < 1e-9, "{}", position.logsumexp);
        assert_eq!(Position::new(&logits, 99).top_ids, [1, 3, 5, 0, 4, 2]);
        assert!(Position::new(&logits, 0).top_ids.is_empty());
    }
}
