//! One forward pass of the replies under way.
//!
//! ```text
//! a reply whose prompt is fed   the next part of the prompt      logits after its end
//! a reply that is written       its last token, and a draft      logits after each
//! ```
//!
//! The reply's listener is told of each token as soon as it is chosen. A draft's tokens are accepted up to the first one
//! that differs from the chosen token.

use std::time::Instant;

use super::cache::CachedSession;
use super::reply::Reply;
use super::{GenerateError, Listener, Request};
use crate::model::{self, Batch, Part, Row, Rows};
use crate::speculate::Draft;

/// Prompt tokens of a pass in which replies are written: with more, those would wait longer.
const PROMPT_ROWS_BESIDE_REPLIES: usize = 64;

/// A reply in a slot.
pub(super) struct Entry<'a, 't> {
    pub(super) cache: &'a mut CachedSession,
    pub(super) request: &'a mut Request,
    pub(super) reply: &'a mut Reply<'t>,
    pub(super) listener: &'a mut dyn Listener,
}

/// The tokens that a slot is fed.
struct Window {
    ids: Vec<u32>,
    rows: Rows,
    draft: Draft,
}

/// Feeds every reply its next tokens; none of them has ended. If there is not room for all prompts, the first entries
/// come first.
///
/// # Errors
/// Those of the model. Some of the replies may have taken tokens by then; [`CachedSession::settle`] makes their contexts
/// consistent when they are used again.
pub(super) fn pass(batch: &mut Batch, entries: &mut [Entry<'_, '_>]) -> Result<(), model::Error> {
    let start = Instant::now();
    let chunk = entries.first().map_or(0, |entry| entry.cache.sequence.chunk());
    let writing = entries.iter().any(|entry| entry.reply.next.is_some());
    let mut room = if writing { chunk.min(PROMPT_ROWS_BESIDE_REPLIES) } else { chunk };
    let windows: Vec<Window> =
        entries.iter_mut().map(|entry| entry.window(&mut room)).collect::<Result<_, _>>()?;
    let mut fed: Vec<(&mut Entry<'_, '_>, Window)> =
        entries.iter_mut().zip(windows).filter(|(_, window)| !window.ids.is_empty()).collect();
    let lengths: Vec<usize> = fed.iter().map(|(entry, _)| entry.cache.ids.len()).collect();
    feed(batch, &mut fed)?;
    for ((entry, window), before) in fed.iter_mut().zip(lengths) {
        let Entry { cache, request, reply, listener } = &mut **entry;
        match window.rows {
            Rows::None => {
                cache.ids.extend_from_slice(&window.ids);
                cache.mark(request.prompt.len());
                reply.prompt_fed(cache.ids.len(), request, &mut **listener);
            }
            Rows::Last => cache.mark(request.prompt.len()),
            Rows::All => {
                let accepted = cache.ids.len() - before - 1;
                cache.settle()?;
                if let Some(speculation) = &mut cache.speculation {
                    speculation.verified(&window.draft, accepted, start.elapsed());
                }
            }
        }
    }
    Ok(())
}

fn feed(batch: &mut Batch, fed: &mut [(&mut Entry<'_, '_>, Window)]) -> Result<(), model::Error> {
    let mut parts = Vec::with_capacity(fed.len());
    let mut writers = Vec::with_capacity(fed.len());
    for (entry, window) in fed {
        let Entry { cache, request, reply, listener } = &mut **entry;
        let room = cache.room();
        let (greedy, before) = (request.sampler.is_greedy(), cache.ids.len());
        let CachedSession { sequence, ids, .. } = &mut **cache;
        parts.push(Part { sequence: &mut **sequence, ids: &window.ids, rows: window.rows, greedy });
        writers.push(Writer { window, ids, before, room, request, reply, listener: &mut **listener });
    }
    batch.feed(&mut parts, |i, r, row| writers[i].row(r, row))
}

impl Entry<'_, '_> {
    /// What this reply is fed next. `room`: prompt tokens that the pass still takes.
    fn window(&mut self, room: &mut usize) -> Result<Window, model::Error> {
        let Self { cache, request, reply, .. } = self;
        let Some(id) = reply.next else {
            let part = cache.next_part(&request.prompt, *room);
            *room -= part.len();
            let is_last = cache.ids.len() + part.len() == request.prompt.len();
            let rows = if is_last && request.max_tokens > 0 { Rows::Last } else { Rows::None };
            return Ok(Window { ids: part.to_vec(), rows, draft: Draft::default() });
        };
        cache.settle()?;
        // The last token of a reply is not fed, nor drafted.
        let most = request.max_tokens - reply.ids.len() - 1;
        let most = most.min(cache.room().saturating_sub(1));
        let CachedSession { sequence, ids, speculation, .. } = &mut **cache;
        ids.push(id);
        let draft = speculation.as_mut().map_or_else(
            || Ok(Draft::default()),
            |speculation| speculation.draft(ids, most, sequence.n_vocab()),
        );
        ids.pop();
        let mut draft = draft?;
        if !draft.ids.is_empty() && !cache.prepare_to_take_back() {
            draft = Draft::default();
        }
        let mut ids = vec![id];
        ids.extend_from_slice(&draft.ids);
        Ok(Window { ids, rows: Rows::All, draft })
    }
}

/// Takes the rows of one reply.
struct Writer<'a, 't> {
    window: &'a Window,
    /// The tokens in the context.
    ids: &'a mut Vec<u32>,
    /// Their number before the pass.
    before: usize,
    /// Tokens that fitted before the pass.
    room: usize,
    request: &'a mut Request,
    reply: &'a mut Reply<'t>,
    listener: &'a mut dyn Listener,
}

impl Writer<'_, '_> {
    /// Takes what comes after token `r` of the window.
    fn row(&mut self, r: usize, row: Row<'_>) {
        let Self { window, ids, before, room, request, reply, listener } = self;
        let prompt = window.rows == Rows::Last;
        if prompt {
            ids.extend_from_slice(&window.ids);
        } else {
            // The first row always counts, a later one if what was drafted is what was chosen.
            let counts = ids.len() - *before == r && reply.next == Some(window.ids[r]);
            if !(counts && reply.is_under_way()) {
                return;
            }
            ids.push(window.ids[r]);
        }
        let chosen = match row {
            Row::Logits(logits) => request.sampler.sample(logits, ids).map_err(GenerateError::from),
            Row::Token(token) => Ok(token),
        };
        if prompt {
            reply.prompt_fed(ids.len(), request, &mut **listener);
            if !reply.is_under_way() {
                return;
            }
        }
        reply.accept(chosen, *room - (ids.len() - *before), request, &mut **listener);
    }
}
