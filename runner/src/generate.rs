//! Prompt in, reply out: the loop that `run` and `chat` share.
//!
//! ```text
//! prompt -> common prefix with the context kept -> the rest fed in chunks -> logits
//!        -> sample -> text to the watcher -> feed -> logits -> sample -> ...
//! ```
//!
//! With [`Speculation`], more than one token may be fed at a time; the reply is the same.
//!
//! The loop owns no output: a watcher is told of every step and can end it between any two.

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::model::{self, Sequence};
use crate::sampler::{Sampler, SamplerError};
use crate::speculate::{Draft, Drafts, Speculation};
use halfbyte_tokenizer::{StreamDecoder, Tokenizer, TokenizerError};

/// Why a reply could not be made.
#[derive(Debug, Error)]
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
    /// The watcher failed, which for a program means that its output did.
    #[error("cannot write the reply")]
    Output(#[from] io::Error),
}

/// A session that knows the tokens in its context, so that the next prompt need feed only what is new.
#[derive(Debug)]
pub struct CachedSession {
    session: Box<dyn Sequence>,
    ids: Vec<u32>,
    speculation: Option<Speculation>,
}

impl CachedSession {
    /// `session` with an empty context: tokens fed before are forgotten, since nobody knows which they were.
    pub fn new(session: impl Sequence + 'static) -> Self {
        Self::from_box(Box::new(session))
    }

    /// As [`Self::new`].
    pub fn from_box(mut session: Box<dyn Sequence>) -> Self {
        // 0 can always be cut to.
        let _ = session.cut(0);
        Self { session, ids: Vec::new(), speculation: None }
    }

    /// The same with drafts: replies do not change, only the time they take.
    #[must_use]
    pub fn with_speculation(self, speculation: Speculation) -> Self {
        Self { speculation: Some(speculation), ..self }
    }

    /// What drafts have come to, in all replies; `None` without speculation.
    pub fn drafts(&self) -> Option<Drafts> {
        self.speculation.as_ref().map(Speculation::drafts)
    }

    /// The tokens in the context.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Tokens that the context holds.
    pub fn context(&self) -> usize {
        self.session.context()
    }

    /// Tokens that still fit.
    pub fn room(&self) -> usize {
        self.context() - self.ids.len()
    }

    /// Adds `ids` and returns the logits after the last of them.
    ///
    /// # Errors
    /// As [`Sequence::prompt`]; the context is as before.
    pub fn feed(&mut self, ids: &[u32]) -> Result<&[f32], model::Error> {
        // What a call that failed half-way has left.
        self.session.cut(self.ids.len()).map_err(model::Error::from)?;
        let logits = self.session.prompt(ids)?;
        self.ids.extend_from_slice(ids);
        Ok(logits)
    }

    /// Adds `ids` and chooses the token after the last of them.
    ///
    /// # Errors
    /// Those of the model, with the context as before, and those of the sampler.
    pub fn feed_and_sample(&mut self, ids: &[u32], sampler: &mut Sampler) -> Result<u32, GenerateError> {
        self.session.cut(self.ids.len()).map_err(model::Error::from)?;
        if let Some(device) = self.session.greedy().filter(|_| sampler.is_greedy()) {
            let token = device.prompt_token(ids)?;
            self.ids.extend_from_slice(ids);
            return Ok(token);
        }
        let logits = self.session.prompt(ids)?;
        self.ids.extend_from_slice(ids);
        Ok(sampler.sample(logits, &self.ids)?)
    }

