//! Several sequences of one model, fed together: on the CPU each weight is read once for all of them.

use super::Error;
use super::forward::{Forward, Run};
use super::sequence::Sequence;
use super::session::{CpuSession, LOGIT_ROWS};
use super::step::Buffers;

/// Tokens for one of the sequences.
#[derive(Debug)]
pub struct Part<'a> {
    /// The sequence.
    pub sequence: &'a mut dyn Sequence,
    /// The tokens to add to it.
    pub ids: &'a [u32],
    /// After which of them logits are wanted.
    pub rows: Rows,
    /// Whether the likeliest token may take the place of the logits. A device that can choose tokens then does.
    pub greedy: bool,
}

/// The tokens after which logits are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// None: part of a prompt.
    None,
    /// The last one: the end of a prompt.
    Last,
    /// All: tokens of a reply, chosen or drafted.
    All,
}

/// What comes after a token.
#[derive(Debug)]
pub enum Row<'a> {
    /// Its logits.
    Logits(&'a mut [f32]),
    /// The likeliest next token.
    Token(u32),
}

/// Working memory for feeding sequences together.
#[derive(Debug, Default)]
pub struct Batch {
    buffers: Buffers,
}

impl Batch {
    /// Adds to each sequence its tokens, and calls `each(i, r, row)` with what comes after `parts[i].ids[r]`, for every row
    /// that is wanted, in order.
    ///
    /// It has the bits that feeding the sequence by itself gives, whatever else is fed in the same call. On the CPU all
    /// tokens of a call take the forward pass at once: how many that may be is for the caller to limit.
    ///
    /// # Errors
    /// [`Error::NoTokens`], [`Error::Token`], [`Error::ContextFull`]; those of a device. Sequences on the CPU that can be
    /// cut are unchanged then; of others, [`Sequence::len`] says what they hold.
    pub fn feed(
        &mut self,
        parts: &mut [Part<'_>],
        mut each: impl FnMut(usize, usize, Row<'_>),
    ) -> Result<(), Error> {
        if together(parts) {
            return self.feed_together(parts, &mut each);
        }
        for (i, part) in parts.iter_mut().enumerate() {
            feed_alone(part, &mut |row, value| each(i, row, value))?;
        }
        Ok(())
    }

    fn feed_together(
        &mut self,
        parts: &mut [Part<'_>],
        each: &mut dyn FnMut(usize, usize, Row<'_>),
    ) -> Result<(), Error> {
        let mut wanted = Vec::with_capacity(parts.len());
        let mut ends = 0;
        for (i, part) in parts.iter().enumerate() {
            let first = match part.rows {
                Rows::None => part.ids.len(),
                Rows::Last => part.ids.len().saturating_sub(1),
                Rows::All => 0,
            };
            wanted.extend((first..part.ids.len()).map(|row| (i, row, ends + row)));
            ends += part.ids.len();
        }
        let mut sessions: Vec<(&mut CpuSession, &[u32])> = parts
            .iter_mut()
            .filter_map(|part| part.sequence.as_cpu().map(|session| (session, part.ids)))
            .collect();
        let Some((first, _)) = sessions.first() else { return Ok(()) };
        let forward: Forward = first.forward().clone();
        for (session, ids) in &sessions {
            session.check(ids)?;
        }
        let before: Vec<usize> = sessions.iter().map(|(session, _)| session.len()).collect();
        let mut runs: Vec<Run<'_>> = sessions.iter_mut().map(|(session, ids)| session.run(ids)).collect();
        if let Err(error) = forward.layers(&mut runs, &mut self.buffers) {
            for ((session, _), before) in sessions.iter_mut().zip(before) {
                // What cannot be cut says by its length what it holds.
                let _ = session.cut(before);
            }
            return Err(error);
        }
        let (width, n_vocab) = (forward.model.description().width, forward.model.description().n_vocab);
        for (to, &(_, _, from)) in wanted.iter().enumerate() {
            self.buffers.x.copy_within(from * width..(from + 1) * width, to * width);
        }
        for (group, wanted) in wanted.chunks(LOGIT_ROWS).enumerate() {
            let first = group * LOGIT_ROWS;
            forward.logits(first..first + wanted.len(), &mut self.buffers)?;
            for (&(i, row, _), logits) in wanted.iter().zip(self.buffers.logits.chunks_exact_mut(n_vocab)) {
                each(i, row, Row::Logits(logits));
            }
        }
        Ok(())
    }
}

/// Whether all parts are sessions on the CPU that compute in one way, and more than one: a single session has working
/// memory of its own.
fn together(parts: &mut [Part<'_>]) -> bool {
    let mut parts = parts.iter_mut().map(|part| part.sequence.as_cpu().map(|session| session.forward()));
    let Some(Some(first)) = parts.next() else { return false };
    let mut others = parts.peekable();
    others.peek().is_some() && others.all(|other| other.is_some_and(|other| first.is_with(other)))
}

/// Feeds one sequence by itself.
fn feed_alone(part: &mut Part<'_>, each: &mut dyn FnMut(usize, Row<'_>)) -> Result<(), Error> {
    let Part { sequence, ids, rows, greedy } = part;
    let last = ids.len().saturating_sub(1);
    if *greedy
        && *rows != Rows::None
        && let Some(device) = sequence.greedy()
    {
        return match rows {
            Rows::Last => device.prompt_token(ids).map(|token| each(last, Row::Token(token))),
            _ => device.window_tokens(ids, &mut |row, token| each(row, Row::Token(token))),
        };
    }
    match rows {
        Rows::None => sequence.prompt(ids).map(|_| ()),
        Rows::Last => sequence.prompt(ids).map(|logits| each(last, Row::Logits(logits))),
        Rows::All => sequence.window(ids, &mut |row, logits| each(row, Row::Logits(logits))),
    }
}
