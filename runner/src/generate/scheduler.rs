//! Several replies at once: the forward passes of all that are under way are one.
//!
//! ```text
//! queue -> slot (a context of its own) -> prompt in parts -> token -> token -> ... -> the slot is free
//! each pass: a token of every reply that is written, and the next parts of the oldest prompts
//! ```
//!
//! A row's bits do not depend on the rows beside it, so a reply is what it would be alone. A slot keeps its context:
//! a prompt that begins like it is not fed again from the start.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use super::pass::{Entry, pass};
use super::reply::Reply;
use super::{CachedSession, Event, Finish, FinishReason, GenerateError, Listener, Request, Usage};
use crate::model::Batch;
use halfbyte_tokenizer::Tokenizer;

/// Replies under way, those that wait, and slots.
#[derive(Debug)]
pub struct Scheduler<'t, L> {
    slots: Vec<Slot<'t, L>>,
    waiting: VecDeque<(Request, L)>,
    tokenizer: &'t Tokenizer,
    batch: Batch,
    /// Requests that were given a slot so far.
    started: u64,
}

/// A context, and the reply that is made in it.
#[derive(Debug)]
struct Slot<'t, L> {
    cache: CachedSession,
    /// The number of the last request it was given.
    used: u64,
    job: Option<Job<'t, L>>,
}

/// A reply under way.
#[derive(Debug)]
struct Job<'t, L> {
    request: Request,
    reply: Reply<'t>,
    listener: L,
}

impl<'t, L: Listener> Scheduler<'t, L> {
    /// A scheduler that makes as many replies at once as there are `sessions`, which are of one model with one kind of
    /// options.
    ///
    /// # Errors
    /// [`GenerateError::NoSlots`].
    pub fn new(sessions: Vec<CachedSession>, tokenizer: &'t Tokenizer) -> Result<Self, GenerateError> {
        if sessions.is_empty() {
            return Err(GenerateError::NoSlots);
        }
        let slots = sessions.into_iter().map(|cache| Slot { cache, used: 0, job: None }).collect();
        Ok(Self { slots, waiting: VecDeque::new(), tokenizer, batch: Batch::default(), started: 0 })
    }

    /// Puts a request at the end of the queue.
    pub fn submit(&mut self, request: Request, listener: L) {
        self.waiting.push_back((request, listener));
    }

    /// Whether no reply is under way and none waits.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.slots.iter().all(|slot| slot.job.is_none())
    }

    /// Makes replies to what comes from `requests` until its senders are gone and all replies have ended. Calls
    /// `after_pass` after every forward pass.
    pub fn run(mut self, requests: &Receiver<(Request, L)>, mut after_pass: impl FnMut()) {
        loop {
            if self.is_idle() {
                // It has nothing to compute, so it waits for the next request.
                let Ok((request, listener)) = requests.recv() else { return };
                self.submit(request, listener);
            }
            self.waiting.extend(requests.try_iter());
            if self.step() {
                after_pass();
            }
        }
    }

    /// Ends the replies that are not wanted any more, gives free slots to those that wait, and makes one forward pass of
    /// all that are under way. Returns whether there were any.
    pub fn step(&mut self) -> bool {
        self.drop_unwanted();
        self.fill_slots();
        let mut slots: Vec<&mut Slot<'t, L>> =
            self.slots.iter_mut().filter(|slot| slot.job.is_some()).collect();
        // Prompts are fed in the order of their requests.
        slots.sort_by_key(|slot| slot.used);
        let mut entries: Vec<Entry<'_, 't>> = slots.iter_mut().filter_map(|slot| slot.entry()).collect();
        if entries.is_empty() {
            return false;
        }
        let failed = pass(&mut self.batch, &mut entries).err().map(|error| Arc::new(error.into()));
        drop(entries);
        for slot in slots {
            slot.end_if_over(failed.as_ref());
        }
        true
    }

    fn drop_unwanted(&mut self) {
        for slot in &mut self.slots {
            if let Some(job) = slot.job.take_if(|job| !job.listener.is_wanted()) {
                job.end(FinishReason::Cancelled);
            }
        }
        for _ in 0..self.waiting.len() {
            let Some((request, mut listener)) = self.waiting.pop_front() else { break };
            if listener.is_wanted() {
                self.waiting.push_back((request, listener));
            } else {
                let usage = Usage { prompt_tokens: request.prompt.len(), ..Usage::default() };
                let _ = listener.event(Event::Done(Finish { reason: FinishReason::Cancelled, usage }));
            }
        }
    }

    /// Gives each request in the queue, as long as a slot is free, the one whose context saves it most of its prompt; of
    /// equals the one unused for longest.
    fn fill_slots(&mut self) {
        while let Some((request, _)) = self.waiting.front() {
            let free = self.slots.iter_mut().filter(|slot| slot.job.is_none());
            let best = free.max_by_key(|slot| (slot.cache.reusable(&request.prompt), Reverse(slot.used)));
            let Some(slot) = best else { return };
            let Some((mut request, mut listener)) = self.waiting.pop_front() else { return };
            match Reply::begin(&mut slot.cache, self.tokenizer, &mut request) {
                Ok(reply) => {
                    self.started += 1;
                    slot.used = self.started;
                    listener.started(reply.reused);
                    slot.job = Some(Job { request, reply, listener });
                }
                Err(error) => {
                    // The reply has ended, so the listener's answer is ignored.
                    let _ = listener.event(Event::Failed(Arc::new(error)));
                }
            }
        }
    }
}

impl<'t, L: Listener> Slot<'t, L> {
    fn entry(&mut self) -> Option<Entry<'_, 't>> {
        let Job { request, reply, listener } = self.job.as_mut()?;
        Some(Entry { cache: &mut self.cache, request, reply, listener })
    }

    /// Frees the slot if its reply has ended, or if the pass has failed.
    fn end_if_over(&mut self, failed: Option<&Arc<GenerateError>>) {
        let Some(mut job) = self.job.take() else { return };
        match (job.reply.end.take(), failed) {
            (Some(Ok(reason)), _) => job.end(reason),
            (Some(Err(error)), _) => job.fail(Arc::new(error)),
            (None, Some(error)) => job.fail(Arc::clone(error)),
            (None, None) => self.job = Some(job),
        }
    }
}

impl<L: Listener> Job<'_, L> {
    fn end(mut self, reason: FinishReason) {
        let finish = self.reply.finish(reason, &self.request);
        // The reply has ended, so the listener's answer is ignored.
        let _ = self.listener.event(Event::Done(finish));
    }

    fn fail(mut self, error: Arc<GenerateError>) {
        let _ = self.listener.event(Event::Failed(error));
    }
}
