//! Lossless speculative decoding: tokens are drafted cheaply and verified together in one window of rows.
//!
//! ```text
//! context .. x         the next token, x, is chosen but not yet fed
//! draft   a b c        copied from the context, or made by a small model
//! window  x a b c      fed together: logits after each of them
//! choose  a b d        the sampler, row by row, exactly as without a draft; d is not c, so c is taken back
//! ```
//!
//! A row's logits do not depend on the rows beside it, to the bit, and the sampler is asked once for every token of the
//! reply, in order: so a reply is the same with drafts and without, whether greedy or sampled. Drafts change only
//! the speed. How many tokens are drafted follows from measured costs and acceptance rates.

mod lookup;
mod pricing;

use std::time::Duration;

use crate::generate::CachedSession;
use crate::model;
use pricing::Pricing;

/// The most drafted tokens of a window: with the token before them as many rows as logits are made of at once.
pub const MOST: usize = 15;

/// Counts of the drafts of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drafts {
    /// Windows verified.
    pub windows: usize,
    /// Tokens drafted in them.
    pub drafted: usize,
    /// Tokens that the sampler chose as well.
    pub accepted: usize,
}

/// Makes drafts for a [`CachedSession`].
#[derive(Debug)]
pub struct Speculation {
    /// A small model of the same vocabulary; without one, drafts are copied.
    model: Option<Box<CachedSession>>,
    /// The number of tokens to draft each time, instead of as many as pay.
    fixed: Option<usize>,
    pricing: Pricing,
    drafts: Drafts,
}

/// A draft, perhaps empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draft {
    pub(crate) ids: Vec<u32>,
    /// The kind of draft, whose acceptance rate is estimated by itself.
    kind: usize,
}

impl Speculation {
    /// Drafts copied from the context, as many tokens as pay.
    pub fn copied() -> Self {
        // By the length of the match: 2, 3, 4 to 5, 6 and more.
        Self {
            model: None,
            fixed: None,
            pricing: Pricing::new(&[0.3, 0.5, 0.65, 0.8], MOST),
            drafts: Drafts::default(),
        }
    }

    /// Drafts made greedily by `model`, as many tokens as pay.
    ///
    /// Its vocabulary must be that of the model that it drafts for; ids that mean something else there make useless
    /// drafts, not other replies.
    pub fn by_model(model: CachedSession) -> Self {
        Self { model: Some(Box::new(model)), pricing: Pricing::new(&[0.7], MOST), ..Self::copied() }
    }

    /// The same with `n` tokens a draft, 1 to [`MOST`], whether they pay or not.
    #[must_use]
    pub fn with_fixed(self, n: usize) -> Self {
        Self { fixed: Some(n.clamp(1, MOST)), ..self }
    }

    /// What drafts have come to so far.
    pub fn drafts(&self) -> Drafts {
        self.drafts
    }

    /// A draft of at most `most` tokens for what comes after `ids`, all of them below `n_vocab`.
    pub(crate) fn draft(&mut self, ids: &[u32], most: usize, n_vocab: usize) -> Result<Draft, model::Error> {
        if let Some(model) = &mut self.model {
            // Up to the last drafted token but one has to fit.
            let room = (model.context() + 1).saturating_sub(ids.len());
            let n = match self.fixed {
                Some(n) => n.min(most).min(room),
                None => self.pricing.choose(0, most.min(room)),
            };
            let mut ids = continuation(model, ids, n)?;
            // Another model may have more tokens.
            let known = ids.iter().take_while(|&&id| (id as usize) < n_vocab).count();
            ids.truncate(known);
            return Ok(Draft { ids, kind: 0 });
        }
        let Some(found) = lookup::find(ids) else { return Ok(Draft::default()) };
        let kind = match found.length {
            0..=2 => 0,
            3 => 1,
            4..=5 => 2,
            _ => 3,
        };
        let n = match self.fixed {
            Some(n) => n.min(most),
            None => self.pricing.choose(kind, most),
        };
        Ok(Draft { ids: lookup::copy(ids, found, n), kind })
    }

    /// Takes in that the first `accepted` tokens of a draft were right, and that drafting and verifying took `time`.
    pub(crate) fn verified(&mut self, draft: &Draft, accepted: usize, time: Duration) {
        let seconds = time.as_secs_f64();
        if draft.ids.is_empty() {
            self.pricing.stepped(seconds);
            return;
        }
        self.pricing.verified(draft.kind, draft.ids.len(), accepted, seconds);
        self.drafts.windows += 1;
        self.drafts.drafted += draft.ids.len();
        self.drafts.accepted += accepted;
    }
}

/// The `n` tokens that `model` finds the likeliest after `ids`.
fn continuation(model: &mut CachedSession, ids: &[u32], n: usize) -> Result<Vec<u32>, model::Error> {
    let mut draft = Vec::with_capacity(n);
    if n > 0 {
        let kept = model.reuse(ids);
        let mut next = likeliest(model.feed(&ids[kept..])?);
        draft.push(next);
        // A state that can't be cut goes back to the end of `ids` now; another is cut by the next `reuse`.
        if n > 1 && !model.prepare_to_take_back() {
            return Ok(draft);
        }
        while draft.len() < n {
            next = likeliest(model.feed(&[next])?);
            draft.push(next);
        }
        if !model.can_cut() {
            model.take_back(ids.len())?;
        }
    }
    Ok(draft)
}

/// The first of the highest logits.
fn likeliest(logits: &[f32]) -> u32 {
    let best = (0_u32..).zip(logits).reduce(|a, b| if b.1 > a.1 { b } else { a });
    best.map_or(0, |(id, _)| id)
}
