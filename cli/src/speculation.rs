//! The drafts that the options ask for.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use halfbyte::generate::CachedSession;
use halfbyte::model::{Leader, SessionOptions};
use halfbyte::source::ModelFile;
use halfbyte::speculate::{Drafts, Speculation};
use halfbyte_tokenizer::Tokenizer;

use super::args::{DeviceArg, GlobalArgs, SpeculateArg, SpeculationArgs};
use super::engine::{self, Engine};
use super::kl::require_same_tokens;
use super::output::note;

/// The model that makes drafts, opened; `None` if none is asked for.
pub(crate) fn open_draft_model(args: &SpeculationArgs) -> Result<Option<Arc<ModelFile>>> {
    let Some(path) = &args.draft_model else { return Ok(None) };
    if args.speculate == Some(SpeculateArg::Off) {
        bail!("--draft-model makes drafts, which --speculate off does without: leave one of them out");
    }
    engine::open(Some(path)).context("--draft-model").map(Some)
}

/// That model with the options of the command line, if its vocabulary is `tokenizer`'s.
pub(crate) fn draft_engine(
    gguf: Option<&Arc<ModelFile>>,
    global: &GlobalArgs,
    args: &SpeculationArgs,
    tokenizer: &Tokenizer,
) -> Result<Option<Engine>> {
    let Some(gguf) = gguf else { return Ok(None) };
    if global.device != DeviceArg::Cpu {
        bail!(
            "--draft-model: a model makes drafts on the CPU only; without it they are copied from the context"
        );
    }
    let global = GlobalArgs { model: args.draft_model.clone(), ..global.clone() };
    let draft = Engine::new(gguf, &global).context("--draft-model")?;
    let its = draft.tokenizer(&global).context("--draft-model")?;
    require_same_tokens(("model", tokenizer), ("draft model", &its))?;
    Ok(Some(draft))
}

/// A context on `engine` with the drafts asked for.
pub(crate) fn session(
    engine: &Engine,
    draft: Option<&Engine>,
    args: &SpeculationArgs,
) -> Result<CachedSession> {
    let cache = match (&engine.device, &engine.share) {
        (Some(device), _) => CachedSession::new(device.session(device.options())?),
        (None, Some(share)) => CachedSession::new(Leader::new(engine.session()?, Arc::clone(&share.ranks))),
        (None, None) => CachedSession::new(engine.session()?),
    };
    let fixed = match (args.speculate, draft) {
        (None, None) | (Some(SpeculateArg::Off), _) => return Ok(cache),
        (Some(SpeculateArg::Fixed(n)), _) => Some(n),
        (None | Some(SpeculateArg::Auto), _) => None,
    };
    let speculation = match draft {
        Some(draft) => {
            // Behind the end of a shorter context there are no drafts.
            let context = engine.options.context.min(draft.model.description().context);
            let options = SessionOptions { context, ..draft.options };
            Speculation::by_model(CachedSession::new(draft.session_on(&engine.compute, options)?))
        }
        None => Speculation::copied(),
    };
    Ok(cache.with_speculation(match fixed {
        Some(n) => speculation.with_fixed(n),
        None => speculation,
    }))
}

/// Says what drafts came to, if there were to be any.
pub(crate) fn report(drafts: Option<Drafts>) {
    if let Some(Drafts { windows, drafted, accepted }) = drafts {
        let share = if drafted > 0 { 100.0 * accepted as f64 / drafted as f64 } else { 0.0 };
        note!("drafts  {windows:>5} windows  {drafted} tokens drafted, {accepted} right ({share:.0}%)");
    }
}
