//! The register tile: a block of one panel, or two, by a few tokens.

#![allow(clippy::needless_range_loop, reason = "a token or a panel indexes several things at once")]

use super::source::Weight;
use crate::output::Output;
use crate::scratch::Line;
use crate::simd::{Kernel, LANES, Simd};
use core::hint::black_box;
use core::ops::Range;

/// A block of neighbouring panels, what it is multiplied by, and where the products go.
#[derive(Clone, Copy)]
pub(super) struct Tile<'a, const P: usize> {
    /// A line an input, of each panel: sixteen f32, one a row.
    pub(super) weights: [&'a [Line]; P],
    /// All tokens in panels of sixteen, a line an input, `cols` lines each; those of this block begin at input `from`.
    pub(super) x: &'a [Line],
    pub(super) cols: usize,
    pub(super) from: usize,
    /// The row of lane 0 of the first panel.
    pub(super) first: usize,
    pub(super) output: Output<'a>,
}

/// Adds the block's products with `tokens`, from a multiple of sixteen on, to their outputs, which the first block of a
/// row begins at 0.
///
/// A kernel of its own, so that it is compiled once a path and not once a source of weights, too.
pub(super) struct Multiply<'a, const P: usize> {
    pub(super) tile: Tile<'a, P>,
    pub(super) tokens: Range<usize>,
}

impl<const P: usize> Kernel for Multiply<'_, P> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { tile, tokens } = self;
        for start in tokens.clone().step_by(LANES) {
            let n = LANES.min(tokens.end - start);
            let mut t = 0;
            if S::FLOAT_TILE >= 16 && P == 1 && n == 16 {
                tile.times::<S, 16>(s, start, 0);
                continue;
            }
            while S::FLOAT_TILE >= 16 && t + 8 <= n {
                tile.times::<S, 8>(s, start, t);
                t += 8;
            }
            while S::FLOAT_TILE == 6 && t + 6 <= n {
                tile.times::<S, 6>(s, start, t);
                t += 6;
            }
            while S::FLOAT_TILE >= 4 && t + 4 <= n {
                tile.times::<S, 4>(s, start, t);
                t += 4;
            }
            while t < n {
                tile.times::<S, 1>(s, start, t);
                t += 1;
            }
        }
    }
}

impl<const P: usize> Tile<'_, P> {
    /// Tokens `first..first + T` of the sixteen from token `start` on: the even inputs, then the odd ones. Lines of both
    /// halves are in the first-level cache.
    #[inline(always)]
    fn times<S: Simd, const T: usize>(self, s: S, start: usize, first: usize) {
        let n = self.weights[0].len();
        let weights = self.weights.map(|weights| &weights[..n]);
        let x = &self.x[start / LANES * self.cols + self.from..][..n];
        assert!(first + T <= LANES, "tokens of one panel");
        // In memory, wherever the compiler would have them: registers are for the odd sums then.
        let mut even = [[[0.0; LANES]; T]; P];
        for parity in 0..2 {
            let mut sums = [[s.splat(0.0); T]; P];
            let mut k = parity;
            while k < n {
                let w = weights.map(|weights| &weights[k]);
                let x = &x[k].0[first..first + T];
                for t in 0..T {
                    let x = s.splat(f32::from_bits(x[t]));
                    for p in 0..P {
                        sums[p][t] = s.fma(floats(s, w[p]), x, sums[p][t]);
                    }
                }
                k += 2;
            }
            for t in 0..T {
                for p in 0..P {
                    if parity == 0 {
                        s.store_slice(&mut even[p][t], sums[p][t]);
                    } else {
                        self.add(s, start + first + t, p, s.load_slice(&even[p][t]), sums[p][t]);
                    }
                }
            }
            black_box(&mut even);
        }
    }

    /// Adds a block's sums to the outputs that panel `p` has for token `token`.
    #[inline(always)]
    fn add<S: Simd>(self, s: S, token: usize, p: usize, even: S::F32, odd: S::F32) {
        let row = self.first + p * LANES;
        let valid = LANES.min(self.output.rows() - row);
        // SAFETY: bounds are checked; a panel belongs to one work item, so no other uses its rows.
        let y = unsafe { self.output.at(token, row, valid) };
        let total = if self.from == 0 {
            s.splat(0.0)
        } else if valid == LANES {
            s.load_slice(y)
        } else {
            s.load_partial(y)
        };
        s.store_up_to(y, s.add(s.add(total, even), odd));
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
