//! What `halfbyte perplexity` and `halfbyte kl` share: the text, its windows, and the loop over them.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use halfbyte::evaluate::{self, Mean, Window, Windows};
use halfbyte_tokenizer::{Special, Tokenizer};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::args::{EvaluationArgs, GlobalArgs};
use super::loading::LoadedModel;
use super::signals::{self, Work};

/// Tokens in a window without `--ctx`, if the model's context is as long.
const DEFAULT_CONTEXT: usize = 512;

/// Work that takes less than this shows no bar: it would be gone before anyone could read it.
const BAR_AFTER: Duration = Duration::from_secs(1);

/// The rule that cuts the text into windows, as the options say. It is made before the text is read, so that wrong options
/// are found at once.
pub(crate) fn windows(model: &LoadedModel, global: &GlobalArgs, args: &EvaluationArgs) -> Result<Windows> {
    let trained = model.engine.transformer().description().context;
    let context = global.ctx.unwrap_or(DEFAULT_CONTEXT.min(trained));
    match args.stride {
        Some(stride) => Windows::sliding(context, stride).context("--ctx and --stride"),
        None => Windows::second_half(context).context("--ctx"),
    }
}

/// A text that is cut into windows.
pub(crate) struct Passage {
    ids: Vec<u32>,
    windows: Vec<Window>,
    /// What stands in the place of a window's first token, if the model asks for it.
    bos: Option<u32>,
}

/// How much of the text was scored.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Coverage {
    /// Whether all windows were scored; if not, the figures are of those that were.
    pub(crate) complete: bool,
    pub(crate) windows: usize,
    pub(crate) windows_wanted: usize,
    /// Tokens in the whole text.
    pub(crate) text_tokens: usize,
    /// Tokens fed to the model (to each of two) a second.
    pub(crate) tokens_per_second: f64,
}

impl Coverage {
    /// The windows, in words.
    pub(crate) fn windows_text(&self) -> String {
        if self.complete {
            format!("{} windows", self.windows)
        } else {
            format!("{} of {} windows (stopped)", self.windows, self.windows_wanted)
        }
    }

    /// Returns an error if the work was stopped. It is called after the figures of the finished windows are printed.
    pub(crate) fn require_complete(&self) -> Result<()> {
        if !self.complete {
            bail!("stopped after {} of {} windows", self.windows, self.windows_wanted);
        }
        Ok(())
    }
}

impl Passage {
    /// Reads, tokenizes and cuts the text of the command line.
    pub(crate) fn read(args: &EvaluationArgs, tokenizer: &Tokenizer, windows: &Windows) -> Result<Self> {
        let name = args.text.display();
        let bytes = std::fs::read(&args.text).with_context(|| format!("cannot read {name}"))?;
        let text = std::str::from_utf8(&bytes).with_context(|| format!("{name} is not UTF-8"))?;
        let ids = tokenizer.encode_prompt(text, Special::Off)?;
        let cut = windows.cut(ids.len()).with_context(|| name.to_string())?;
        let windows = cut.take(args.windows.unwrap_or(usize::MAX)).collect();
        let bos = tokenizer.bos_id().filter(|_| tokenizer.add_bos());
        Ok(Self { ids, windows, bos })
    }

    /// Calls `score` with each window's ids, the index of the first scored one and what says whether to go on; then
    /// `done` with the scores and the scored ids. `done` returns what to show beside the bar.
    ///
    /// A signal stops it; the window that was being scored is then left out.
    ///
    /// # Errors
    /// Those of `score`; that it was stopped before the first window was done.
    pub(crate) fn score<T>(
        &self,
        mut score: impl FnMut(&[u32], usize, &dyn Fn() -> ControlFlow<()>) -> Result<Option<T>, evaluate::Error>,
        mut done: impl FnMut(T, &[u32]) -> Result<String>,
    ) -> Result<Coverage> {
        signals::stop_work(false)?;
        let work = Work::new();
        let go_on = || if work.is_stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let mut bar = Bar::new(self.windows.len());
        let start = Instant::now();
        let (mut windows, mut fed) = (0, 0);
        for window in &self.windows {
            let mut ids = self.ids[window.start..window.end].to_vec();
            if let Some(bos) = self.bos {
                ids[0] = bos;
            }
            let Some(scores) = score(&ids, window.first_scored, &go_on)? else { break };
            let message = done(scores, &ids[window.first_scored..])?;
            windows += 1;
            fed += ids.len() - 1;
            bar.show(windows, message);
        }
        if windows == 0 {
            bail!("stopped before the first of {} windows was scored", self.windows.len());
        }
        Ok(Coverage {
            complete: windows == self.windows.len(),
            windows,
            windows_wanted: self.windows.len(),
            text_tokens: self.ids.len(),
            tokens_per_second: fed as f64 / start.elapsed().as_secs_f64(),
        })
    }
}

/// A mean with its standard error, `null` if there is none.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Estimate {
    pub(crate) value: f64,
    pub(crate) stderr: Option<f64>,
}

impl Estimate {
    pub(crate) fn mean(mean: &Mean) -> Self {
        Self { value: mean.mean(), stderr: mean.standard_error() }
    }

    /// The perplexity, of a mean loss.
    pub(crate) fn perplexity(mean: &Mean) -> Self {
        Self { value: mean.exp(), stderr: mean.exp_standard_error() }
    }

    /// For a person: the value and, if it is known, the error.
    pub(crate) fn text(&self, digits: usize) -> String {
        match self.stderr {
            Some(stderr) => format!("{:.digits$} +- {stderr:.digits$}", self.value),
            None => format!("{:.digits$}", self.value),
        }
    }
}

/// A bar that shows the windows done and the time left, on a terminal, once the work has taken a second.
struct Bar {
    bar: ProgressBar,
    start: Instant,
    visible: bool,
}

impl Bar {
    fn new(windows: usize) -> Self {
        let template = "{bar:20} {pos}/{len} windows, {eta} left, {msg}";
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(Some(windows as u64), ProgressDrawTarget::hidden());
        Self { bar: bar.with_style(style), start: Instant::now(), visible: false }
    }

    fn show(&mut self, done: usize, message: String) {
        if !self.visible && self.start.elapsed() >= BAR_AFTER && io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.visible = true;
        }
        self.bar.set_message(message);
        self.bar.set_position(done as u64);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
