//! The scheduler's listener for a client: it sends events to the client's channel and counts them.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;

use super::admission::Place;
use super::metrics::Metrics;
use halfbyte::generate::{Event, FinishReason, Listener};

/// The client of one reply.
#[derive(Debug)]
pub(crate) struct Client {
    /// Closed when the client has disconnected.
    events: UnboundedSender<Event>,
    metrics: Arc<Metrics>,
    queued: Instant,
    /// Freed with the end of the reply.
    place: Option<Place>,
    /// Tokens of the prompt in the context, once the reply has a slot.
    prompt_tokens: Option<usize>,
    has_token: bool,
}

impl Client {
    /// Counts a request as queued. `events`: where the reply's text and its end go.
    pub(crate) fn new(events: UnboundedSender<Event>, metrics: Arc<Metrics>, place: Place) -> Self {
        metrics.queued.inc();
        let (queued, place) = (Instant::now(), Some(place));
        Self { events, metrics, queued, place, prompt_tokens: None, has_token: false }
    }

    /// The reply has ended, and its slot and its place are free.
    fn end(&mut self, outcome: &Event) {
        let metrics = &self.metrics;
        match self.prompt_tokens {
            Some(_) => metrics.busy.dec(),
            None => metrics.queued.dec(),
        }
        match outcome {
            Event::Done(finish) if finish.reason == FinishReason::Cancelled => metrics.cancelled.inc(),
            Event::Done(_) => metrics.completed.inc(),
            _ => metrics.failed.inc(),
        }
        // The place is freed before the client is told, so that its next request finds it.
        self.place = None;
    }
}

impl Listener for Client {
    fn is_wanted(&self) -> bool {
        !self.events.is_closed()
    }

    fn started(&mut self, reused_tokens: usize) {
        self.metrics.queued.dec();
        self.metrics.busy.inc();
        self.metrics.reused_tokens.inc_by(reused_tokens as u64);
        self.prompt_tokens = Some(reused_tokens);
    }

    fn event(&mut self, event: Event) -> ControlFlow<()> {
        match &event {
            Event::Prompt { done, .. } => {
                let before = self.prompt_tokens.replace(*done).unwrap_or(0);
                self.metrics.prompt_tokens.inc_by((done - before) as u64);
                return ControlFlow::Continue(());
            }
            Event::Token(_) => {
                if !std::mem::replace(&mut self.has_token, true) {
                    self.metrics.first_token.observe(self.queued.elapsed().as_secs_f64());
                }
                self.metrics.reply_tokens.inc();
                return ControlFlow::Continue(());
            }
            Event::Done(_) | Event::Failed(_) => self.end(&event),
            _ => {}
        }
        // If the client has disconnected, the scheduler ends the reply before its next pass.
        let _ = self.events.send(event);
        ControlFlow::Continue(())
    }
}
