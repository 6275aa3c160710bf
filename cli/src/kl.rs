//! `halfbyte kl`: how far a model's predictions are from another's.

use anyhow::{Context as _, Result, bail};
use halfbyte::SequenceOptions;
use halfbyte::evaluate::{self, Mean, quantile};
use halfbyte_tokenizer::Tokenizer;
use serde::Serialize;

use super::args::{ActivationsArg, DeviceArg, GlobalArgs, KlArgs};
use super::evaluation::{self, Coverage, Estimate, Passage};
use super::loading::{self, LoadedModel};
use super::output;
use super::types::Types;

#[derive(Serialize)]
struct Output<'a> {
    base: Side<'a>,
    model: Side<'a>,
    context: usize,
    /// `null` for llama.cpp's rule.
    stride: Option<usize>,
    #[serde(flatten)]
    coverage: Coverage,
    /// Scored tokens.
    tokens: u64,
    /// Nats per scored token.
    kl: Divergence,
    /// The model's loss less the base's, token by token.
    loss_difference: Estimate,
    /// Percent of the scored tokens before which both models find the same token the likeliest.
    same_top_percent: f64,
}

#[derive(Serialize)]
struct Side<'a> {
    name: &'a str,
    #[serde(flatten)]
    types: Types,
    loss: f64,
    loss_stderr: Option<f64>,
    perplexity: f64,
    perplexity_stderr: Option<f64>,
}

#[derive(Serialize)]
struct Divergence {
    mean: f64,
    stderr: Option<f64>,
    median: Option<f64>,
    p90: Option<f64>,
    p99: Option<f64>,
    max: Option<f64>,
}

impl<'a> Side<'a> {
    fn new(name: &'a str, options: SequenceOptions, loss: &Mean) -> Self {
        Self {
            name,
            types: Types::new(options),
            loss: loss.mean(),
            loss_stderr: loss.standard_error(),
            perplexity: loss.exp(),
            perplexity_stderr: loss.exp_standard_error(),
        }
    }

    /// The name and the types, for people.
    fn text(&self) -> String {
        format!("{}, {}", self.name, self.types)
    }
}

impl Divergence {
    /// Summarizes all `values`, whose mean is `mean`.
    fn new(mean: &Mean, mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let [median, p90, p99, max] = [0.5, 0.9, 0.99, 1.0].map(|share| quantile(&values, share));
        Self { mean: mean.mean(), stderr: mean.standard_error(), median, p90, p99, max }
    }
}

