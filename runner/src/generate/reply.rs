//! A reply while it is made: from tokens to text, and to its end.

use super::cache::CachedSession;
use super::{Beginning, Event, Finish, FinishReason, GenerateError, Listener, Passed, Request, Usage};
use crate::model;
use halfbyte_tokenizer::{StreamDecoder, Tokenizer};

/// The state of a reply.
#[derive(Debug)]
pub(super) struct Reply<'t> {
    tokenizer: &'t Tokenizer,
    decoder: StreamDecoder<'t>,
    /// The tokens chosen, the one that ended the reply included.
    pub(super) ids: Vec<u32>,
    /// The token chosen last, which is not in the context yet; `None` while the prompt is fed.
    pub(super) next: Option<u32>,
    pub(super) reused: usize,
    /// How it ended, once it has.
    pub(super) end: Option<Result<FinishReason, GenerateError>>,
}

impl<'t> Reply<'t> {
    /// Checks the request and makes the context ready for the part of its prompt that is new.
    pub(super) fn begin(
        cache: &mut CachedSession,
        tokenizer: &'t Tokenizer,
        request: &mut Request,
    ) -> Result<Self, GenerateError> {
        let (prompt, n_vocab) = (&request.prompt, cache.n_vocab());
        if prompt.len() > cache.context() {
            return Err(GenerateError::PromptTooLong { prompt: prompt.len(), context: cache.context() });
        }
        if prompt.is_empty() {
            return Err(model::Error::NoTokens.into());
        }
        // In a batch it would fail the others, too.
        if let Some(&id) = prompt.iter().find(|&&id| id as usize >= n_vocab) {
            return Err(model::Error::Token { id, n_vocab }.into());
        }
        let decoder = match request.beginning {
            Beginning::Continuation => tokenizer.continuation_decoder(),
            Beginning::Turn => tokenizer.text_decoder(),
        };
        request.stops.finish();
        let reused = cache.reuse(prompt);
        Ok(Self { tokenizer, decoder, ids: Vec::new(), next: None, reused, end: None })
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.end.is_none()
    }

    /// So many tokens of the prompt are in the context.
    pub(super) fn prompt_fed(&mut self, done: usize, request: &Request, listener: &mut dyn Listener) {
        let total = request.prompt.len();
        if listener.event(Event::Prompt { done, total }).is_break() {
            self.end = Some(Ok(FinishReason::Cancelled));
        } else if done == total && request.max_tokens == 0 {
            self.end = Some(Ok(FinishReason::MaxTokens));
        }
    }

    /// Takes the next token, or why there is none. `room`: tokens that still fit in the context.
    pub(super) fn accept(
        &mut self,
        chosen: Result<u32, GenerateError>,
        room: usize,
        request: &mut Request,
        listener: &mut dyn Listener,
    ) {
        self.end = match chosen.and_then(|id| self.add(id, room, request, listener)) {
            Ok(None) => return,
            Ok(Some(reason)) => {
                if reason != FinishReason::StopString {
                    self.pass_on_the_rest(request, listener);
                }
                Some(Ok(reason))
            }
            Err(error) => Some(Err(error)),
        };
    }

    /// Adds a token, and returns the reason if the reply ends with it.
    fn add(
        &mut self,
        id: u32,
        room: usize,
        request: &mut Request,
        listener: &mut dyn Listener,
    ) -> Result<Option<FinishReason>, GenerateError> {
        self.ids.push(id);
        self.next = Some(id);
        if self.tokenizer.is_eog(id) {
            // The reply has ended, so the listener's answer is ignored.
            let _ = listener.event(Event::Token(id));
            return Ok(Some(FinishReason::EndOfGeneration));
        }
        let (text, stopped) = match request.stops.push(self.decoder.push(id)?) {
            Passed::Text(text) => (text, false),
            Passed::Last(text) => (text, true),
        };
        let go_on = text.is_empty() || listener.event(Event::Text(text)).is_continue();
        let go_on = go_on && listener.event(Event::Token(id)).is_continue();
        Ok(if stopped {
            Some(FinishReason::StopString)
        } else if !go_on {
            Some(FinishReason::Cancelled)
        } else if self.ids.len() == request.max_tokens {
            Some(FinishReason::MaxTokens)
        } else if room == 0 {
            Some(FinishReason::ContextFull)
        } else {
            None
        })
    }

    /// Passes on what was held back.
    fn pass_on_the_rest(&mut self, request: &mut Request, listener: &mut dyn Listener) {
        let text = match request.stops.push(self.decoder.clone().finish()) {
            Passed::Text(text) => text + &request.stops.finish(),
            Passed::Last(text) => text,
        };
        if !text.is_empty() {
            // The reply has ended, so the listener's answer is ignored.
            let _ = listener.event(Event::Text(text));
        }
    }

    /// How it ended for `reason`.
    pub(super) fn finish(&self, reason: FinishReason, request: &Request) -> Finish {
        let usage = Usage {
            prompt_tokens: request.prompt.len(),
            reused_tokens: self.reused,
            reply_tokens: self.ids.len(),
        };
        Finish { reason, usage }
    }
}
