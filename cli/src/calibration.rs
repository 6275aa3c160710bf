//! Calibration by a text or an imatrix, for `halfbyte quantize` and `halfbyte imatrix`.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use halfbyte::calibrate::{self, Checkpoint, Recipe};
use halfbyte::model::{Compute, Transformer};
use halfbyte::requantize::{Method, Plan};
use halfbyte::source::ModelFile;
use halfbyte_gguf::AtomicFile;
use halfbyte_gguf::imatrix::Imatrix;
use halfbyte_q4::gptq::{Options, Order};
use halfbyte_tokenizer::{Special, Tokenizer, TokenizerSpec};

use super::args::{GlobalArgs, QuantizeArgs};
use super::progress::Progress;

/// Tokens in a window without `--ctx`, if the model's context is as long.
const DEFAULT_CONTEXT: usize = 512;

/// A text for a model: consecutive windows of tokens.
pub(crate) struct Text {
    pub(crate) windows: Vec<Vec<u32>>,
    name: String,
}

impl Text {
    /// Reads at most `limit` tokens of the text at `path`, in windows of `context`; what is left over from the last whole
    /// window is dropped, unless it is all there is. A model that wants its first token gets it in place of a window's
    /// first.
    pub(crate) fn read(path: &Path, tokenizer: &Tokenizer, context: usize, limit: usize) -> Result<Self> {
        let name = path.display();
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
        let text = std::str::from_utf8(&bytes).with_context(|| format!("{name} is not UTF-8"))?;
        let mut ids = tokenizer.encode_prompt(text, Special::Off)?;
        ids.truncate(limit);
        if ids.is_empty() {
            bail!("{name} is empty: expected a text to calibrate on");
        }
        if ids.len() > context {
            ids.truncate(ids.len() / context * context);
        }
        let mut windows: Vec<Vec<u32>> = ids.chunks(context).map(<[u32]>::to_vec).collect();
        if let Some(bos) = tokenizer.bos_id().filter(|_| tokenizer.add_bos()) {
            windows.iter_mut().for_each(|window| window[0] = bos);
        }
        Ok(Self { windows, name: name.to_string() })
    }

    /// An imatrix for this text, with nothing in it yet.
    pub(crate) fn imatrix(&self) -> Result<Imatrix> {
        let longest = self.windows.iter().map(Vec::len).max().unwrap_or(0);
        let chunk = u32::try_from(longest).ok().and_then(NonZeroU32::new);
        let mut imatrix = Imatrix::new(chunk.context("expected windows of at least one token")?);
        imatrix.add_dataset(&self.name);
        Ok(imatrix)
    }
}

/// Tokens in a window for `model`.
pub(crate) fn window_length(global: &GlobalArgs, model: &Transformer) -> Result<usize> {
    let trained = model.description().context;
    let context = global.ctx.unwrap_or(DEFAULT_CONTEXT.min(trained));
    if context > trained {
        bail!("--ctx {context}: the model was trained for {trained} tokens");
    }
    Ok(context)
}

/// A text, and the model that reads it.
struct Subject {
    model: Transformer,
    text: Text,
}

/// The calibration data of `halfbyte quantize`.
pub(crate) struct Calibration<'a> {
    args: &'a QuantizeArgs,
    compute: Compute,
    subject: Option<Subject>,
}

impl<'a> Calibration<'a> {
    pub(crate) fn new(
        global: &GlobalArgs,
        args: &'a QuantizeArgs,
        compute: &Compute,
        source: &Arc<ModelFile>,
    ) -> Result<Self> {
        let mut subject = None;
        if let Some(path) = &args.calibrate {
            let name = || args.input.display().to_string();
            let model = Transformer::new(Arc::clone(source)).with_context(name)?;
            let spec = TokenizerSpec::from_metadata(source.metadata());
            let tokenizer = spec.and_then(|spec| Tokenizer::new(&spec)).with_context(name)?;
            let context = window_length(global, &model)?;
            let text = Text::read(path, &tokenizer, context, args.calibrate_tokens)?;
            subject = Some(Subject { model, text });
        }
        Ok(Self { args, compute: compute.clone(), subject })
    }

    /// Gives `plan` the importance of columns, if an imatrix or a text was given. Returns warnings.
    pub(crate) fn weigh(
        &self,
        plan: &mut Plan<'_>,
        method: Option<Method>,
        progress: &mut Progress,
    ) -> Result<Vec<String>> {
        let imatrix = match (&self.args.imatrix, &self.subject) {
            (Some(path), _) => Imatrix::open(path).with_context(|| path.display().to_string())?,
            (None, Some(Subject { model, text })) if method != Some(Method::Gptq) => {
                let mut imatrix = text.imatrix()?;
                let share = |done| plan.n_weights() * done / text.windows.len();
                let made = calibrate::importance(&self.compute, model, &text.windows, &mut imatrix, |done| {
                    progress.show(share(done))
                });
                if let Err(calibrate::Error::Stopped) = made {
                    bail!("stopped; {} is as it was", self.args.output.display());
                }
                made?;
                imatrix
            }
            _ => return Ok(Vec::new()),
        };
        let unknown =
            plan.weigh(|name, columns| Ok::<_, anyhow::Error>(imatrix.importance(name, columns)?))?;
        let few = unknown.iter().take(3).map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
        let others = if unknown.len() > 3 { ", ..." } else { "" };
        let warning = || {
            let n = unknown.len();
            format!("no importance is known for {n} tensors, whose columns count alike: {few}{others}")
        };
        Ok((!unknown.is_empty()).then(warning).into_iter().collect())
    }

    /// The file that keeps finished tensors until all are finished.
    fn checkpoint_path(&self) -> PathBuf {
        let mut path = self.args.output.clone().into_os_string();
        path.push(".partial");
        path.into()
    }

    /// Rounds the tensors of `plan` with error compensation, from where an earlier run stopped.
    pub(crate) fn round(
        &self,
        plan: &Plan<'_>,
        progress: &mut Progress,
        warnings: &mut Vec<String>,
    ) -> Result<Checkpoint> {
        let Some(Subject { model, text }) = &self.subject else { bail!("expected --calibrate TEXT") };
        let order = if self.args.natural_order { Order::Natural } else { Order::Activation };
        let recipe = Recipe {
            options: Options { damping: self.args.damping, order },
            scales_by_importance: self.args.imatrix.is_some(),
        };
        let path = self.checkpoint_path();
        AtomicFile::check(&path)?;
        let fingerprint = calibrate::fingerprint(plan, &text.windows, recipe);
        let mut checkpoint = Checkpoint::open(&path, fingerprint)?;
        let made = calibrate::quantize(
            &self.compute,
            model,
            plan,
            &text.windows,
            recipe,
            &mut checkpoint,
            &mut |p| progress.show(p.weights),
        );
        let report = match made {
            Ok(report) => report,
            Err(calibrate::Error::Stopped) => bail!(
                "stopped; {} is as it was, and {} keeps {} tensors: the same command goes on from there",
                self.args.output.display(),
                path.display(),
                checkpoint.len()
            ),
            Err(error) => return Err(error.into()),
        };
        warnings.extend(
            report
                .damped
                .into_iter()
                .map(|(tensors, damping)| format!("{tensors}: second moments needed a damping of {damping}")),
        );
        warnings.extend(
            report
                .unused
                .into_iter()
                .map(|tensors| format!("{tensors}: all inputs were 0, rounded without calibration")),
        );
        Ok(checkpoint)
    }
}
