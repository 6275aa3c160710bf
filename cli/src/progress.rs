//! Shows the progress of work on a terminal.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::output::escaped;
use super::signals::{self, Work};

/// Work that takes less than this shows no bar: it would be gone before anyone could read it.
const BAR_AFTER: Duration = Duration::from_secs(1);

/// A bar that shows how much is done and the time left, on a terminal, once the work has taken a second. While this value
/// lives, a signal stops the work.
pub(crate) struct Progress {
    bar: ProgressBar,
    start: Instant,
    visible: bool,
    work: Work,
}

impl Progress {
    /// A bar for `weights` weights.
    pub(crate) fn new(weights: usize) -> Result<Self> {
        Self::of(weights, "weights")
    }

    /// A bar for `n` items that are called `what`.
    pub(crate) fn of(n: usize, what: &str) -> Result<Self> {
        Self::with_template(n, &format!("{{bar:20}} {{percent}}% of {{len}} {what}, {{eta}} left"))
    }

    /// A bar for the bytes of a file that is fetched.
    #[cfg(feature = "hub")]
    pub(crate) fn of_file(bytes: usize, name: &str) -> Result<Self> {
        // Braces in the name are no placeholders.
        let name = escaped(name).replace('{', "{{").replace('}', "}}");
        Self::with_template(
            bytes,
            &format!("{name}: {{bar:20}} {{bytes}} of {{total_bytes}}, {{bytes_per_sec}}, {{eta}} left"),
        )
    }

    fn with_template(n: usize, template: &str) -> Result<Self> {
        signals::stop_work(false)?;
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(Some(n as u64), ProgressDrawTarget::hidden());
        Ok(Self { bar: bar.with_style(style), start: Instant::now(), visible: false, work: Work::new() })
    }

    /// Shows that `done` items are done, and returns whether to go on.
    pub(crate) fn show(&mut self, done: usize) -> ControlFlow<()> {
        if !self.visible && self.start.elapsed() >= BAR_AFTER && io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.visible = true;
        }
        self.bar.set_position(done as u64);
        if self.work.is_stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// The time since this value was made.
    pub(crate) fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A line that says what is under way, on a terminal, once it has taken a second. Dropping this value removes the line.
pub(crate) struct Waiting {
    bar: ProgressBar,
    /// Dropped to end the thread.
    done: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Waiting {
    /// Shows `what` and the time that it has taken so far, for work whose progress is unknown.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self::with_template("{spinner} {msg}, {elapsed}", None, escaped(&what.into()).into_owned())
    }

    /// Shows how many of the `tokens` tokens of a prompt have been read.
    pub(crate) fn for_prompt(tokens: usize) -> Self {
        let what = "tokens of the prompt read".to_owned();
        Self::with_template("{spinner} {pos} of {len} {msg}, {elapsed}", Some(tokens as u64), what)
    }

    fn with_template(template: &str, len: Option<u64>, what: String) -> Self {
        let bar = ProgressBar::with_draw_target(len, ProgressDrawTarget::hidden()).with_message(what);
        if !io::stderr().is_terminal() {
            return Self { bar, done: None, thread: None };
        }
        bar.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        let (shown, (done, wait)) = (bar.clone(), mpsc::channel::<()>());
        let thread = std::thread::Builder::new().spawn(move || {
            if wait.recv_timeout(BAR_AFTER) == Err(RecvTimeoutError::Timeout) {
                shown.set_draw_target(ProgressDrawTarget::stderr());
                shown.enable_steady_tick(Duration::from_millis(100));
                let _ended = wait.recv();
                shown.finish_and_clear();
            }
        });
        // If the thread can't be started, nothing is shown.
        Self { bar, done: Some(done), thread: thread.ok() }
    }

    /// Shows that `done` tokens are done.
    pub(crate) fn show(&self, done: usize) {
        self.bar.set_position(done as u64);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}
