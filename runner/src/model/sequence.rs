//! A sequence of tokens in a model's context, wherever the model computes.

use std::fmt::Debug;

use super::{CannotCut, CpuSession, Error, SavedState};

/// A context that takes tokens and gives logits: on the CPU, on a CUDA device, or shared among processes.
///
/// A prompt's tokens and a reply's may take different kernels. The logits after a token do not depend on how a prompt is
/// cut into calls, nor on the tokens that are fed with it in one window.
pub trait Sequence: Debug + Send {
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

    /// Forgets all tokens but the first `len`; more than there are changes nothing. 0 always works.
    ///
    /// # Errors
    /// [`CannotCut`], and nothing is changed: then [`Self::restore`] an earlier state.
    fn cut(&mut self, len: usize) -> Result<(), CannotCut>;

    /// Whether [`Self::cut`] works for every length. Where it does not, speculation [holds](Self::hold) the state before
    /// it feeds a draft, or marks it.
    fn can_cut(&self) -> bool {
        true
    }

    /// Lets a window of tokens that is fed next be taken back: [`Self::cut`] works for every length from now on then. Returns
    /// false where it can't.
    fn hold(&mut self) -> bool {
        self.can_cut()
    }

    /// A copy of the state, from which [`Self::restore`] goes on.
    ///
    /// # Errors
    /// Those of a device; [`Error::Unsaved`] where the state is spread over processes.
    fn save(&self) -> Result<SavedState, Error>;

    /// Puts a copy of this sequence's state, or of one made with the same model and options, in the place of the state.
    ///
    /// # Errors
    /// [`Error::OtherState`] and [`Error::Attention`] for a copy that does not fit; those of a device.
    fn restore(&mut self, saved: &SavedState) -> Result<(), Error>;

    /// A copy of what [`Self::cut`] can't give back, which may be much less than [`Self::save`] copies. It is good for this
    /// sequence alone, and only as long as no token before its end is taken back: keys and values stay where they are.
    ///
    /// # Errors
    /// As [`Self::save`].
    fn mark(&self) -> Result<SavedState, Error> {
        self.save()
    }

    /// Goes back to where [`Self::mark`] was called.
    ///
    /// # Errors
    /// As [`Self::restore`], and for a mark that is longer than the sequence.
    fn rewind(&mut self, mark: &SavedState) -> Result<(), Error> {
        self.restore(mark)
    }

    /// Adds a prompt's tokens, and returns the logits after the last of them.
    ///
    /// # Errors
    /// [`Error::NoTokens`], [`Error::Token`] and [`Error::ContextFull`], and the context is unchanged then; those of a
    /// device.
    fn prompt(&mut self, ids: &[u32]) -> Result<&mut [f32], Error>;

    /// Adds tokens of a reply, chosen or drafted, and calls `each(i, logits)` with the logits after every `ids[i]`.
    ///
    /// # Errors
    /// As [`prompt`](Self::prompt).
    fn window(&mut self, ids: &[u32], each: &mut dyn FnMut(usize, &mut [f32])) -> Result<(), Error>;

    /// Returns an interface that gives the likeliest tokens instead of logits, if the device can choose them.
    fn greedy(&mut self) -> Option<&mut dyn Greedy> {
        None
    }

    /// The session on the CPU that this is, which a [`super::Batch`] can feed together with others.
    fn as_cpu(&mut self) -> Option<&mut CpuSession> {
        None
    }
}

/// A context that takes tokens and gives the likeliest next ones, those with the highest logit and of equals the lowest:
/// the logits need not come to the host.
pub trait Greedy: Debug {
    /// [`Sequence::prompt`], with the token after the last of `ids`.
    ///
    /// # Errors
    /// As [`Sequence::prompt`]; that no logit is a number.
    fn prompt_token(&mut self, ids: &[u32]) -> Result<u32, Error>;

    /// [`Sequence::window`], with the token after every `ids[i]`.
    ///
    /// # Errors
    /// As [`prompt_token`](Self::prompt_token).
    fn window_tokens(&mut self, ids: &[u32], each: &mut dyn FnMut(usize, u32)) -> Result<(), Error>;
}

/// Whether `ids` are tokens of the vocabulary, and fit behind the `used` tokens of a context.
pub(super) fn check(ids: &[u32], n_vocab: usize, used: usize, context: usize) -> Result<(), Error> {
    if ids.is_empty() {
        return Err(Error::NoTokens);
    }
    if let Some(&id) = ids.iter().find(|&&id| id as usize >= n_vocab) {
        return Err(Error::Token { id, n_vocab });
    }
    if ids.len() > context - used {
        return Err(Error::ContextFull { used, wanted: ids.len(), context });
    }
    Ok(())
}
