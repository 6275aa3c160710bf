//! The request for a reply, and the events that report on it.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::{GenerateError, StopStrings};
use crate::sampler::Sampler;

/// What a reply is made from.
#[derive(Clone, Debug)]
pub struct Request {
    /// The whole context up to the reply, template and earlier turns included; at least one token.
    pub prompt: Vec<u32>,
    /// Chooses the tokens. Its random numbers go on from where they are.
    pub sampler: Sampler,
    /// The most tokens to make.
    pub max_tokens: usize,
    /// Texts that end the reply and are not part of it.
    pub stops: StopStrings,
    /// How the reply's text begins.
    pub beginning: Beginning,
}

impl Request {
    /// A continuation of `prompt` without a limit and without stop strings.
    pub fn new(prompt: Vec<u32>, sampler: Sampler) -> Self {
        let (stops, beginning) = (StopStrings::default(), Beginning::Continuation);
        Self { prompt, sampler, max_tokens: usize::MAX, stops, beginning }
    }
}

/// How a reply's text begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// As more of the prompt's text: every space counts.
    Continuation,
    /// As a text of its own, such as a turn of a conversation: a leading space that encoding would add is left out.
    Turn,
}

/// What happens to a reply. The last event is [`Event::Done`] or [`Event::Failed`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A part of the prompt was fed: so many of so many tokens are in the context.
    Prompt {
        /// Tokens of the prompt in the context.
        done: usize,
        /// Tokens of the prompt.
        total: usize,
    },
    /// Whole characters of the reply, never empty.
    Text(String),
    /// A token of the reply was chosen. Its text, if it has any, came before, or is held back as a possible stop string.
    Token(u32),
    /// The reply is complete.
    Done(Finish),
    /// The reply cannot be completed. Several replies may have failed for the same reason.
    Failed(Arc<GenerateError>),
}

/// How a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finish {
    /// Why.
    pub reason: FinishReason,
    /// How many tokens there were.
    pub usage: Usage,
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FinishReason {
    /// The model ended it, with its last token.
    EndOfGeneration,
    /// Its text came to a stop string.
    StopString,
    /// It has as many tokens as were asked for.
    MaxTokens,
    /// The context is full.
    ContextFull,
    /// Its listener asked for the end.
    Cancelled,
}

/// Numbers of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the prompt that were in the context already.
    pub reused_tokens: usize,
    /// Tokens of the reply, the one that ended it included.
    pub reply_tokens: usize,
}

/// Takes the events of one reply.
pub trait Listener {
    /// Whether the reply is still wanted. It is asked before every forward pass.
    fn is_wanted(&self) -> bool {
        true
    }

    /// The reply has a slot, in whose context so many tokens of the prompt are already.
    fn started(&mut self, reused_tokens: usize) {
        let _ = reused_tokens;
    }

    /// Takes the next event, and says whether the reply is to go on. Its answer to the last event is ignored.
    fn event(&mut self, event: Event) -> ControlFlow<()>;
}
