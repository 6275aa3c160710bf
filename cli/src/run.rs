//! `halfbyte run`: continue a text.

use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::embedded;
use anyhow::Result;
use halfbyte::generate::{Event, FinishReason, Generation, Request, generate};
use halfbyte::model::Ranks;
use halfbyte::speculate::Drafts;
use halfbyte_tokenizer::Tokenizer;
use serde::Serialize;

use super::args::{GlobalArgs, RunArgs};
use super::loading::{self, LoadedModel};
use super::output::{self, escaped, note};
use super::progress::Waiting;
use super::prompt;
use super::ranks::agreed;
use super::sampling;
use super::signals::{self, Work};
use super::speculation;

/// The prompt of models other than the embedded one, if none is given.
const PROMPT: &str = "Once upon a time";

#[derive(Serialize)]
struct Output<'a> {
    prompt_ids: &'a [u32],
    ids: &'a [u32],
    text: &'a str,
    /// `null` if nothing was fed.
    prompt_tokens_per_second: Option<f64>,
    decode_tokens_per_second: Option<f64>,
    /// Tokens guessed, and those of them that were right; only with `--speculate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    drafted: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted: Option<usize>,
}

/// Returns the prompt to use if none is given.
fn default_prompt(global: &GlobalArgs) -> &'static str {
    if global.model.is_some() { PROMPT } else { embedded::PROMPT }
}

/// `halfbyte run --show-prompt`.
pub(crate) fn show_prompt(global: &GlobalArgs, args: &RunArgs) -> Result<()> {
    let gguf = loading::open(global.model.as_deref())?;
    let tokenizer = loading::tokenizer(global, &gguf)?;
    let text = prompt::read(&args.prompt)?.unwrap_or_else(|| default_prompt(global).to_owned());
    prompt::show(&text, &prompt::ids(&tokenizer, &text, args.special)?, args.json)
}

pub(crate) fn run(global: &GlobalArgs, args: &RunArgs, ranks: Option<Arc<dyn Ranks>>) -> Result<()> {
    let gguf = agreed(ranks.as_ref(), loading::load(global), |_| "")?;
    let loaded = LoadedModel::with_tokenizer(&gguf, global, ranks.clone());
    let (model, tokenizer) = agreed(ranks.as_ref(), loaded, |(model, _)| model.engine.mark())?;
    let prompt = prompt::read(&args.prompt)?.unwrap_or_else(|| default_prompt(global).to_owned());
    let ids = prompt::ids(&tokenizer, &prompt, args.special)?;
    model.require_fit("the prompt", ids.len())?;
    let sampler = sampling::sampler(&args.sampling)?;
    let drafting = speculation::drafting(global, &args.speculation, &tokenizer)?;
    let mut cache = model.engine.cached_session_with(&drafting)?;
    signals::stop_work(false)?;
    let work = Work::new();
    let mut request = Request { max_tokens: args.n, ..Request::new(ids, sampler) };
    let mut reading = Some(Waiting::for_prompt(request.prompt.len()));
    let reply = generate(&mut cache, &tokenizer, &mut request, |event| {
        match event {
            Event::Prompt { done, total } if done == total => {
                reading = None;
                // On a terminal the prompt and its continuation read as one text; in a pipe only the latter is there.
                if !args.json {
                    echo_prompt(&prompt);
                }
            }
            Event::Prompt { done, .. } => reading.iter().for_each(|reading| reading.show(*done)),
            Event::Text(text) if !args.json => output::reply(text)?,
            _ => {}
        }
        Ok(if work.is_stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    // It is still shown if the prompt was stopped.
    drop(reading);
    if let Some(signal) = work.stopped_by() {
        signals::end_by(signal);
    }
    drop(work);
    if args.json {
        return output::json(&Output {
            prompt_ids: &request.prompt,
            ids: &reply.ids,
            text: &reply.text,
            prompt_tokens_per_second: reply.prompt.per_second(),
            decode_tokens_per_second: reply.decode.per_second(),
            drafted: cache.drafts().map(|drafts| drafts.drafted),
            accepted: cache.drafts().map(|drafts| drafts.accepted),
        });
    }
    output::text("\n")?;
    report(&model, &tokenizer, &reply, cache.drafts(), &sampling::summary(&request.sampler, &model));
    Ok(())
}

/// Shows the prompt on stderr, in front of its continuation.
fn echo_prompt(prompt: &str) {
    let mut stderr = io::stderr().lock();
    let _ = write!(stderr, "{}", escaped(prompt));
    if !(io::stdout().is_terminal() && io::stderr().is_terminal()) {
        let _ = writeln!(stderr);
    }
}

/// Prints the rates, the model, the device and the sampler, and why the reply ended unless it has all its tokens.
fn report(
    model: &LoadedModel,
    tokenizer: &Tokenizer,
    reply: &Generation,
    drafts: Option<Drafts>,
    sampler: &str,
) {
    let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), |r| format!("{r:.1}"));
    note!();
    note!("prompt  {:>5} tokens  {:>8} tokens/s", reply.prompt.tokens, rate(reply.prompt.per_second()));
    note!("decode  {:>5} tokens  {:>8} tokens/s", reply.decode.tokens, rate(reply.decode.per_second()));
    speculation::report(drafts);
    note!("model   {}", model.name);
    note!("on      {}", model.summary());
    note!("sampler {sampler}");
    match (reply.reason, reply.ids.last()) {
        (FinishReason::ContextFull, _) => {
            note!("stopped: the context of {} tokens is full; {}", model.context(), model.context_advice());
        }
        (FinishReason::Cancelled, _) => note!("stopped: by a signal"),
        (FinishReason::EndOfGeneration, Some(&id)) => {
            note!("stopped: the model ended the text with {}", tokenizer.token_text(id).unwrap_or("a token"));
        }
        _ => {}
    }
}
