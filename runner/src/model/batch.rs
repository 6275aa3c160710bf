//! Several contexts of one model, fed together: each weight is read once for all of them.

use super::forward::Run;
use super::step::Buffers;
use super::{Error, Session};

/// Tokens for one of the contexts.
#[derive(Debug)]
pub struct Part<'a, 'm> {
    /// The context.
    pub session: &'a mut Session<'m>,
    /// The tokens to add to it.
    pub ids: &'a [u32],
    /// Whether the logits after the last of them are wanted.
    pub logits: bool,
}

/// Working memory for feeding contexts together.
#[derive(Debug, Default)]
pub struct Batch {
    buffers: Buffers,
}

impl Batch {
    /// Adds to each context its tokens, and calls `each(i, logits)` with the logits after the last token of every
    /// part `i` that wants them, in order.
    ///
    /// They have the bits that [`Session::feed`] gives, whatever else is fed in the same call. All tokens of a call
    /// take the forward pass at once: how many that may be is for the caller to limit.
    ///
    /// # Errors
    /// [`Error::NotTogether`], [`Error::NoTokens`], [`Error::Token`], [`Error::ContextFull`]; all contexts are
    /// unchanged then.
    pub fn feed(
        &mut self,
        parts: &mut [Part<'_, '_>],
        mut each: impl FnMut(usize, &mut [f32]),
    ) -> Result<(), Error> {
        let Some(first) = parts.first() else { return Ok(()) };
        let forward = first.session.forward();
        for part in &*parts {
            if !part.session.forward().is_with(&forward) {
                return Err(Error::NotTogether);
            }
            part.session.check(part.ids)?;
        }
        let before: Vec<usize> = parts.iter().map(|part| part.session.len()).collect();
        let mut runs: Vec<Run<'_>> = parts.iter_mut().map(|part| part.session.run(part.ids)).collect();
        if let Err(error) = forward.layers(&mut runs, &mut self.buffers) {
            for (part, before) in parts.iter_mut().zip(before) {
                part.session.truncate(before);
            }
            return Err(error);
        }
        let wanted = self.gather(parts, forward.model.config().width);
        if wanted.is_empty() {
            return Ok(());
        }
        forward.logits(0..wanted.len(), &mut self.buffers)?;
        let n_vocab = forward.model.config().n_vocab;
        for (i, logits) in wanted.into_iter().zip(self.buffers.logits.chunks_exact_mut(n_vocab)) {
            each(i, logits);
        }
        Ok(())
    }

    /// Moves the last residual stream of every part that wants logits to the front; returns those parts.
    fn gather(&mut self, parts: &[Part<'_, '_>], width: usize) -> Vec<usize> {
        let mut wanted = Vec::new();
        let mut end = 0;
        for (i, part) in parts.iter().enumerate() {
            end += part.ids.len();
            if part.logits {
                self.buffers.x.copy_within((end - 1) * width..end * width, wanted.len() * width);
                wanted.push(i);
            }
        }
        wanted
    }
}
