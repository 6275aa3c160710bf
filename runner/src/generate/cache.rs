//! A sequence that knows its tokens.

use crate::model::{self, SavedState, Sequence};
use crate::speculate::{Drafts, Speculation};

/// A sequence that knows the tokens in its context, so that the next prompt need feed only what is new.
#[derive(Debug)]
pub struct CachedSession {
    pub(super) sequence: Box<dyn Sequence>,
    pub(super) ids: Vec<u32>,
    pub(super) speculation: Option<Speculation>,
    /// A copy of an earlier state, which holds the first of `ids`: where the state can't be cut, taking tokens back starts
    /// from it.
    saved: Option<SavedState>,
}

impl CachedSession {
    /// Takes over `sequence` and empties its context: which tokens were fed to it before is unknown.
    pub fn new(sequence: impl Sequence + 'static) -> Self {
        Self::from_box(Box::new(sequence))
    }

    /// As [`Self::new`].
    pub fn from_box(mut sequence: Box<dyn Sequence>) -> Self {
        // 0 can always be cut to.
        let _ = sequence.cut(0);
        Self { sequence, ids: Vec::new(), speculation: None, saved: None }
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
        self.sequence.context()
    }

    /// Tokens that still fit.
    pub fn room(&self) -> usize {
        self.context() - self.ids.len()
    }

    /// Whether its state can be cut back to any length.
    pub(crate) fn can_cut(&self) -> bool {
        self.sequence.can_cut()
    }

    /// Tokens in the vocabulary.
    pub fn n_vocab(&self) -> usize {
        self.sequence.n_vocab()
    }

    /// Adds `ids` and returns the logits after the last of them.
    ///
    /// # Errors
    /// As [`Sequence::prompt`]; the context is as before.
    pub fn feed(&mut self, ids: &[u32]) -> Result<&[f32], model::Error> {
        self.settle()?;
        let logits = self.sequence.prompt(ids)?;
        self.ids.extend_from_slice(ids);
        Ok(logits)
    }

    /// Forgets what differs from `prompt` and returns how many of its tokens are in the context: never the last
    /// one, which has to be fed again for its logits.
    pub fn reuse(&mut self, prompt: &[u32]) -> usize {
        let mut kept = self.shared(prompt);
        let saved = self.saved.take();
        if self.sequence.cut(kept).is_err() {
            kept = self.go_back(saved, kept);
        }
        // After an error the sequence may hold less than `ids`.
        kept = kept.min(self.sequence.len());
        self.ids.truncate(kept);
        kept
    }

    /// How many tokens of `prompt` need not be fed: never the last one.
    pub(super) fn shared(&self, prompt: &[u32]) -> usize {
        let same = self.ids.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        same.min(prompt.len().saturating_sub(1))
    }

    /// Restores `saved` if it holds at most `len` tokens, or else forgets all tokens. Returns how many the sequence holds.
    fn go_back(&mut self, saved: Option<SavedState>, len: usize) -> usize {
        let earlier = saved.filter(|saved| saved.len() <= len);
        if earlier.is_none_or(|earlier| self.sequence.restore(&earlier).is_err()) {
            // 0 can always be cut to. What is lost with that is fed again.
            let _ = self.sequence.cut(0);
        }
        self.sequence.len()
    }

    /// Saves the state if it can't be cut, so that tokens that are fed from now on can be taken back. Returns false if it
    /// can't be saved either: taking tokens back would then feed the whole context again.
    pub(crate) fn prepare_to_take_back(&mut self) -> bool {
        if self.sequence.can_cut() {
            return true;
        }
        self.saved = self.sequence.save().ok();
        self.saved.is_some()
    }

    /// Takes back all tokens but the first `len`.
    ///
    /// # Errors
    /// Those of the model, for tokens that have to be fed again.
    pub(crate) fn take_back(&mut self, len: usize) -> Result<(), model::Error> {
        self.ids.truncate(len);
        self.settle()
    }

    /// Makes the sequence hold `ids` again, after tokens that were taken back or a call that failed.
    pub(super) fn settle(&mut self) -> Result<(), model::Error> {
        if self.sequence.len() == self.ids.len() {
            return Ok(());
        }
        let saved = self.saved.take();
        if self.sequence.cut(self.ids.len()).is_err() {
            let held = self.go_back(saved, self.ids.len());
            let rest = &self.ids[held..];
            if held > 0 && !rest.is_empty() {
                // They were fed as a window, whose bits may differ from those of a prompt.
                self.sequence.window(rest, &mut |_, _| ())?;
            }
        }
        let Self { sequence, ids, .. } = self;
        while sequence.len() < ids.len() {
            let rest = &ids[sequence.len()..];
            sequence.prompt(&rest[..rest.len().min(sequence.chunk())])?;
        }
        Ok(())
    }
}
