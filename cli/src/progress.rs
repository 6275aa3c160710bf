//! How far work has come, on a terminal.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::output::escaped;
use super::signals::{self, Work};

/// A bar for less than this would be gone before it is read.
const BAR_AFTER: Duration = Duration::from_secs(1);

/// Weights done and the time left, on a terminal, when it takes long. While one lives, a signal stops the work.
pub(crate) struct Progress {
    bar: ProgressBar,
    start: Instant,
    visible: bool,
    work: Work,
}

impl Progress {
    /// For so many weights.
    pub(crate) fn new(weights: usize) -> Result<Self> {
        Self::of(weights, "weights")
    }

    /// For so many of something.
    pub(crate) fn of(n: usize, what: &str) -> Result<Self> {
        Self::with_template(n, &format!("{{bar:20}} {{percent}}% of {{len}} {what}, {{eta}} left"))
    }

    /// For the bytes of a file that is fetched.
    #[cfg(feature = "hub")]
    pub(crate) fn of_file(bytes: usize, name: &str) -> Result<Self> {
        // What would be read as a placeholder is none.
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

    /// Shows that so many are done, and says whether to go on.
    pub(crate) fn show(&mut self, done: usize) -> ControlFlow<()> {
        if !self.visible && self.start.elapsed() >= BAR_AFTER && io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.visible = true;
        }
        self.bar.set_position(done as u64);
        if self.work.is_stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Since it was made.
    pub(crate) fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Says what is under way, on a terminal, when it takes long. It ends when it is dropped.
pub(crate) struct Waiting {
    bar: ProgressBar,
    /// Dropped to end the thread.
    done: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Waiting {
    /// For what nobody knows how far it is.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self::with_template("{spinner} {msg}, {elapsed}", None, escaped(&what.into()).into_owned())
    }

    /// For a prompt of so many tokens, which is fed a part at a time.
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
        // Without a thread nothing is said.
        Self { bar, done: Some(done), thread: thread.ok() }
    }

    /// How far it is.
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
