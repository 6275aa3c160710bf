//! `halfbyte perplexity`: how well a model predicts a text.

use anyhow::Result;
use halfbyte::evaluate::{self, Mean};
use halfbyte_tokenizer::Special;
use serde::Serialize;

use super::args::{GlobalArgs, PerplexityArgs};
use super::evaluation::{self, Coverage, Estimate, Passage};
use super::loading::{self, LoadedModel};
use super::output;
use super::types::Types;

#[derive(Serialize)]
struct Output<'a> {
    model: &'a str,
    #[serde(flatten)]
    types: Types,
    context: usize,
    /// `null` for llama.cpp's rule.
    stride: Option<usize>,
    #[serde(flatten)]
    coverage: Coverage,
    /// Scored tokens.
    tokens: u64,
    /// Bytes of the scored tokens.
    bytes: usize,
    /// Nats per scored token.
    loss: f64,
    loss_stderr: Option<f64>,
    /// `null` if the scored tokens have no text.
    nats_per_byte: Option<f64>,
    perplexity: f64,
    perplexity_stderr: Option<f64>,
}

pub(crate) fn run(global: &GlobalArgs, args: &PerplexityArgs) -> Result<()> {
    let model = LoadedModel::new(&loading::load(global)?, global)?;
    let windows = evaluation::windows(&model, global, &args.evaluation)?;
    let options = model.engine.options().with_context(windows.context());
    let mut session = model.engine.sequence_with(model.engine.compute(), options)?;
    let tokenizer = model.tokenizer()?;
    let passage = Passage::read(&args.evaluation, &tokenizer, &windows)?;

    let (mut loss, mut bytes) = (Mean::default(), 0);
    let coverage = passage.score(
        |ids, first_scored, go_on| evaluate::losses(&mut *session, ids, first_scored, go_on),
        |losses, scored| {
            loss.extend(losses);
            for &id in scored {
                bytes += tokenizer.piece_bytes(id, Special::Off)?.len();
            }
            Ok(format!("perplexity {:.4}", loss.exp()))
        },
    )?;

    let (mean, perplexity) = (Estimate::mean(&loss), Estimate::perplexity(&loss));
    let output = Output {
        model: &model.name,
        types: Types::new(options),
        context: windows.context(),
        stride: args.evaluation.stride,
        coverage,
        tokens: loss.count(),
        bytes,
        loss: mean.value,
        loss_stderr: mean.stderr,
        nats_per_byte: (bytes > 0).then(|| loss.sum() / bytes as f64),
        perplexity: perplexity.value,
        perplexity_stderr: perplexity.stderr,
    };
    if args.evaluation.json {
        output::json(&output)?;
    } else {
        let per_byte = output.nats_per_byte.map_or_else(|| "-".to_owned(), |v| format!("{v:.5}"));
        output::text(&format!(
            "text        {} tokens, {} of {}, {} tokens scored\n\
             loss        {} nats/token, {per_byte} nats/byte\n\
             perplexity  {}\n\
             speed       {:.1} tokens/s\n\
             on          {}, {}\n",
            coverage.text_tokens,
            coverage.windows_text(),
            output.context,
            output.tokens,
            mean.text(5),
            perplexity.text(4),
            coverage.tokens_per_second,
            model.name,
            model.summary(),
        ))?;
    }
    coverage.require_complete()
}
