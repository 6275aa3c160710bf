//! Activations as a tile reads them: a few tokens side by side. What a group needs of all of them lies together, so that
//! each number is broadcast from memory at a constant distance from one address.
//!
//! ```text
//! block of W tokens   group 0 | group 1 | ...
//! group               W words: inputs 0..4 of each token | 4..8 | ... | 28..32
//!                     W i32:   where the integer sum starts (offset of the codes times sum of the activations)
//!                     W f32:   scale
//!                     W f32:   scale times sum, for a minimum
//! ```
//!
//! W is the tile's width, or 1 for a single token. In row-major order, the tokens of a tile would lie a power of two apart in
//! many models, and so compete for the same few lines of the first-level cache.

use crate::Context;
use crate::scratch::{Line, Purpose, with_lines};
use crate::simd::{Kernel, Simd};
use halfbyte_q8::Activations;

/// Words a group and token.
pub(super) const WORDS: usize = 11;
/// Which of a group's words are these.
pub(super) const START: usize = 8;
pub(super) const SCALE: usize = 9;
pub(super) const WEIGHTED: usize = 10;

/// All tokens of a product, in blocks of `width`.
#[derive(Clone, Copy)]
pub(super) struct Tokens<'a> {
    words: &'a [u32],
    pub(super) count: usize,
    pub(super) groups: usize,
    pub(super) width: usize,
}

/// Calls `f` with the tokens of `x`, arranged for codes that count from `zero_point`, or for 8-bit codes if it is `None`.
pub(super) fn with_tokens<R>(
    ctx: Context<'_>,
    x: &Activations,
    zero_point: Option<i32>,
    f: impl FnOnce(Tokens<'_>) -> R,
) -> R {
    let width = if x.rows() == 1 { 1 } else { ctx.isa.dispatch(Width) };
    let words = x.groups() * WORDS * width;
    let total = x.rows().div_ceil(width) * words;
    with_lines(Purpose::Activations, total.div_ceil(16), |lines| {
        let all: &mut [u32] = &mut bytemuck::cast_slice_mut::<Line, u32>(lines)[..total];
        // A row of no columns has no words.
        ctx.pool.par_chunks_mut(all, words.max(1), |i, block| {
            ctx.isa.dispatch(Arrange { x, first: i * width, width, zero_point, block });
        });
        f(Tokens { words: all, count: x.rows(), groups: x.groups(), width })
    })
}

impl<'a> Tokens<'a> {
    /// The block that starts with token `first`, a multiple of the width.
    #[inline(always)]
    pub(super) fn block(&self, first: usize) -> &'a [u32] {
        let words = self.groups * WORDS * self.width;
        &self.words[first / self.width * words..][..words]
    }
}

/// `T` neighbouring tokens of one group of a block.
///
/// Its fields are private: what [`Self::new`] has checked makes every access by [`Self::word`] lie inside.
#[derive(Clone, Copy)]
pub(super) struct Group<'a, const T: usize> {
    /// `WORDS * width - first` words, from word 0 of the first of the tokens on.
    words: &'a [u32],
    width: usize,
}

impl<'a, const T: usize> Group<'a, T> {
    /// Tokens `first..first + T` of a group, whose `words` are those of all `width` tokens of the block.
    ///
    /// # Panics
    /// If the block is not so wide, or the words are not a group's.
    #[inline(always)]
    pub(super) fn new(words: &'a [u32], width: usize, first: usize) -> Self {
        assert!(T <= width && first <= width - T && words.len() == WORDS * width, "tokens of one block");
        Self { words: &words[first..], width }
    }

    /// Word `i` of token `t`.
    ///
    /// # Panics
    /// If `i` is not below [`WORDS`] or `t` not below `T`. Both are constants in unrolled loops, where the check is
    /// made by the compiler.
    #[inline(always)]
    pub(super) fn word(&self, i: usize, t: usize) -> u32 {
        assert!(i < WORDS && t < T, "word of the group");
        // SAFETY: `i * width + t` is at most `(WORDS - 1) * width + T - 1`, and `new` checked that `first <= width - T`, so
        // that there are `WORDS * width - first`, which is more.
        unsafe { *self.words.get_unchecked(i * self.width + t) }
    }
}

/// The tile's width in tokens.
struct Width;

impl Kernel for Width {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> usize {
        S::INT_TILE
    }
}

/// Fills a block with the tokens from `first` on; what it has no tokens for becomes zero.
struct Arrange<'a> {
    x: &'a Activations,
    first: usize,
    width: usize,
    zero_point: Option<i32>,
    block: &'a mut [u32],
}

impl Kernel for Arrange<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let width = self.width;
        let tokens = width.min(self.x.rows() - self.first);
        if tokens < width {
            self.block.fill(0);
        }
        let factor = self.zero_point.map_or(S::DOT8_START, |zero| -zero);
        for t in 0..tokens {
            let codes: &[[i8; 4]] = self.x.codes(self.first + t).as_chunks().0;
            let (scales, sums) = (self.x.scales(self.first + t), self.x.sums(self.first + t));
            let parameters = scales.iter().zip(sums);
            let groups = self.block.chunks_exact_mut(WORDS * width).zip(codes.chunks_exact(8));
            for ((group, codes), (&scale, &sum)) in groups.zip(parameters) {
                for (j, &quad) in codes.iter().enumerate() {
                    group[j * width + t] = bytemuck::cast(quad);
                }
                group[START * width + t] = (factor * sum).cast_unsigned();
                group[SCALE * width + t] = scale.to_bits();
                group[WEIGHTED * width + t] = (scale * sum as f32).to_bits();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Group, WORDS};
    use std::panic::catch_unwind;

    #[test]
    fn a_group_gives_the_words_of_its_tokens_and_no_others() {
        let words: Vec<u32> = (0..4 * WORDS as u32).collect();
        let group = Group::<2>::new(&words, 4, 2);
        assert_eq!([group.word(0, 0), group.word(0, 1)], [2, 3]);
        assert_eq!(group.word(WORDS - 1, 1), words[words.len() - 1]);
        for (i, t) in [(WORDS, 0), (0, 2), (usize::MAX, 0)] {
            assert!(catch_unwind(|| group.word(i, t)).is_err(), "word {i} of token {t}");
        }
        for (words, width, first) in
            [(&words[..], 4, 3), (&words, 4, usize::MAX), (&words[1..], 4, 0), (&words, 1, 0)]
        {
            assert!(catch_unwind(|| Group::<2>::new(words, width, first)).is_err(), "{width} {first}");
        }
    }
}
