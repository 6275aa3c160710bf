//! Several replies at once: the forward passes of all that are under way are one.
//!
//! ```text
//! queue -> slot (a context of its own) -> prompt in parts -> token -> token -> ... -> slot is free
//! each pass: a token of every reply that is being written, and the next part of the oldest prompts
//! ```
//!
//! A row's bits do not depend on the rows beside it, so a reply is what it would be alone. A slot keeps its context:
//! a prompt that begins like it is not fed again from the start.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;

use super::admission::Place;
use super::metrics::Metrics;
use crate::requests::{Asked, Form, Passed};
use halfbyte::generate::shared;
use halfbyte::model::{Batch, Part, Row, Rows, Sequence};
use halfbyte_tokenizer::{StreamDecoder, Tokenizer};

/// Prompt tokens of a pass in which replies are being written: more make those wait longer.
const PROMPT_ROWS_BESIDE_REPLIES: usize = 64;

/// A reply to be made.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) asked: Asked,
    /// Where its events go. A closed channel means that the client has left.
    pub(crate) reply: UnboundedSender<Event>,
    pub(crate) queued: Instant,
    /// Freed with the end of the reply.
    pub(crate) place: Place,
}

/// What the one who asked is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Some of the reply, never empty.
    Text(String),
    /// It is complete.
    Done(Finished),
    /// It can't be made.
    Failed(String),
}

/// The end of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    /// Whether tokens or context ran out; else the model or a stop string ended it.
    pub(crate) cut_off: bool,
    pub(crate) prompt_tokens: usize,
    /// Those of them that were in the context already.
    pub(crate) reused_tokens: usize,
    pub(crate) reply_tokens: usize,
}

/// Replies under way, and contexts.
#[derive(Debug)]
pub(crate) struct Scheduler<'t> {
    slots: Vec<Slot<'t>>,
    tokenizer: &'t Tokenizer,
    metrics: Arc<Metrics>,
    batch: Batch,
    /// Jobs taken so far.
    taken: u64,
}

/// A context, and the reply that is being made in it.
#[derive(Debug)]
struct Slot<'t> {
    sequence: Box<dyn Sequence>,
    /// The tokens in the session.
    ids: Vec<u32>,
    /// The number of the last job it was given.
    used: u64,
    reply: Option<Reply<'t>>,
}

/// A reply under way.
#[derive(Debug)]
struct Reply<'t> {
    job: Job,
    decoder: StreamDecoder<'t>,
    /// The token chosen last, which is not in the context yet.
    next: Option<u32>,
    reused: usize,
    tokens: usize,
}

impl<'t> Scheduler<'t> {
    /// `sessions` are of one model with one kind of options, and as many as replies can be under way.
    pub(crate) fn new(
        sequences: Vec<Box<dyn Sequence>>,
        tokenizer: &'t Tokenizer,
        metrics: Arc<Metrics>,
    ) -> Self {
        let empty = |mut sequence: Box<dyn Sequence>| {
            // 0 can always be cut to.
            let _ = sequence.cut(0);
            Slot { sequence, ids: Vec::new(), used: 0, reply: None }
        };
        let slots = sequences.into_iter().map(empty).collect();
        Self { slots, tokenizer, metrics, batch: Batch::default(), taken: 0 }
    }

    /// Takes jobs and makes replies until nobody can send jobs any more and all replies are done.
    pub(crate) fn run(mut self, jobs: &Receiver<Job>) {
        loop {
            while self.slots.iter().any(|slot| slot.reply.is_none()) {
                let idle = self.slots.iter().all(|slot| slot.reply.is_none());
                // With nothing else to do it waits.
                let job = if idle { jobs.recv().ok() } else { jobs.try_recv().ok() };
                match job {
                    Some(job) => self.admit(job),
                    None if idle => return,
                    None => break,
                }
            }
            self.forget_unwanted();
            self.pass();
        }
    }

    /// Gives `job` the free slot whose context its prompt shares most of; of equals the one unused for longest.
    fn admit(&mut self, job: Job) {
        self.metrics.queued.dec();
        if job.reply.is_closed() {
            return self.metrics.cancelled.inc();
        }
        let shared = |slot: &Slot<'_>| shared(&slot.ids, &job.asked.prompt);
        let free = self.slots.iter_mut().filter(|slot| slot.reply.is_none());
        let best = free.max_by_key(|slot| (shared(slot), std::cmp::Reverse(slot.used)));
        let Some(slot) = best else { unreachable!("a job is taken when a slot is free") };
        let reused = shared(slot);
        let reused = if slot.sequence.cut(reused).is_ok() { reused } else { 0 };
        // 0 can always be cut to.
        let _ = slot.sequence.cut(reused);
        slot.ids.truncate(reused);
        self.taken += 1;
        slot.used = self.taken;
        let tokenizer = self.tokenizer;
        let decoder = if job.asked.form == Form::Chat {
            tokenizer.text_decoder()
        } else {
            tokenizer.continuation_decoder()
        };
        slot.reply = Some(Reply { job, decoder, next: None, reused, tokens: 0 });
        self.metrics.reused_tokens.inc_by(reused as u64);
        self.metrics.busy.inc();
    }

    /// Frees the slots of those who have left.
    fn forget_unwanted(&mut self) {
        for slot in &mut self.slots {
            if slot.reply.as_ref().is_some_and(|reply| reply.job.reply.is_closed()) {
                slot.reply = None;
                self.metrics.busy.dec();
                self.metrics.cancelled.inc();
            }
        }
    }

