//! Activations as a tile reads them: a few tokens side by side. What a group needs of all of them lies together, so that
//! each number is broadcast from memory at a constant distance from one address.
//!
//! ```text
//! block of W tokens   group 0 | group 1 | ...
//! group               W words: inputs 0..4 of each token | 4..8 | ... | 28..32
//!                     W i32:   where the integer sum starts (offset of the codes times sum of the activations)
//!                     W f32:   scale
//!                     W f32:   scale times sum, for a minimum
//!                     where halves of a group have scales of their own: W i32 and W f32, those of the second half
//! marks               a u32 a group: bit j says that a token of the block has a high byte in inputs 4 j .. 4 j + 4
//! high bytes          for each group with such bits, in order:
//!                     2 x W i32: where the integer sum of the high bytes starts, for each half of the group
//!                     W words for each of its bits: the high bytes of four inputs of each token
//! ```
//!
//! Marks and high bytes are there only if the precision of the activations has high bytes. A token whose own high bytes are 0
//! where another's are not adds a product of 0, so its bits do not depend on the tokens beside it.
//!
//! W is the tile's width, or 1 for a single token. In row-major order, the tokens of a tile would lie a power of two apart in
//! many models, and so compete for the same few lines of the first-level cache.

use crate::Context;
use crate::scratch::{Line, Purpose, with_lines};
use crate::simd::{Kernel, Simd};
use core::array;
use core::slice::ChunksExact;
use halfbyte_q8::{Activations, GROUP};

/// Words a group and token, without those of a second half.
pub(super) const WORDS: usize = 11;
/// Which of a group's words are these.
pub(super) const START: usize = 8;
pub(super) const SCALE: usize = 9;
pub(super) const WEIGHTED: usize = 10;

/// Of a second half.
const SECOND_START: usize = 11;
const SECOND_WEIGHTED: usize = 12;
/// Words a group and token where halves have scales of their own.
const WORDS_OF_HALVES: usize = 13;

/// The widest tile of any ISA.
const MAX_WIDTH: usize = 8;

/// Lines of `width` words that the high bytes of a group take at most.
const HIGH: usize = 2 + 8;

/// What the arrangement depends on.
#[derive(Clone, Copy)]
pub(super) struct Codes {
    /// What 4-bit codes of weights count from; `None` for 8-bit codes.
    pub(super) zero_point: Option<i32>,
    /// Whether halves of a group have scales of their own.
    pub(super) halves: bool,
}

impl Codes {
    /// Words a group and token.
    fn words(self) -> usize {
        if self.halves { WORDS_OF_HALVES } else { WORDS }
    }
}

/// All tokens of a product, in blocks of `width`.
#[derive(Clone, Copy)]
pub(super) struct Tokens<'a> {
    all: &'a [u32],
    pub(super) count: usize,
    pub(super) width: usize,
    sizes: Sizes,
}

/// Words of the parts of a block.
#[derive(Clone, Copy)]
struct Sizes {
    group: usize,
    words: usize,
    marks: usize,
    high: usize,
}

impl Sizes {
    fn of(x: &Activations, codes: Codes, width: usize) -> Self {
        let group = codes.words() * width;
        let (words, wide) = (x.groups() * group, x.precision().has_high_bytes());
        let marked = if wide { x.groups() } else { 0 };
        Self { group, words, marks: marked, high: marked * HIGH * width }
    }

    fn block(self) -> usize {
        self.words + self.marks + self.high
    }
}

