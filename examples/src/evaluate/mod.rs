//! How well a model predicts a text, and how far two models are apart on it.
//!
//! A text's tokens are cut into [windows](Windows); every window starts from an empty context. For each of its scored
//! tokens the logits after the token before give
//!
//! ```text
//! loss = logsumexp(logits) - logits[token]                          nats
//! KL   = sum over tokens t of p(t) (ln p(t) - ln q(t))               p: the base's softmax, q: the other's
//! ```
//!
//! in f64 from the session's f32 logits. [`Mean`] and [`quantile`] make figures of many of them; perplexity is
//! `exp` of the mean loss.

mod error;
mod stats;
mod windows;

pub use error::Error;
pub use stats::{Mean, argmax, kl_divergence, log_sum_exp, quantile};
pub use windows::{Window, Windows};

use std::ops::ControlFlow;

use crate::model::Session;

/// Tokens that are fed at once: two models side by side keep this many rows of logits, and a caller is asked this
/// often whether to go on.
const BLOCK: usize = 64;

/// Two models on one scored token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// The base's loss, in nats.
    pub base_loss: f64,
    /// The other model's loss, in nats.
    pub loss: f64,
    /// The divergence of the other model's distribution from the base's, in nats; exactly 0 for equal logits.
    pub kl: f64,
    /// Whether both find the same token the likeliest.
    pub same_top: bool,
}

/// The loss in nats of each of `ids[first_scored..]`, given all before it.
///
/// What `session` held is forgotten first. `go_on` is asked before every few dozen tokens; `None` if it said no.
///
/// # Errors
/// [`Error::FirstScored`] unless `first_scored` is at least 1 and below `ids.len()`; [`Error::NotFinite`]; those of
/// [`Session::feed`].
pub fn losses(
    session: &mut Session<'_>,
    ids: &[u32],
    first_scored: usize,
    mut go_on: impl FnMut() -> ControlFlow<()>,
) -> Result<Option<Vec<f64>>, Error> {
    let mut losses = Vec::new();
    let mut wrong = None;
    session.truncate(0);
    for block in blocks(ids, first_scored)? {
        if go_on().is_break() {
            return Ok(None);
        }
        session.feed_from(block.ids, block.first_wanted, |i, logits| {
            let loss = log_sum_exp(logits) - f64::from(logits[block.next[i] as usize]);
            if !loss.is_finite() {
                wrong.get_or_insert(block.start + i);
            }
            losses.push(loss);
        })?;
        if let Some(position) = wrong {
            return Err(Error::NotFinite { position });
        }
    }
    Ok(Some(losses))
}

/// [`losses`] for two models at once: what they make of each of `ids[first_scored..]`.
///
/// Both take the tokens in turns, a block at a time, so no more than that block's logits are held. The sessions'
/// models must have the same vocabulary.
///
/// # Errors
/// As [`losses`]; [`Error::Vocabularies`].
pub fn compare(
    base: &mut Session<'_>,
    session: &mut Session<'_>,
    ids: &[u32],
    first_scored: usize,
    mut go_on: impl FnMut() -> ControlFlow<()>,
) -> Result<Option<Vec<Comparison>>, Error> {
    let n_vocab = base.model().config().n_vocab;
    let got = session.model().config().n_vocab;
    if got != n_vocab {
        return Err(Error::Vocabularies { base: n_vocab, got });
    }
    let mut base_logits = vec![0.0; BLOCK * n_vocab];
    let mut comparisons = Vec::new();
    let mut wrong = None;
    base.truncate(0);
    session.truncate(0);
    for block in blocks(ids, first_scored)? {
        if go_on().is_break() {
            return Ok(None);
        }
        base.feed_from(block.ids, block.first_wanted, |i, logits| {
            base_logits[i * n_vocab..][..n_vocab].copy_from_slice(logits);
        })?;
        session.feed_from(block.ids, block.first_wanted, |i, logits| {
            let base_logits = &base_logits[i * n_vocab..][..n_vocab];
            let token = block.next[i] as usize;
            let (base_sum, sum) = (log_sum_exp(base_logits), log_sum_exp(logits));
            let comparison = Comparison {
                base_loss: base_sum - f64::from(base_logits[token]),
                loss: sum - f64::from(logits[token]),
                kl: kl_divergence((base_logits, base_sum), (logits, sum)),
                same_top: argmax(base_logits) == argmax(logits),
            };
            if !(comparison.base_loss.is_finite() && comparison.loss.is_finite() && comparison.kl.is_finite())
            {
                wrong.get_or_insert(block.start + i);
            }
            comparisons.push(comparison);
        })?;
        if let Some(position) = wrong {
            return Err(Error::NotFinite { position });
        }
    }
    Ok(Some(comparisons))
}

/// A few neighbouring tokens of a window.
struct Block<'a> {
    /// The first one's index in the window.
    start: usize,
    ids: &'a [u32],
    /// The index, among `ids`, of the first one after which logits are wanted; beyond the end if none is.
    first_wanted: usize,
    /// What follows each of `ids`.
    next: &'a [u32],
}

/// All tokens but the last, after which there is nothing to predict.
fn blocks(ids: &[u32], first_scored: usize) -> Result<impl Iterator<Item = Block<'_>>, Error> {
    if first_scored == 0 || first_scored >= ids.len() {
        return Err(Error::FirstScored { got: first_scored, tokens: ids.len() });
    }
    let fed = ids.len() - 1;
    Ok((0..fed).step_by(BLOCK).map(move |start| {
        let end = fed.min(start + BLOCK);
        let first_wanted = (first_scored - 1).saturating_sub(start);
        Block { start, ids: &ids[start..end], first_wanted, next: &ids[start + 1..=end] }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_all_tokens_but_the_last_once() {
        for (n, first_scored) in [(2, 1), (64, 1), (65, 64), (66, 1), (66, 65), (200, 101), (129, 128)] {
            let ids: Vec<u32> = (0..n as u32).collect();
            let mut fed: Vec<u32> = Vec::new();
            let mut scored: Vec<u32> = Vec::new();
            for block in blocks(&ids, first_scored).unwrap() {
                assert_eq!((block.start, block.ids.len()), (fed.len(), block.next.len()));
                fed.extend(block.ids);
                scored.extend(block.next.iter().skip(block.first_wanted));
            }
            assert_eq!(fed, ids[..n - 1], "{n} {first_scored}");
            assert_eq!(scored, ids[first_scored..], "{n} {first_scored}");
        }
    }

    #[test]
    fn there_must_be_a_token_to_score_and_one_before_it() {
        for (n, first_scored) in [(0, 0), (1, 1), (5, 0), (5, 5), (5, 9)] {
            let error = blocks(&vec![0; n], first_scored).err().unwrap();
            assert!(
                matches!(error, Error::FirstScored { got, tokens } if (got, tokens) == (first_scored, n)),
                "{error}"
            );
        }
    }
}