    /// The tokens to feed to each slot: the reply's last one, or the next part of the prompt. What a pass has room for
    /// goes to the prompts that came first.
    fn plan(&self) -> Vec<Vec<u32>> {
        let chunk = self.slots.first().map_or(0, |slot| slot.sequence.chunk());
        let replies = || self.slots.iter().filter_map(|slot| slot.reply.as_ref());
        let writing = replies().any(|reply| reply.next.is_some());
        let mut room = if writing { chunk.min(PROMPT_ROWS_BESIDE_REPLIES) } else { chunk };
        let mut plan = vec![Vec::new(); self.slots.len()];
        let mut order: Vec<usize> = (0..self.slots.len()).collect();
        order.sort_by_key(|&i| self.slots[i].used);
        for i in order {
            let Slot { ids, reply: Some(reply), .. } = &self.slots[i] else { continue };
            plan[i] = match reply.next {
                Some(id) => vec![id],
                None => {
                    let left = &reply.job.asked.prompt[ids.len()..];
                    let part = &left[..left.len().min(room)];
                    room -= part.len();
                    part.to_vec()
                }
            };
        }
        plan
    }

    /// One forward pass of everything that is under way.
    fn pass(&mut self) {
        let plan = self.plan();
        let mut parts = Vec::new();
        let mut writers = Vec::new();
        for (slot, rows) in self.slots.iter_mut().zip(&plan) {
            let Slot { sequence, ids, reply: Some(reply), .. } = slot else { continue };
            if rows.is_empty() {
                continue;
            }
            ids.extend_from_slice(rows);
            let of_prompt = if reply.next.is_none() { rows.len() } else { 0 };
            self.metrics.prompt_tokens.inc_by(of_prompt as u64);
            let wanted = match reply.next {
                Some(_) => Rows::All,
                None if ids.len() >= reply.job.asked.prompt.len() => Rows::Last,
                None => Rows::None,
            };
            let greedy = reply.job.asked.sampler.is_greedy();
            parts.push(Part { sequence: &mut **sequence, ids: rows, rows: wanted, greedy });
            writers.push((ids, reply, None));
        }
        let fed = self.batch.feed(&mut parts, |i, _, row| {
            let (ids, reply, chosen) = &mut writers[i];
            *chosen = Some(match row {
                Row::Logits(logits) => reply.job.asked.sampler.sample(logits, ids),
                Row::Token(token) => Ok(token),
            });
        });
        self.metrics.passes.inc();
        let chosen: Vec<_> = writers.into_iter().map(|(_, _, chosen)| chosen).collect();
        let served = self.slots.iter_mut().zip(&plan).filter(|(_, rows)| !rows.is_empty());
        for ((slot, _), chosen) in served.zip(chosen) {
            let end = match (&fed, chosen) {
                (Err(error), _) => Some(Event::Failed(error.to_string())),
                (Ok(()), None) => None,
                (Ok(()), Some(Err(error))) => Some(Event::Failed(error.to_string())),
                (Ok(()), Some(Ok(id))) => slot.accept(id, self.tokenizer, &self.metrics),
            };
            if let Some(end) = end {
                slot.end(end, &self.metrics);
            }
        }
    }
}

impl Slot<'_> {
    /// Takes the token that was chosen for the reply, passes its text on, and returns the reply's end if it is one.
    fn accept(&mut self, id: u32, tokenizer: &Tokenizer, metrics: &Metrics) -> Option<Event> {
        let full = self.ids.len() == self.sequence.context();
        let reply = self.reply.as_mut()?;
        if reply.tokens == 0 {
            metrics.first_token.observe(reply.job.queued.elapsed().as_secs_f64());
        }
        reply.tokens += 1;
        metrics.reply_tokens.inc();
        if tokenizer.is_eog(id) {
            return Some(reply.finish(false));
        }
        let text = match reply.decoder.push(id) {
            Ok(text) => text,
            Err(error) => return Some(Event::Failed(error.to_string())),
        };
        match reply.job.asked.stops.push(text) {
            Passed::Text(text) => reply.send(text),
            Passed::Last(text) => {
                reply.send(text);
                return Some(reply.done(false));
            }
        }
        reply.next = Some(id);
        (full || reply.tokens == reply.job.asked.max_tokens).then(|| reply.finish(true))
    }

    /// Tells how the reply ended, and is free.
    fn end(&mut self, event: Event, metrics: &Metrics) {
        // After an error the session may hold less than was meant to be in it.
        self.ids.truncate(self.sequence.len());
        let Some(reply) = self.reply.take() else { return };
        let outcome = if matches!(event, Event::Failed(_)) { &metrics.failed } else { &metrics.completed };
        outcome.inc();
        metrics.busy.dec();
        let Job { reply, place, .. } = reply.job;
        // The client's next request finds it free.
        drop(place);
        // If the client has left, the send fails and nothing has to be done.
        let _ = reply.send(event);
    }
}

impl Reply<'_> {
    fn send(&self, text: String) {
        if !text.is_empty() {
            // If the client has left, the next pass begins by noticing it.
            let _ = self.job.reply.send(Event::Text(text));
        }
    }

    /// Passes on what was held back, and ends.
    fn finish(&mut self, cut_off: bool) -> Event {
        let rest = self.decoder.clone().finish();
        let last = match self.job.asked.stops.push(rest) {
            Passed::Text(text) => text + &self.job.asked.stops.finish(),
            Passed::Last(text) => text,
        };
        self.send(last);
        self.done(cut_off)
    }

    fn done(&self, cut_off: bool) -> Event {
        Event::Done(Finished {
            cut_off,
            prompt_tokens: self.job.asked.prompt.len(),
            reused_tokens: self.reused,
            reply_tokens: self.tokens,
        })
    }
}