    /// Feeds `id`, and a draft of at most `most` tokens of what comes after it; chooses the token after each of them as
    /// long as the draft is right, and tells `chosen` of it at once, with the room that is left. Returns the last one and
    /// whether `chosen` wants more. What it has not been told of is not in the context.
    fn step<E: From<model::Error> + From<SamplerError>>(
        &mut self,
        id: u32,
        most: usize,
        sampler: &mut Sampler,
        mut chosen: impl FnMut(u32, usize) -> Result<ControlFlow<()>, E>,
    ) -> Result<(u32, ControlFlow<()>), E> {
        let start = Instant::now();
        self.session.cut(self.ids.len()).map_err(model::Error::from)?;
        let (before, context) = (self.ids.len(), self.context());
        let Self { session, ids, speculation } = self;
        ids.push(id);
        let most = most.min(context - ids.len());
        let draft = match speculation {
            Some(speculation) => speculation.draft(ids, most),
            None => Ok(Draft::default()),
        };
        ids.pop();
        let draft = draft?;
        let mut window = vec![id];
        window.extend_from_slice(&draft.ids);
        let mut outcome = None;
        let mut row = |i: usize, choose: &mut dyn FnMut(&[u32]) -> Result<u32, SamplerError>| {
            // The first row always counts, a later one if the token before it was what was drafted.
            let right = match &outcome {
                None => true,
                Some(Ok((token, ControlFlow::Continue(())))) => {
                    i == ids.len() - before && *token == window[i]
                }
                Some(_) => false,
            };
            if right {
                ids.push(window[i]);
                outcome = Some(match choose(ids) {
                    Ok(token) => chosen(token, context - ids.len()).map(|flow| (token, flow)),
                    Err(error) => Err(error.into()),
                });
            }
        };
        match session.greedy().filter(|_| sampler.is_greedy()) {
            Some(device) => device.window_tokens(&window, &mut |i, token| row(i, &mut |_| Ok(token)))?,
            None => {
                session.window(&window, &mut |i, logits| row(i, &mut |ids| sampler.sample(logits, ids)))?
            }
        }
        let accepted = ids.len() - before - 1;
        session.cut(ids.len()).map_err(model::Error::from)?;
        if let Some(speculation) = speculation {
            speculation.verified(&draft, accepted, start.elapsed());
        }
        // A window has at least one row.
        outcome.unwrap_or_else(|| Err(model::Error::NoTokens.into()))
    }

    /// Forgets what differs from `prompt` and returns how many of its tokens are in the context: never the last
    /// one, which has to be fed again for its logits.
    pub fn reuse(&mut self, prompt: &[u32]) -> usize {
        let kept = shared(&self.ids, prompt);
        let kept = if self.session.cut(kept).is_ok() { kept } else { 0 };
        // 0 can always be cut to.
        let _ = self.session.cut(kept);
        self.ids.truncate(kept);
        kept
    }
}

/// How many tokens of `prompt` a context of `ids` need not be fed: never the last one, which has to be fed again for its
/// logits.
pub fn shared(ids: &[u32], prompt: &[u32]) -> usize {
    let same = ids.iter().zip(prompt).take_while(|(a, b)| a == b).count();
    same.min(prompt.len().saturating_sub(1))
}

/// What a reply is made from.
#[derive(Debug)]
pub struct Request<'a> {
    /// The whole context up to the reply, template and earlier turns included; at least one token.
    pub prompt: &'a [u32],
    /// The model's tokenizer, which knows the tokens that end a reply.
    pub tokenizer: &'a Tokenizer,
    /// Makes the reply's text.
    pub decoder: StreamDecoder<'a>,
    /// The most tokens to make.
    pub max_tokens: usize,
}

/// What a watcher is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// A part of the prompt was fed: so many of so many tokens are in the context.
    Prompt {
        /// Tokens of the prompt in the context.
        done: usize,
        /// Tokens of the prompt.
        total: usize,
    },
    /// Whole characters of the reply, never empty.
    Text(&'a str),
    /// A token of the reply was chosen; its text, if it has any, came before.
    Token(u32),
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// The model ended it, with the last of the ids.
    EndOfGeneration,
    /// It has as many tokens as were asked for.
    MaxTokens,
    /// The context is full.
    ContextFull,
    /// The watcher asked for it.
    Watcher,
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
    /// Their text in whole characters; control tokens have none.
    pub text: String,
    /// Why it ended.
    pub stop: Stop,
    /// The prompt's tokens that were fed (not those reused), until the first token was chosen.
    pub prompt: Rate,
    /// The reply's tokens that were fed: all but the last.
    pub decode: Rate,
}

