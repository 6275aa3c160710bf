//! A scheduler on a thread of its own, and replies as channels.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::Model;

use super::{CachedSession, Event, Finish, GenerateError, Listener, Request, Scheduler};
use halfbyte_tokenizer::Tokenizer;

/// Submits requests to a [`Scheduler`] that runs on a thread of its own. A clone submits to the same one.
///
/// Any number of threads can submit. The scheduler's thread ends when the last handle is gone and the last reply has
/// ended.
///
/// ```no_run
/// use halfbyte::Model;
/// use halfbyte::generate::{Event, Request};
/// use halfbyte::sampler::{Sampler, SamplerConfig};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = Model::load("model.gguf")?;
/// let scheduler = model.scheduler(4)?; // makes up to four replies at once
/// let prompt = model.tokenizer().encode_prompt("Once upon a time", halfbyte_tokenizer::Special::Off)?;
/// let request = Request { max_tokens: 50, ..Request::new(prompt, Sampler::new(SamplerConfig::default())?) };
/// for event in scheduler.submit(request) {
///     if let Event::Text(text) = event {
///         print!("{text}");
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct SchedulerHandle {
    requests: Sender<(Request, Channel)>,
}

impl Model {
    /// Starts a scheduler that makes up to `slots` replies at once, each in a context of its own.
    ///
    /// # Errors
    /// [`GenerateError::NoSlots`], [`GenerateError::Thread`]; [`GenerateError::Model`] as of [`Self::cached_session`].
    pub fn scheduler(&self, slots: usize) -> Result<SchedulerHandle, GenerateError> {
        let sessions = (0..slots).map(|_| self.cached_session());
        SchedulerHandle::spawn(sessions.collect::<Result<_, _>>()?, Arc::clone(self.tokenizer()))
    }
}

impl SchedulerHandle {
    /// Starts the thread, which makes as many replies at once as there are `sessions`. These are of one model with one
    /// kind of options, and `tokenizer` is the model's.
    ///
    /// # Errors
    /// [`GenerateError::NoSlots`], [`GenerateError::Thread`].
    pub fn spawn(
        sessions: Vec<CachedSession>,
        tokenizer: impl Into<Arc<Tokenizer>>,
    ) -> Result<Self, GenerateError> {
        if sessions.is_empty() {
            return Err(GenerateError::NoSlots);
        }
        let (sender, requests) = channel();
        let tokenizer = tokenizer.into();
        let run = move || {
            if let Ok(scheduler) = Scheduler::new(sessions, &tokenizer) {
                scheduler.run(&requests, || ());
            }
        };
        let thread = thread::Builder::new().name("halfbyte-scheduler".to_owned());
        thread.spawn(run).map_err(GenerateError::Thread)?;
        Ok(Self { requests: sender })
    }

    /// Puts a request at the end of the queue, and returns the reply's events as they come.
    pub fn submit(&self, request: Request) -> ReplyEvents {
        let (sender, events) = channel();
        let wanted = Arc::new(AtomicBool::new(true));
        let listener = Channel { events: sender, wanted: Arc::clone(&wanted) };
        // If the thread has ended, so have the events.
        let _ = self.requests.send((request, listener));
        ReplyEvents { events, wanted }
    }
}

/// The events of one reply, up to [`Event::Done`] or [`Event::Failed`]. Dropping it ends the reply.
#[derive(Debug)]
pub struct ReplyEvents {
    events: Receiver<Event>,
    wanted: Arc<AtomicBool>,
}

impl ReplyEvents {
    /// Waits for the end of the reply, and returns its text.
    ///
    /// # Errors
    /// What [`Event::Failed`] has; [`GenerateError::NoScheduler`].
    pub fn text(self) -> Result<(String, Finish), Arc<GenerateError>> {
        let mut text = String::new();
        for event in self {
            match event {
                Event::Text(more) => text += &more,
                Event::Done(finish) => return Ok((text, finish)),
                Event::Failed(error) => return Err(error),
                Event::Prompt { .. } | Event::Token(_) => {}
            }
        }
        Err(Arc::new(GenerateError::NoScheduler))
    }
}

impl Iterator for ReplyEvents {
    type Item = Event;

    /// Waits for the next event. `None` comes after the last, or if the scheduler's thread has panicked.
    fn next(&mut self) -> Option<Event> {
        self.events.recv().ok()
    }
}

impl Drop for ReplyEvents {
    fn drop(&mut self) {
        // A flag alone, nothing is published with it.
        self.wanted.store(false, Ordering::Relaxed);
    }
}

/// The scheduler's end of [`ReplyEvents`].
#[derive(Debug)]
struct Channel {
    events: Sender<Event>,
    wanted: Arc<AtomicBool>,
}

impl Listener for Channel {
    fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    fn event(&mut self, event: Event) -> ControlFlow<()> {
        match self.events.send(event) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}
