//! The drafts that the options ask for.

use anyhow::{Context as _, Result, bail};
use halfbyte::Drafting;
use halfbyte::speculate::Drafts;
use halfbyte_tokenizer::Tokenizer;

use super::args::{DeviceArg, GlobalArgs, SpeculateArg, SpeculationArgs};
use super::kl::require_same_tokens;
use super::loading::{self, LoadedModel};
use super::output::note;

/// Where drafts come from. A model that makes them is loaded with the options of the command line, and has to have the
/// vocabulary of `tokenizer`.
pub(crate) fn drafting(
    global: &GlobalArgs,
    args: &SpeculationArgs,
    tokenizer: &Tokenizer,
) -> Result<Drafting> {
    let drafting = match (&args.draft_model, args.speculate) {
        (Some(_), Some(SpeculateArg::Off)) => {
            bail!("--draft-model makes drafts, which --speculate off does without: leave one of them out")
        }
        (None, None | Some(SpeculateArg::Off)) => return Ok(Drafting::off()),
        (None, Some(_)) => Drafting::copied(),
        (Some(path), _) => {
            if global.device != DeviceArg::Cpu {
                bail!(
                    "--draft-model: a model makes drafts on the CPU only; without it they are copied from the context"
                );
            }
            let global = GlobalArgs { model: Some(path.clone()), load_as: None, ..global.clone() };
            let draft = draft_model(&global, tokenizer).context("--draft-model")?;
            Drafting::by_model(draft.engine)
        }
    };
    Ok(match args.speculate {
        Some(SpeculateArg::Fixed(n)) => drafting.with_fixed(n),
        _ => drafting,
    })
}

/// The model of `--draft-model`, which has to have the vocabulary of `tokenizer`.
fn draft_model(global: &GlobalArgs, tokenizer: &Tokenizer) -> Result<LoadedModel> {
    let draft = LoadedModel::new(&loading::load(global)?, global)?;
    require_same_tokens(("model", tokenizer), ("draft model", &draft.tokenizer()?))?;
    Ok(draft)
}

/// Prints how many drafted tokens were right, if drafts were asked for.
pub(crate) fn report(drafts: Option<Drafts>) {
    if let Some(Drafts { windows, drafted, accepted }) = drafts {
        let share = if drafted > 0 { 100.0 * accepted as f64 / drafted as f64 } else { 0.0 };
        note!("drafts  {windows:>5} windows  {drafted} tokens drafted, {accepted} right ({share:.0}%)");
    }
}
