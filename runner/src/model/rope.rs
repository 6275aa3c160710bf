//! The rotations of a description, and what becomes of them in a long context.

use std::borrow::Cow;

use halfbyte_cpu_kernels::{RopeOrder, RopeTable};

/// Rotations of queries and keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Radians a position for each rotated pair, scaling included.
    pub frequencies: Vec<f64>,
    /// The frequencies of sessions with a longer context, if they are others.
    pub long: Option<LongRope>,
    /// What rotated elements are multiplied by: the attention factor of YaRN and LongRoPE.
    pub magnitude: f64,
    /// Which elements of a head are rotated together.
    pub order: RopeOrder,
}

/// The frequencies of sessions that have room for more than `context` tokens.
///
/// The room that a session is made with decides, as in llama.cpp, and not the number of tokens so far, as in
/// transformers: keys are rotated when they enter the cache, so a change on the way would leave keys of both kinds in
/// it, and the logits would depend on how a prompt was cut.
#[derive(Clone, Debug, PartialEq)]
pub struct LongRope {
    /// The longest context of the frequencies of [`Rope::frequencies`].
    pub context: usize,
    /// What takes their place.
    pub frequencies: LongFrequencies,
}

/// Frequencies of a long context.
#[derive(Clone, Debug, PartialEq)]
pub enum LongFrequencies {
    /// These, whatever the length: LongRoPE.
    Fixed(Vec<f64>),
    /// Those of a base that grows with the context: dynamic NTK scaling. For a context of `r` times the original
    /// one and `d` rotated elements it is `base * (factor * r - (factor - 1))^(d / (d - 2))`.
    Dynamic {
        /// The base without scaling.
        base: f64,
        /// The scaling factor.
        factor: f64,
    },
}

impl Rope {
    /// Rotations by these frequencies at any length.
    pub fn new(frequencies: Vec<f64>, order: RopeOrder) -> Self {
        Self { frequencies, long: None, magnitude: 1.0, order }
    }

    /// The frequencies of a session with room for `context` tokens.
    pub fn frequencies_for(&self, context: usize) -> Cow<'_, [f64]> {
        match &self.long {
            Some(long) if context > long.context => match &long.frequencies {
                LongFrequencies::Fixed(frequencies) => Cow::Borrowed(frequencies),
                LongFrequencies::Dynamic { base, factor } => {
                    let dims = 2 * self.frequencies.len();
                    let base = dynamic_base(*base, *factor, dims, context as f64 / long.context as f64);
                    Cow::Owned(RopeTable::plain_frequencies(base, dims))
                }
            },
            _ => Cow::Borrowed(&self.frequencies),
        }
    }

    /// A table of the rotations of a session with room for `context` tokens, still without positions.
    pub fn table(&self, context: usize) -> RopeTable {
        RopeTable::new(self.frequencies_for(context).into_owned(), self.order).with_magnitude(self.magnitude)
    }

    /// What sessions with room for `context` tokens have in common with others whose keys they can take over: a number
    /// that differs where the frequencies do.
    pub(super) fn kind(&self, context: usize) -> usize {
        match &self.long {
            Some(LongRope { context: short, frequencies }) if context > *short => match frequencies {
                LongFrequencies::Fixed(_) => 1,
                LongFrequencies::Dynamic { .. } => context,
            },
            _ => 0,
        }
    }
}

/// The base of dynamic NTK scaling for a context of `ratio` times the original one, at least 1, and `dims` rotated
/// elements: `base * (factor * ratio - (factor - 1))^(dims / (dims - 2))`.
///
/// Source: `_compute_dynamic_ntk_parameters` of transformers.
fn dynamic_base(base: f64, factor: f64, dims: usize, ratio: f64) -> f64 {
    if dims <= 2 {
        // One pair turns by a radian a position, whatever the base.
        return base;
    }
    let dims = dims as f64;
    base * (factor * ratio - (factor - 1.0)).powf(dims / (dims - 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_context_has_other_frequencies() {
        let mut rope = Rope::new(vec![1.0, 0.01], RopeOrder::Halves);
        assert_eq!((rope.frequencies_for(1 << 20).as_ref(), rope.kind(1 << 20)), (&[1.0, 0.01][..], 0));
        rope.long = Some(LongRope { context: 8, frequencies: LongFrequencies::Fixed(vec![0.5, 0.25]) });
        assert_eq!((rope.frequencies_for(8).as_ref(), rope.kind(8)), (&[1.0, 0.01][..], 0));
        assert_eq!((rope.frequencies_for(9).as_ref(), rope.kind(9)), (&[0.5, 0.25][..], 1));
        let frequencies = LongFrequencies::Dynamic { base: 10_000.0, factor: 2.0 };
        rope.long = Some(LongRope { context: 8, frequencies });
        assert_eq!((rope.frequencies_for(8).as_ref(), rope.kind(8)), (&[1.0, 0.01][..], 0));
        // Twice the context: 10,000 * (2 * 2 - 1)^(4 / 2) = 90,000, and 1 / sqrt(90,000) = 1 / 300.
        let long = rope.frequencies_for(16);
        assert!(long[0] == 1.0 && (long[1] - 1.0 / 300.0).abs() < 1e-15, "{long:?}");
        assert_eq!(rope.kind(16), 16);
    }
}