pub(crate) fn run(global: &GlobalArgs, args: &KlArgs) -> Result<()> {
    let on_cpu = global.device == DeviceArg::Cpu;
    let base_global = GlobalArgs {
        model: args.base.clone().or_else(|| global.model.clone()),
        activations: on_cpu.then(|| args.base_activations.unwrap_or(ActivationsArg::F32)),
        kv_cache: args.base_kv_cache,
        prompt_precision: args.base_prompt_precision,
        // What the weights lose by it is what the comparison is for.
        load_as: None,
        ..global.clone()
    };
    // Weights on a device are all the same to both sides; those of the CPU are packed, or not, for their activations.
    let shared = !on_cpu && args.base.is_none() && global.load_as.is_none();
    let base_file = (!shared).then(|| loading::load(&base_global)).transpose()?;
    let file = loading::load(global)?;
    let own = base_file.as_ref().map(|file| LoadedModel::new(file, &base_global)).transpose()?;
    let model = LoadedModel::new(&file, global)?;
    let base = own.as_ref().unwrap_or(&model);
    let base_options = match &own {
        Some(own) => own.engine.options(),
        None => model.other_options(&base_global).context("base")?,
    };
    let windows = evaluation::windows(&model, global, &args.evaluation)?;
    let options = [base_options, model.engine.options()].map(|o| o.with_context(windows.context()));
    // They take turns, so one pool serves both.
    let mut base_session = base.engine.sequence_with(model.engine.compute(), options[0])?;
    let mut session = model.engine.sequence_with(model.engine.compute(), options[1])?;
    let tokenizer = model.tokenizer()?;
    if let Some(own) = &own {
        require_same_tokens(("base", &own.tokenizer()?), ("model", &tokenizer))?;
    }
    let passage = Passage::read(&args.evaluation, &tokenizer, &windows)?;

    let mut divergences = Vec::new();
    let (mut base_loss, mut loss, mut difference) = (Mean::default(), Mean::default(), Mean::default());
    let (mut kl, mut same_top) = (Mean::default(), 0_u64);
    let coverage = passage.score(
        |ids, first_scored, go_on| {
            evaluate::compare(&mut *base_session, &mut *session, ids, first_scored, go_on)
        },
        |comparisons, _| {
            for c in comparisons {
                divergences.push(c.kl);
                kl.push(c.kl);
                base_loss.push(c.base_loss);
                loss.push(c.loss);
                difference.push(c.loss - c.base_loss);
                same_top += u64::from(c.same_top);
            }
            Ok(format!("mean KL {:.5}", kl.mean()))
        },
    )?;

    let output = Output {
        base: Side::new(&base.name, options[0], &base_loss),
        model: Side::new(&model.name, options[1], &loss),
        context: windows.context(),
        stride: args.evaluation.stride,
        coverage,
        tokens: loss.count(),
        kl: Divergence::new(&kl, divergences),
        loss_difference: Estimate::mean(&difference),
        same_top_percent: 100.0 * same_top as f64 / loss.count() as f64,
    };
    if args.evaluation.json {
        output::json(&output)?;
    } else {
        let perplexities = [Estimate::perplexity(&base_loss), Estimate::perplexity(&loss)];
        output::text(&table(&output, perplexities, &model.summary()))?;
    }
    coverage.require_complete()
}

fn table(output: &Output<'_>, perplexities: [Estimate; 2], machine: &str) -> String {
    let Output { coverage, kl, .. } = output;
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.6}"));
    let mean = Estimate { value: kl.mean, stderr: kl.stderr }.text(6);
    let [base_perplexity, perplexity] = perplexities.map(|p| p.text(4));
    format!(
        "base         {}\n\
         model        {}\n\
         text         {} tokens, {} of {}, {} tokens scored\n\
         perplexity   {base_perplexity} (base), {perplexity} (model)\n\
         loss         {} nats/token from base to model\n\
         KL mean      {mean} nats/token\n\
         KL median    {}\n\
         KL 90%       {}\n\
         KL 99%       {}\n\
         KL max       {}\n\
         same top     {:.3}%\n\
         speed        {:.1} tokens/s\n\
         on           {machine}\n",
        output.base.text(),
        output.model.text(),
        coverage.text_tokens,
        coverage.windows_text(),
        output.context,
        output.tokens,
        output.loss_difference.text(6),
        number(kl.median),
        number(kl.p90),
        number(kl.p99),
        number(kl.max),
        output.same_top_percent,
        coverage.tokens_per_second,
    )
}

/// Refuses two vocabularies that differ, naming the first difference. Each comes with what it is called.
pub(crate) fn require_same_tokens(a: (&str, &Tokenizer), b: (&str, &Tokenizer)) -> Result<()> {
    let (a_tokens, b_tokens) = (a.1.n_vocab(), b.1.n_vocab());
    if a_tokens != b_tokens {
        bail!("the {} has {a_tokens} tokens, the {} {b_tokens}: expected the same vocabulary", a.0, b.0);
    }
    let n = u32::try_from(a_tokens).unwrap_or(u32::MAX);
    if let Some(id) = (0..n).find(|&id| a.1.token_text(id) != b.1.token_text(id)) {
        let shown = |tokenizer: &Tokenizer| output::quoted(tokenizer.token_text(id).unwrap_or("?"));
        bail!(
            "token {id} is {} in the {} and {} in the {}: expected the same vocabulary",
            shown(a.1),
            a.0,
            shown(b.1),
            b.0
        );
    }
    Ok(())
}
