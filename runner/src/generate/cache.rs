//! A sequence that knows its tokens.
//!
//! A state that can't be cut is marked at the ends of a prompt's parts, shortly before its end and at its end:
//!
//! ```text
//! prompt   |--------|--------|-----|--| reply ...
//! marks             x        x     x  x
//! ```
//!
//! A prompt that differs from the context goes back to the last mark before the difference. Chat templates write the end of
//! a prompt in another way once there is a reply behind it, which is why there is a mark before the last few tokens.

use crate::model::{self, SavedState, Sequence};
use crate::speculate::{Drafts, Speculation};

/// A sequence that knows the tokens in its context, so that the next prompt need feed only what is new.
#[derive(Debug)]
pub struct CachedSession {
    pub(super) sequence: Box<dyn Sequence>,
    pub(super) ids: Vec<u32>,
    pub(super) speculation: Option<Speculation>,
    /// Earlier states, which hold the first of `ids`, the shortest first: where the state can't be cut, prompts that
    /// begin like the context start from one of them.
    marks: Vec<SavedState>,
    /// The state before the last draft.
    before_draft: Option<SavedState>,
}

/// The most marks of a sequence.
const MOST_MARKS: usize = 8;

/// Bytes that the marks of a sequence take at most, as long as there are more than two.
const MARK_BYTES: usize = 512 << 20;

/// The least number of tokens between two marks that a prompt's parts make.
const MARK_DISTANCE: usize = 64;

/// Tokens at the end of a prompt that may be other ones in the next prompt.
const LAST_TOKENS: usize = 8;

/// Where the last mark before the end of a prompt is: at a multiple of the distance, and not among the last tokens.
fn last_mark(prompt: usize) -> usize {
    prompt.saturating_sub(LAST_TOKENS) / MARK_DISTANCE * MARK_DISTANCE
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
        Self { sequence, ids: Vec::new(), speculation: None, marks: Vec::new(), before_draft: None }
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
        if self.sequence.cut(kept).is_err() {
            kept = self.go_back(kept);
        }
        self.before_draft = None;
        self.marks.retain(|mark| mark.len() <= kept);
        // After an error the sequence may hold less than `ids`.
        kept = kept.min(self.sequence.len());
        self.ids.truncate(kept);
        kept
    }

    /// How many tokens of `prompt` need not be fed: never the last one.
    fn shared(&self, prompt: &[u32]) -> usize {
        let same = self.ids.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        same.min(prompt.len().saturating_sub(1))
    }

    /// How many tokens of `prompt` [`Self::reuse`] would keep.
    pub(super) fn reusable(&self, prompt: &[u32]) -> usize {
        let shared = self.shared(prompt);
        if self.sequence.can_cut() || shared == self.sequence.len() {
            return shared;
        }
        self.marks.iter().map(SavedState::len).filter(|&len| len <= shared).max().unwrap_or(0)
    }

    /// Goes back to the last mark of at most `len` tokens, or else forgets all tokens. Returns how many the sequence holds.
    fn go_back(&mut self, len: usize) -> usize {
        let marks = self.marks.iter().chain(&self.before_draft);
        let earlier = marks.filter(|mark| mark.len() <= len).max_by_key(|mark| mark.len());
        if earlier.is_none_or(|earlier| self.sequence.rewind(earlier).is_err()) {
            // 0 can always be cut to. What is lost with that is fed again.
            let _ = self.sequence.cut(0);
        }
        self.sequence.len()
    }

    /// The part of `prompt` that is fed next, of at most `most` tokens: where the state can't be cut, it ends where there is
    /// to be a mark.
    pub(super) fn next_part<'p>(&self, prompt: &'p [u32], most: usize) -> &'p [u32] {
        let fed = self.ids.len();
        let mark = last_mark(prompt.len());
        let end = if !self.sequence.can_cut() && mark > fed { mark } else { prompt.len() };
        &prompt[fed..end.min(fed.saturating_add(most))]
    }

    /// Marks the state behind a part of a prompt of `prompt` tokens, if it can't be cut.
    pub(super) fn mark(&mut self, prompt: usize) {
        let (len, before) = (self.ids.len(), self.marks.last().map_or(0, SavedState::len));
        let wanted = if len == prompt {
            len > before
        } else {
            len >= before + MARK_DISTANCE && len <= last_mark(prompt)
        };
        if self.sequence.can_cut() || !wanted {
            return;
        }
        // Without a mark, a later prompt starts from an earlier one.
        let Ok(mark) = self.sequence.mark() else { return };
        self.marks.push(mark);
        let bytes = |marks: &[SavedState]| marks.iter().map(SavedState::bytes).sum::<usize>();
        while self.marks.len() > MOST_MARKS || (self.marks.len() > 2 && bytes(&self.marks) > MARK_BYTES) {
            // The two last stay. Of the others the one goes whose neighbours are closest to each other.
            let start = |i: usize| if i == 0 { 0 } else { self.marks[i - 1].len() };
            let gap = |&i: &usize| self.marks[i + 1].len() - start(i);
            let Some(closest) = (0..self.marks.len() - 2).min_by_key(gap) else { return };
            self.marks.remove(closest);
        }
    }

    /// Holds or marks the state if it can't be cut, so that tokens that are fed from now on can be taken back. Returns false
    /// if neither works: taking tokens back would then feed the whole context again.
    pub(crate) fn prepare_to_take_back(&mut self) -> bool {
        self.before_draft = None;
        if self.sequence.can_cut() || self.sequence.hold() {
            return true;
        }
        if self.marks.last().is_some_and(|mark| mark.len() == self.ids.len()) {
            return true;
        }
        self.before_draft = self.sequence.mark().ok();
        self.before_draft.is_some()
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
        if self.sequence.cut(self.ids.len()).is_err() {
            let held = self.go_back(self.ids.len());
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
