//! What replies are made with, wherever it computes.

use super::{Error, Session};
use std::fmt::Debug;

/// A context that takes tokens and gives logits.
///
/// A prompt's tokens and a reply's may take different kernels. The logits after a token do not depend on how a prompt is
/// cut into calls, nor on the tokens that are fed with it in one window.
pub trait Feed: Debug {
    /// Tokens that fit.
    fn context(&self) -> usize;

    /// Prompt tokens that take the forward pass together.
    fn chunk(&self) -> usize;

    /// Tokens in the vocabulary, which is the number of logits.
    fn n_vocab(&self) -> usize;

    /// Tokens in the context.
    fn len(&self) -> usize;

    /// Whether the context is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all tokens but the first `len`; more than there are changes nothing.
    fn truncate(&mut self, len: usize);

    /// Adds a prompt's tokens, and returns the logits after the last of them.
    ///
    /// # Errors
    /// [`Error::NoTokens`], [`Error::Token`] and [`Error::ContextFull`], and the context is unchanged then; those of a device.
    fn prompt(&mut self, ids: &[u32]) -> Result<&mut [f32], Error>;

    /// Adds tokens of a reply, chosen or drafted, and calls `each(i, logits)` with the logits after every `ids[i]`.
    ///
    /// # Errors
    /// As [`prompt`](Self::prompt).
    fn window(&mut self, ids: &[u32], each: &mut dyn FnMut(usize, &[f32])) -> Result<(), Error>;

    /// The same with the likeliest tokens in place of the logits, if this context can choose them where the logits are.
    fn greedy(&mut self) -> Option<&mut dyn Greedy> {
        None
    }
}

/// A context that takes tokens and gives the likeliest next ones, those with the highest logit and of equals the lowest:
/// the logits need not come to the host.
pub trait Greedy: Debug {
    /// [`Feed::prompt`], with the token after the last of `ids`.
    ///
    /// # Errors
    /// As [`Feed::prompt`]; that no logit is a number.
    fn prompt_token(&mut self, ids: &[u32]) -> Result<u32, Error>;

    /// [`Feed::window`], with the token after every `ids[i]`.
    ///
    /// # Errors
    /// As [`prompt_token`](Self::prompt_token).
    fn window_tokens(&mut self, ids: &[u32], each: &mut dyn FnMut(usize, u32)) -> Result<(), Error>;
}

impl Feed for Session<'_> {
    fn context(&self) -> usize {
        self.options().context
    }

    fn chunk(&self) -> usize {
        self.options().chunk
    }

    fn n_vocab(&self) -> usize {
        self.model().config().n_vocab
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn truncate(&mut self, len: usize) {
        self.truncate(len);
    }

    fn prompt(&mut self, ids: &[u32]) -> Result<&mut [f32], Error> {
        self.feed(ids)
    }

    fn window(&mut self, ids: &[u32], each: &mut dyn FnMut(usize, &[f32])) -> Result<(), Error> {
        self.feed_all(ids, each)
    }
}
