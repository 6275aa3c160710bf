//! A sequence that knows its tokens.

use crate::model::{self, Sequence};
use crate::speculate::{Drafts, Speculation};

/// A sequence that knows the tokens in its context, so that the next prompt need feed only what is new.
#[derive(Debug)]
pub struct CachedSession {
    pub(super) sequence: Box<dyn Sequence>,
    pub(super) ids: Vec<u32>,
    pub(super) speculation: Option<Speculation>,
}

impl CachedSession {
    /// `sequence` with an empty context: tokens fed before are forgotten, since nobody knows which they were.
    pub fn new(sequence: impl Sequence + 'static) -> Self {
        Self::from_box(Box::new(sequence))
    }

    /// As [`Self::new`].
    pub fn from_box(mut sequence: Box<dyn Sequence>) -> Self {
        // 0 can always be cut to.
        let _ = sequence.cut(0);
        Self { sequence, ids: Vec::new(), speculation: None }
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
        if self.sequence.cut(kept).is_err() {
            kept = 0;
            // 0 can always be cut to.
            let _ = self.sequence.cut(kept);
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

    /// Makes the sequence hold `ids` again, after rows that were taken back or a call that failed.
    pub(super) fn settle(&mut self) -> Result<(), model::Error> {
        let Self { sequence, ids, .. } = self;
        if sequence.cut(ids.len()).is_err() {
            // 0 can always be cut to. What is lost with that is fed again.
            let _ = sequence.cut(0);
        }
        while sequence.len() < ids.len() {
            let rest = &ids[sequence.len()..];
            sequence.prompt(&rest[..rest.len().min(sequence.chunk())])?;
        }
        Ok(())
    }
}