/// A reply in the making.
struct Reply<'a, W> {
    made: Generation,
    tokenizer: &'a Tokenizer,
    decoder: StreamDecoder<'a>,
    max_tokens: usize,
    watch: W,
}

impl<W: FnMut(Progress<'_>) -> io::Result<ControlFlow<()>>> Reply<'_, W> {
    /// Takes in the next token, with so much room left in the context, and says whether more are wanted.
    fn add(&mut self, id: u32, room: usize) -> Result<ControlFlow<()>, GenerateError> {
        let made = &mut self.made;
        made.ids.push(id);
        if self.tokenizer.is_eog(id) {
            made.stop = Stop::EndOfGeneration;
            // The reply is over whatever the watcher says.
            let _ = (self.watch)(Progress::Token(id))?;
            return Ok(ControlFlow::Break(()));
        }
        let text = self.decoder.push(id)?;
        let mut flow = ControlFlow::Continue(());
        if !text.is_empty() {
            made.text.push_str(text);
            flow = (self.watch)(Progress::Text(text))?;
        }
        if flow.is_break() || (self.watch)(Progress::Token(id))?.is_break() {
            made.stop = Stop::Watcher;
            return Ok(ControlFlow::Break(()));
        }
        if made.ids.len() == self.max_tokens {
            return Ok(ControlFlow::Break(()));
        }
        if room == 0 {
            made.stop = Stop::ContextFull;
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Makes a reply to `request.prompt`, telling `watch` of every step.
///
/// Tokens of `cache` that the prompt shares from the start are reused. Afterwards the context holds the prompt and
/// the reply but its last token, or less of them after an error or a stop.
///
/// # Errors
/// [`GenerateError::PromptTooLong`] before anything is fed, [`model::Error::NoTokens`] for an empty prompt, and
/// whatever model, sampler, tokenizer and watcher find.
pub fn generate(
    cache: &mut CachedSession,
    sampler: &mut Sampler,
    request: Request<'_>,
    watch: impl FnMut(Progress<'_>) -> io::Result<ControlFlow<()>>,
) -> Result<Generation, GenerateError> {
    let Request { prompt, tokenizer, decoder, max_tokens } = request;
    if prompt.len() > cache.context() {
        return Err(GenerateError::PromptTooLong { prompt: prompt.len(), context: cache.context() });
    }
    if prompt.is_empty() {
        return Err(model::Error::NoTokens.into());
    }
    let made = Generation {
        ids: Vec::new(),
        text: String::new(),
        stop: Stop::MaxTokens,
        prompt: Rate::default(),
        decode: Rate::default(),
    };
    let mut reply = Reply { made, tokenizer, decoder, max_tokens, watch };
    let start = Instant::now();
    let mut fed = cache.reuse(prompt);
    let mut next = None;
    for part in prompt[fed..].chunks(cache.session.chunk()) {
        fed += part.len();
        if fed == prompt.len() && max_tokens > 0 {
            next = Some(cache.feed_and_sample(part, sampler)?);
        } else {
            cache.feed(part)?;
        }
        reply.made.prompt.tokens += part.len();
        reply.made.prompt.time = start.elapsed();
        if (reply.watch)(Progress::Prompt { done: fed, total: prompt.len() })?.is_break() {
            reply.made.stop = Stop::Watcher;
            return Ok(reply.made);
        }
    }
    let start = Instant::now();
    if let Some(mut id) = next {
        let mut flow = reply.add(id, cache.room())?;
        while flow.is_continue() {
            // The last token of a reply is not fed, nor drafted.
            let most = max_tokens - reply.made.ids.len() - 1;
            let before = cache.ids.len();
            (id, flow) = cache.step(id, most, sampler, |id, room| reply.add(id, room))?;
            reply.made.decode.tokens += cache.ids.len() - before;
            reply.made.decode.time = start.elapsed();
        }
    }
    let rest = reply.decoder.finish();
    if !rest.is_empty() {
        reply.made.text.push_str(rest);
        let _ = (reply.watch)(Progress::Text(rest))?;
    }
    Ok(reply.made)
}
