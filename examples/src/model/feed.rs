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
}

impl Feed for Session<'_> {
    fn context(&self) -> usize {
        self.options().context
    }

    fn chunk(&self) -> usize {
        self.options().chunk
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