/// Calls `f` with the tokens of `x`, arranged for such codes of weights.
pub(super) fn with_tokens<R>(
    ctx: Context<'_>,
    x: &Activations,
    codes: Codes,
    f: impl FnOnce(Tokens<'_>) -> R,
) -> R {
    let width = if x.rows() == 1 { 1 } else { ctx.isa.dispatch(Width) };
    let sizes = Sizes::of(x, codes, width);
    let total = x.rows().div_ceil(width) * sizes.block();
    with_lines(Purpose::Activations, total.div_ceil(16), |lines| {
        let all: &mut [u32] = &mut bytemuck::cast_slice_mut::<Line, u32>(lines)[..total];
        // A row of no columns has no words.
        ctx.pool.par_chunks_mut(all, sizes.block().max(1), |i, block| {
            let rows: [usize; MAX_WIDTH] = array::from_fn(|t| i * width + t);
            let count = width.min(x.rows() - i * width);
            arrange(ctx, x, &rows[..count], codes, (width, sizes), block);
        });
        f(Tokens { all, count: x.rows(), width, sizes })
    })
}

/// The same for several groups of tokens: group `g` has the rows `groups[g]` of `x`, which may stand in several.
pub(super) fn with_groups<R>(
    ctx: Context<'_>,
    x: &Activations,
    groups: &[&[usize]],
    codes: Codes,
    f: impl FnOnce(&[Tokens<'_>]) -> R,
) -> R {
    let tile = ctx.isa.dispatch(Width);
    let shape = |rows: &[usize]| {
        let width = if rows.len() == 1 { 1 } else { tile };
        (width, Sizes::of(x, codes, width))
    };
    let words = |rows: &[usize]| {
        let (width, sizes) = shape(rows);
        rows.len().div_ceil(width) * sizes.block()
    };
    let total: usize = groups.iter().map(|rows| words(rows)).sum();
    with_lines(Purpose::Activations, total.div_ceil(16), |lines| {
        let mut rest: &mut [u32] = &mut bytemuck::cast_slice_mut::<Line, u32>(lines)[..total];
        let mut parts = Vec::with_capacity(groups.len());
        for &rows in groups {
            let (part, others) = rest.split_at_mut(words(rows));
            parts.push((rows, part));
            rest = others;
        }
        ctx.pool.par_chunks_mut(&mut parts, 1, |_, part| {
            for (rows, words) in part {
                let (width, sizes) = shape(rows);
                for (block, rows) in words.chunks_exact_mut(sizes.block().max(1)).zip(rows.chunks(width)) {
                    arrange(ctx, x, rows, codes, (width, sizes), block);
                }
            }
        });
        let tokens = parts.into_iter().map(|(rows, all)| {
            let (width, sizes) = shape(rows);
            Tokens { all, count: rows.len(), width, sizes }
        });
        f(&tokens.collect::<Vec<_>>())
    })
}

/// Fills a block with some rows of `x`, as many as the block is wide or fewer.
fn arrange(
    ctx: Context<'_>,
    x: &Activations,
    rows: &[usize],
    codes: Codes,
    (width, sizes): (usize, Sizes),
    block: &mut [u32],
) {
    let (words, rest) = block.split_at_mut(sizes.words);
    let (marks, high) = rest.split_at_mut(sizes.marks);
    ctx.isa.dispatch(Arrange { x, rows, width, codes, words, marks, high });
}

impl<'a> Tokens<'a> {
    /// The groups of the block that starts with token `first`, a multiple of the width.
    #[inline(always)]
    pub(super) fn block(&self, first: usize) -> Groups<'a> {
        let block = &self.all[first / self.width * self.sizes.block()..][..self.sizes.block()];
        let (words, rest) = block.split_at(self.sizes.words);
        let (marks, high) = rest.split_at(self.sizes.marks);
        Groups { words: words.chunks_exact(self.sizes.group), marks, high, width: self.width }
    }
}

/// The groups of a block, one after the other.
pub(super) struct Groups<'a> {
    words: ChunksExact<'a, u32>,
    marks: &'a [u32],
    high: &'a [u32],
    width: usize,
}

impl<'a> Groups<'a> {
    /// Groups that are left.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    /// The next group's tokens `first..first + T`.
    ///
    /// # Panics
    /// If the block is not so wide.
    #[inline(always)]
    pub(super) fn next<const T: usize>(&mut self, first: usize) -> Option<Group<'a, T>> {
        let words = self.words.next()?;
        let mut group = Group::new(words, self.width, first);
        if let Some((&mark, rest)) = self.marks.split_first() {
            self.marks = rest;
            if mark != 0 {
                let (high, rest) = self.high.split_at((2 + mark.count_ones() as usize) * self.width);
                (group.mark, group.high, self.high) = (mark, &high[first..], rest);
            }
        }
        Some(group)
    }
}

/// `T` neighbouring tokens of one group of a block.
///
/// Its fields are private: what [`Self::new`] has checked makes every access by [`Self::word`] lie inside.
#[derive(Clone, Copy)]
pub(super) struct Group<'a, const T: usize> {
    /// At least `WORDS * width - first` words, from word 0 of the first of the tokens on.
    words: &'a [u32],
    width: usize,
    /// Which words of four inputs have high bytes; 0 for most groups.
    pub(super) mark: u32,
    /// From the first of the tokens on: where the sums of high bytes start, and a line for each bit of `mark`.
    high: &'a [u32],
}

impl<'a, const T: usize> Group<'a, T> {
    /// Tokens `first..first + T` of a group, whose `words` are those of all `width` tokens of the block.
    ///
    /// # Panics
    /// If the block is not so wide, or the words are not a group's.
    #[inline(always)]
    fn new(words: &'a [u32], width: usize, first: usize) -> Self {
        assert!(T <= width && first <= width - T && words.len() >= WORDS * width, "tokens of one block");
        Self { words: &words[first..], width, mark: 0, high: &[] }
    }

    /// Where the integer sum of half `half` of a group starts, and what its minimum is multiplied by, for token `t`.
    ///
    /// # Panics
    /// If there is no such token, or the second half has no words of its own.
    #[inline(always)]
    pub(super) fn half(&self, half: usize, t: usize) -> (u32, u32) {
        let (start, weighted) = if half == 0 { (START, WEIGHTED) } else { (SECOND_START, SECOND_WEIGHTED) };
        (self.words[start * self.width + t], self.words[weighted * self.width + t])
    }

