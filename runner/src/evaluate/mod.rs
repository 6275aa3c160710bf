//! The loss of a model on a text, and the divergence of two models on it.
//!
//! A text's tokens are cut into [windows](Windows); every window starts from an empty context. The tokens before the first
//! scored one are fed as a prompt, and the scored ones as a reply. Where prompts and replies take different kernels, this
//! measures what the precision of a prompt does to the reply. The logits after the token before each scored token give
//!
//! ```text
//! loss = logsumexp(logits) - logits[token]                          nats
//! KL   = sum over tokens t of p(t) (ln p(t) - ln q(t))               p: the base's softmax, q: the other's
//! ```
//!
//! in f64 from the session's f32 logits. [`Mean`] and [`quantile`] summarise many of them; perplexity is `exp` of the mean
//! loss.

mod error;
mod stats;
mod windows;

pub use error::Error;
pub use stats::{Mean, argmax, kl_divergence, log_sum_exp, quantile};
pub use windows::{Window, Windows};

use std::ops::ControlFlow;

use crate::model::{self, Sequence};

/// The scored tokens that are fed at once: two models hold this many rows of logits each, and the caller is asked whether
/// to go on after so many tokens.
const BLOCK: usize = 64;

/// The figures of two models for one scored token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// The base's loss, in nats.
    pub base_loss: f64,
    /// The other model's loss, in nats.
    pub loss: f64,
    /// The divergence of the other model's distribution from the base's, in nats; exactly 0 for equal logits.
    pub kl: f64,
    /// Whether both give the largest logit to the same token.
    pub same_top: bool,
}

impl Comparison {
    /// Computes the figures from both models' logits for `token`.
    fn new(base: &[f32], logits: &[f32], token: usize) -> Self {
        let (base_sum, sum) = (log_sum_exp(base), log_sum_exp(logits));
        Self {
            base_loss: base_sum - f64::from(base[token]),
            loss: sum - f64::from(logits[token]),
            kl: kl_divergence((base, base_sum), (logits, sum)),
            same_top: argmax(base) == argmax(logits),
        }
    }

    fn is_finite(&self) -> bool {
        self.base_loss.is_finite() && self.loss.is_finite() && self.kl.is_finite()
    }
}

/// The loss in nats of each of `ids[first_scored..]`, given all before it.
///
/// The session is emptied first. `go_on` is asked before every chunk of the prompt and every few dozen scored tokens; the result
/// is `None` if it breaks.
///
/// # Errors
/// [`Error::FirstScored`] unless `first_scored` is at least 1 and below `ids.len()`; [`Error::NotFinite`]; those of
/// [`Sequence::prompt`].
pub fn losses(
    session: &mut dyn Sequence,
    ids: &[u32],
    first_scored: usize,
    mut go_on: impl FnMut() -> ControlFlow<()>,
) -> Result<Option<Vec<f64>>, Error> {
    let mut losses = Vec::new();
    let mut wrong = None;
    session.cut(0).map_err(model::Error::from)?;
    for part in parts(ids, first_scored, session.chunk())? {
        if go_on().is_break() {
            return Ok(None);
        }
        part.feed(session, |i, logits| {
            let loss = log_sum_exp(logits) - f64::from(logits[part.next[i] as usize]);
            if !loss.is_finite() {
                wrong.get_or_insert(part.position(i));
            }
            losses.push(loss);
        })?;
        if let Some(position) = wrong {
            return Err(Error::NotFinite { position });
        }
    }
    Ok(Some(losses))
}

/// Compares two models on each of `ids[first_scored..]`, as [`losses`] does for one.
///
/// Both are fed a part of the tokens in turns, so only the logits of one part are in memory. The sessions'
/// models must have the same vocabulary.
///
/// # Errors
/// As [`losses`]; [`Error::Vocabularies`].
pub fn compare(
    base: &mut dyn Sequence,
    session: &mut dyn Sequence,
    ids: &[u32],
    first_scored: usize,
    mut go_on: impl FnMut() -> ControlFlow<()>,
) -> Result<Option<Vec<Comparison>>, Error> {
    let (n_vocab, got) = (base.n_vocab(), session.n_vocab());
    if got != n_vocab {
        return Err(Error::Vocabularies { base: n_vocab, got });
    }
    let mut base_logits = vec![0.0; BLOCK * n_vocab];
    let mut comparisons = Vec::new();
    let mut wrong = None;
    base.cut(0).map_err(model::Error::from)?;
    session.cut(0).map_err(model::Error::from)?;
    for part in parts(ids, first_scored, base.chunk().min(session.chunk()))? {
        if go_on().is_break() {
            return Ok(None);
        }
        part.feed(base, |i, logits| base_logits[i * n_vocab..][..n_vocab].copy_from_slice(logits))?;
        part.feed(session, |i, logits| {
            let base_logits = &base_logits[i * n_vocab..][..n_vocab];
            let comparison = Comparison::new(base_logits, logits, part.next[i] as usize);
            if !comparison.is_finite() {
                wrong.get_or_insert(part.position(i));
            }
            comparisons.push(comparison);
        })?;
        if let Some(position) = wrong {
            return Err(Error::NotFinite { position });
        }
    }
    Ok(Some(comparisons))
}

