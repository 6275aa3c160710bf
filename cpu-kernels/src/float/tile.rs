//! The register tile: a block of one panel by a few tokens.

#![allow(clippy::needless_range_loop, reason = "a token indexes several things at once")]

use super::source::Weight;
use crate::output::Output;
use crate::scratch::Line;
use crate::simd::{LANES, Simd};
use core::ops::Range;

/// A block of a panel, what it is multiplied by, and where the products go.
#[derive(Clone, Copy)]
pub(super) struct Tile<'a> {
    /// A line an input: sixteen f32, one a row.
    pub(super) weights: &'a [Line],
    /// All activations, `cols` a token; those of this block begin at input `from`.
    pub(super) x: &'a [f32],
    pub(super) cols: usize,
    pub(super) from: usize,
    /// The row of lane 0, and how many lanes are rows of the matrix.
    pub(super) first: usize,
    pub(super) valid: usize,
    pub(super) output: Output<'a>,
}

/// Adds the block's products with `tokens` to their outputs, which the first block of a row begins at 0.
#[inline(always)]
pub(super) fn multiply<S: Simd>(s: S, tile: Tile<'_>, tokens: Range<usize>) {
    let Range { start: mut token, end } = tokens;
    match S::FLOAT_TILE {
        16 => {
            while token + 16 <= end {
                tile.times::<S, 16>(s, token);
                token += 16;
            }
            if token + 8 <= end {
                tile.times::<S, 8>(s, token);
                token += 8;
            }
        }
        6 => {
            while token + 6 <= end {
                tile.times::<S, 6>(s, token);
                token += 6;
            }
        }
        _ => {}
    }
    if S::FLOAT_TILE > 4 && token + 4 <= end {
        tile.times::<S, 4>(s, token);
        token += 4;
    }
    while token < end {
        tile.times::<S, 1>(s, token);
        token += 1;
    }
}

impl Tile<'_> {
    /// Tokens `token..token + T`: the even inputs, then the odd ones. Lines of both halves are in the first-level cache.
    #[inline(always)]
    fn times<S: Simd, const T: usize>(self, s: S, token: usize) {
        let n = self.weights.len();
        let x = &self.x[token * self.cols..][..T * self.cols];
        assert!(self.from + n <= self.cols, "a block lies within its row");
        for parity in 0..2 {
            let mut sums = [s.splat(0.0); T];
            let mut k = parity;
            while k < n {
                let w = floats(s, &self.weights[k]);
                for t in 0..T {
                    let at = t * self.cols + self.from + k;
                    debug_assert!(at < x.len());
                    // SAFETY: `from + k < cols`, and there are `T` rows of `cols`.
                    let x = unsafe { *x.get_unchecked(at) };
                    sums[t] = s.fma(w, s.splat(x), sums[t]);
                }
                k += 2;
            }
            for t in 0..T {
                // SAFETY: this panel's rows are written by this work item alone.
                let y = unsafe { self.output.at(token + t, self.first, self.valid) };
                let total = if self.from == 0 && parity == 0 {
                    s.splat(0.0)
                } else if self.valid == LANES {
                    s.load_slice(y)
                } else {
                    s.load_partial(y)
                };
                s.store_up_to(y, s.add(total, sums[t]));
            }
        }
    }
}

/// The sixteen numbers of a line.
#[inline(always)]
fn floats<S: Simd>(s: S, line: &Line) -> S::F32 {
    // SAFETY: a line is 16 numbers of 32 bits.
    unsafe { s.load(line.0.as_ptr().cast()) }
}

/// Sixteen weights an input as lines of f32: as they are, if that is what they are, or widened in `wide`.
#[inline(always)]
pub(super) fn widen<'a, S: Simd, W: Weight>(s: S, weights: &'a [W], wide: &'a mut [Line]) -> &'a [Line] {
    if size_of::<W>() == size_of::<f32>() {
        // Blocks begin at a line.
        return bytemuck::cast_slice(weights);
    }
    let wide = &mut wide[..weights.len() / LANES];
    for (line, weights) in wide.iter_mut().zip(weights.chunks_exact(LANES)) {
        // SAFETY: `weights` are 16.
        let weights = unsafe { W::load(s, weights.as_ptr()) };
        // SAFETY: a line has room for 16 numbers of 32 bits.
        unsafe { s.store(line.0.as_mut_ptr().cast(), weights) };
    }
    wide
}

/// Adds to each total the products of its block, sixteen weights an input, with one token's `x`.
#[inline(always)]
pub(super) fn add_blocks<S: Simd, W: Weight, const N: usize>(
    s: S,
    weights: [&[W]; N],
    x: &[f32],
    totals: &mut [S::F32; N],
) {
    let mut sums = [[s.splat(0.0); 2]; N];
    for weights in weights {
        assert!(weights.len() >= x.len() * LANES, "sixteen weights an input");
    }
    let (pairs, last) = x.as_chunks::<2>();
    for (i, x) in pairs.iter().enumerate() {
        for parity in 0..2 {
            let x = s.splat(x[parity]);
            for n in 0..N {
                // SAFETY: there are sixteen weights for each of `x`.
                sums[n][parity] =
                    s.fma(unsafe { load_at(s, weights[n], 2 * i + parity) }, x, sums[n][parity]);
            }
        }
    }
    if let &[x_last] = last {
        for n in 0..N {
            // SAFETY: there are sixteen weights for each of `x`.
            sums[n][0] = s.fma(unsafe { load_at(s, weights[n], x.len() - 1) }, s.splat(x_last), sums[n][0]);
        }
    }
    for n in 0..N {
        totals[n] = s.add(s.add(totals[n], sums[n][0]), sums[n][1]);
    }
}

/// The sixteen weights of input `k`.
///
/// # Safety
/// There are so many.
#[inline(always)]
unsafe fn load_at<S: Simd, W: Weight>(s: S, weights: &[W], k: usize) -> S::F32 {
    debug_assert!((k + 1) * LANES <= weights.len());
    // SAFETY: inside `weights` by the caller's promise.
    let at = unsafe { weights.as_ptr().add(k * LANES) };
    // SAFETY: sixteen weights lie there.
    unsafe { W::load(s, at) }
}
