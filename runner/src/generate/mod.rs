//! From logits to text: prompts in, replies out.
//!
//! ```text
//! prompt -> common prefix with the context kept -> the rest fed in parts -> logits
//!        -> sampler -> token -> whole characters -> stop strings -> events
//!               ^-- fed, with a draft --'
//! ```
//!
//! All replies are made by the same code, in forward passes that several replies share ([`Scheduler`]). [`generate`] makes
//! one reply on the calling thread; [`SchedulerHandle`] makes several at once on a thread of its own, for any number of
//! threads that submit requests.
//! With [`Speculation`](crate::speculate::Speculation), more than one token may be fed at a time; the reply is the same.

mod cache;
mod handle;
mod pass;
mod reply;
mod request;
mod scheduler;
mod stops;

pub use cache::CachedSession;
pub use handle::{ReplyEvents, SchedulerHandle};
pub use request::{Beginning, Event, Finish, FinishReason, Listener, Request, Usage};
pub use scheduler::Scheduler;
pub use stops::{Passed, StopStrings};

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::model::{self, Batch};
use crate::sampler::SamplerError;
use halfbyte_tokenizer::{Tokenizer, TokenizerError};
use pass::{Entry, pass};
use reply::Reply;

/// Why a reply could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// The prompt does not fit in the context. Nothing was fed.
    #[error("the prompt is {prompt} tokens long, the context holds {context}")]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens that the context holds.
        context: usize,
    },
    /// The forward pass refused its tokens.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// A token has no text.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// No token could be chosen.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// The callback failed, which for a program means that its output did.
    #[error("cannot write the reply")]
    Output(#[from] io::Error),
    /// A scheduler was given no sessions.
    #[error("no slots: expected at least one session to make replies in")]
    NoSlots,
    /// The system starts no thread for the scheduler.
    #[error("cannot start the scheduler's thread")]
    Thread(#[source] io::Error),
    /// The scheduler's thread has ended before the reply did, which only a bug can cause.
    #[error("the scheduler has ended before the reply")]
    NoScheduler,
}

/// Forward passes and the time they took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Tokens fed.
    pub tokens: usize,
    /// Wall time, with sampling and output where there was any.
    pub time: Duration,
}

impl Rate {
    /// Tokens a second; `None` if no token was fed.
    pub fn per_second(&self) -> Option<f64> {
        let seconds = self.time.as_secs_f64();
        (self.tokens > 0 && seconds > 0.0).then(|| self.tokens as f64 / seconds)
    }
}

/// A reply.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The tokens chosen, the one that ended the reply included.
    pub ids: Vec<u32>,
    /// Their text in whole characters, up to a stop string; control tokens have none.
    pub text: String,
    /// Why it ended.
    pub reason: FinishReason,
    /// The prompt's tokens that were fed (not those reused), until the first token was chosen.
    pub prompt: Rate,
    /// The reply's tokens that were fed: all but the last.
    pub decode: Rate,
}

/// Makes a reply to `request`, telling `watch` of every [`Event`] but the last, which is what this returns.
///
/// Tokens of `cache` that the prompt shares from the start are reused. Afterwards the context holds the prompt and
/// the reply but its last token, or less of them after an error or where `watch` has ended the reply, which it can between
/// any two events. The request's sampler has drawn the reply's random numbers.
///
/// # Errors
/// [`GenerateError::PromptTooLong`] before anything is fed, [`model::Error::NoTokens`] for an empty prompt,
/// [`model::Error::Token`] for one with ids out of range, and whatever model, sampler, tokenizer and `watch` find.
pub fn generate(
    cache: &mut CachedSession,
    tokenizer: &Tokenizer,
    request: &mut Request,
    watch: impl FnMut(&Event) -> io::Result<ControlFlow<()>>,
) -> Result<Generation, GenerateError> {
    let mut reply = Reply::begin(cache, tokenizer, request)?;
    let start = Instant::now();
    let rates = (Rate::default(), Rate::default());
    let mut watcher = Watcher { watch, text: String::new(), reused: reply.reused, start, rates, error: None };
    let mut batch = Batch::default();
    let reason = loop {
        pass(&mut batch, &mut [Entry { cache, request, reply: &mut reply, listener: &mut watcher }])?;
        watcher.passed(cache.ids.len().saturating_sub(request.prompt.len()));
        if let Some(error) = watcher.error {
            return Err(error.into());
        }
        if let Some(end) = reply.end.take() {
            break end?;
        }
    };
    let Watcher { text, rates: (prompt, decode), .. } = watcher;
    Ok(Generation { ids: reply.ids, text, reason, prompt, decode })
}

/// Tells the callback of [`generate`], and takes the time.
struct Watcher<W> {
    watch: W,
    text: String,
    reused: usize,
    /// When the prompt began to be fed; once it is fed, when the reply began.
    start: Instant,
    /// Of the prompt and of the reply.
    rates: (Rate, Rate),
    error: Option<io::Error>,
}

impl<W> Watcher<W> {
    /// After a forward pass, so many tokens of the reply have been fed.
    fn passed(&mut self, tokens: usize) {
        if tokens > 0 {
            self.rates.1 = Rate { tokens, time: self.start.elapsed() };
        }
    }
}

impl<W: FnMut(&Event) -> io::Result<ControlFlow<()>>> Listener for Watcher<W> {
    fn event(&mut self, event: Event) -> ControlFlow<()> {
        if self.error.is_some() {
            return ControlFlow::Break(());
        }
        if let Event::Prompt { done, total } = event {
            self.rates.0 = Rate { tokens: done - self.reused, time: self.start.elapsed() };
            if done == total {
                self.start = Instant::now();
            }
        }
        if let Event::Text(text) = &event {
            self.text += text;
        }
        (self.watch)(&event).unwrap_or_else(|error| {
            self.error = Some(error);
            ControlFlow::Break(())
        })
    }
}