    /// Where the sums of the high bytes of the halves start for the tokens (`line` 0 and 1), or the high bytes for the bit
    /// of `mark` that is number `line` from 2 on.
    ///
    /// # Panics
    /// If there is no such line.
    #[inline(always)]
    pub(super) fn high_line(&self, line: usize) -> &'a [u32] {
        &self.high[line * self.width..][..T]
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
        // that there are at least `WORDS * width - first`, which is more.
        unsafe { *self.words.get_unchecked(i * self.width + t) }
    }
}

/// The tile's width in tokens.
struct Width;

impl Kernel for Width {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> usize {
        const { assert!(S::INT_TILE <= MAX_WIDTH) };
        S::INT_TILE
    }
}

/// Fills a block with the tokens `rows`; what it has no tokens for becomes zero.
struct Arrange<'a> {
    x: &'a Activations,
    rows: &'a [usize],
    width: usize,
    codes: Codes,
    words: &'a mut [u32],
    marks: &'a mut [u32],
    high: &'a mut [u32],
}

impl Kernel for Arrange<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let width = self.width;
        let tokens = self.rows.iter().copied();
        if tokens.len() < width {
            self.words.fill(0);
        }
        // With 4-bit codes the sums of low bytes take off the offset for both bytes.
        let (factor, low_factor) = self.codes.zero_point.map_or((0, S::DOT8_START), |zero| (-zero, 0));
        let stride = self.codes.words() * width;
        for (t, token) in tokens.clone().enumerate() {
            let codes: &[[i8; 4]] = self.x.low(token).as_chunks().0;
            let parameters = self.x.scales(token).iter().zip(self.x.sums(token));
            let groups = self.words.chunks_exact_mut(stride).zip(codes.chunks_exact(8));
            for ((group, codes), (&scale, &sum)) in groups.zip(parameters) {
                for (j, &quad) in codes.iter().enumerate() {
                    group[j * width + t] = bytemuck::cast(quad);
                }
                group[SCALE * width + t] = scale.to_bits();
                let mut first = sum;
                if self.codes.halves {
                    let second = sum_of(codes[4..].as_flattened());
                    first = sum_of(codes[..4].as_flattened());
                    group[SECOND_START * width + t] = (low_factor * second).cast_unsigned();
                    group[SECOND_WEIGHTED * width + t] = (scale * second as f32).to_bits();
                }
                group[START * width + t] = ((factor + low_factor) * first).cast_unsigned();
                group[WEIGHTED * width + t] = (scale * first as f32).to_bits();
            }
        }
        self.marks.fill(0);
        for token in tokens.clone() {
            for (mark, &wide) in self.marks.iter_mut().zip(self.x.wide(token)) {
                *mark |= u32::from(wide);
            }
        }
        let mut high = self.high;
        for (g, (&mark, group)) in self.marks.iter().zip(self.words.chunks_exact_mut(stride)).enumerate() {
            if mark == 0 {
                continue;
            }
            let lines;
            (lines, high) = high.split_at_mut((2 + mark.count_ones() as usize) * width);
            lines.fill(0);
            for (t, token) in tokens.clone().enumerate() {
                let bytes = &self.x.high(token)[g * GROUP..][..GROUP];
                for (line, j) in (2..).zip((0..8).filter(|j| mark >> j & 1 == 1)) {
                    lines[line * width + t] = bytemuck::cast([0, 1, 2, 3].map(|i| bytes[4 * j + i]));
                }
                // 8-bit codes start each sum of bytes at a multiple of the sum of those bytes.
                let sums = [sum_of(&bytes[..GROUP / 2]), sum_of(&bytes[GROUP / 2..])];
                for (half, sum) in sums.into_iter().enumerate() {
                    lines[half * width + t] = (low_factor * sum).cast_unsigned();
                }
                if self.codes.halves {
                    // The sums above were of low bytes.
                    let scale = f32::from_bits(group[SCALE * width + t]);
                    let low = self.x.low(token)[g * GROUP..][..GROUP].as_chunks::<{ GROUP / 2 }>().0;
                    for (at, (low, high)) in [WEIGHTED, SECOND_WEIGHTED].into_iter().zip(low.iter().zip(sums))
                    {
                        group[at * width + t] = (scale * (sum_of(low) + 256 * high) as f32).to_bits();
                    }
                } else {
                    let start = &mut group[START * width + t];
                    *start = start.wrapping_sub((256 * low_factor * (sums[0] + sums[1])).cast_unsigned());
                }
            }
        }
    }
}

/// The sum of some bytes of codes.
#[inline(always)]
fn sum_of(bytes: &[i8]) -> i32 {
    bytes.iter().map(|&byte| i32::from(byte)).sum()
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