/// A few neighbouring tokens of a window, either all of the prompt or all of the reply.
struct Part<'a> {
    /// The first one's index in the window.
    start: usize,
    ids: &'a [u32],
    prompt: bool,
    /// The scored tokens that follow: one after each token of a reply, one after the last token of a prompt.
    next: &'a [u32],
}

impl Part<'_> {
    /// Feeds the tokens, and calls `each(i, logits)` with the logits before `next[i]`.
    fn feed(
        &self,
        session: &mut dyn Sequence,
        mut each: impl FnMut(usize, &[f32]),
    ) -> Result<(), model::Error> {
        if !self.prompt {
            return session.window(self.ids, &mut |i, logits| each(i, logits));
        }
        let logits = session.prompt(self.ids)?;
        if !self.next.is_empty() {
            each(0, logits);
        }
        Ok(())
    }

    /// The index in the window of the token before `next[i]`.
    fn position(&self, i: usize) -> usize {
        self.start + self.ids.len() - self.next.len() + i
    }
}

/// Cuts all tokens but the last, after which there is nothing to predict.
fn parts(ids: &[u32], first_scored: usize, chunk: usize) -> Result<impl Iterator<Item = Part<'_>>, Error> {
    if first_scored == 0 || first_scored >= ids.len() {
        return Err(Error::FirstScored { got: first_scored, tokens: ids.len() });
    }
    let fed = ids.len() - 1;
    let prompt = (0..first_scored).step_by(chunk).map(move |start| {
        let end = first_scored.min(start + chunk);
        let next = if end == first_scored { &ids[end..=end] } else { &[] };
        Part { start, ids: &ids[start..end], prompt: true, next }
    });
    let reply = (first_scored..fed).step_by(BLOCK).map(move |start| {
        let end = fed.min(start + BLOCK);
        Part { start, ids: &ids[start..end], prompt: false, next: &ids[start + 1..=end] }
    });
    Ok(prompt.chain(reply))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_tokens_but_the_last_once() {
        for (n, first_scored) in [(2, 1), (64, 1), (65, 64), (66, 1), (66, 65), (200, 101), (129, 128)] {
            let ids: Vec<u32> = (0..n as u32).collect();
            for chunk in [1, 16, 100, 512] {
                let mut fed: Vec<u32> = Vec::new();
                let mut scored: Vec<u32> = Vec::new();
                for part in parts(&ids, first_scored, chunk).unwrap() {
                    assert_eq!((part.start, part.prompt), (fed.len(), fed.len() < first_scored));
                    assert!(part.ids.len() <= if part.prompt { chunk } else { BLOCK });
                    for (i, &id) in part.next.iter().enumerate() {
                        assert_eq!(ids[part.position(i) + 1], id, "{n} {first_scored} {chunk}");
                    }
                    fed.extend(part.ids);
                    scored.extend(part.next);
                }
                assert_eq!(fed, ids[..n - 1], "{n} {first_scored} {chunk}");
                assert_eq!(scored, ids[first_scored..], "{n} {first_scored} {chunk}");
            }
        }
    }

    #[test]
    fn there_must_be_a_token_to_score_and_one_before_it() {
        for (n, first_scored) in [(0, 0), (1, 1), (5, 0), (5, 5), (5, 9)] {
            let error = parts(&vec![0; n], first_scored, 512).err().unwrap();
            assert!(
                matches!(error, Error::FirstScored { got, tokens } if (got, tokens) == (first_scored, n)),
                "{error}"
            );
        }
    }
}
