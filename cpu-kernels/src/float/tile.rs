//! The register tile: a few f32 rows by a few tokens, sixteen inputs at a time.

#![allow(clippy::needless_range_loop, reason = "a row or a token indexes several things at once")]

use crate::output::Output;
use crate::simd::{LANES, Simd};
use half::{bf16, f16};

/// Up to so many inputs a single token takes one row after the other, in one stream that the hardware prefetches: the
/// processor starts on the next row while it waits for the sums of this one. Longer rows go in fours.
const SHORT: usize = 64 * LANES;

/// Weights that a tile widens to f32 as it loads them.
pub(super) trait Weight: Copy + Send + Sync {
    /// Sixteen weights.
    ///
    /// # Safety
    /// `p` is valid for reading 16 of them.
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::F32;

    /// One weight.
    fn widen(self) -> f32;
}

impl Weight for f32 {
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { s.load(p) }
    }
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
}

impl Weight for f16 {
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { s.load_f16(p.cast()) }
    }
    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }
}

impl Weight for bf16 {
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { s.load_bf16(p.cast()) }
    }
    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }
}

/// Some rows, the tokens to multiply them by, and where the products go.
#[derive(Clone, Copy)]
pub(super) struct Product<'a, W> {
    /// Whole rows of `cols` weights.
    pub(super) rows: &'a [W],
    pub(super) cols: usize,
    /// The matrix row of `rows[0]`.
    pub(super) first: usize,
    /// `tokens` x `cols` activations.
    pub(super) x: &'a [f32],
    pub(super) tokens: usize,
    pub(super) output: Output<'a>,
}

/// Multiplies all rows by all tokens.
#[inline(always)]
pub(super) fn multiply<S: Simd, W: Weight>(s: S, p: Product<'_, W>) {
    match S::FLOAT_TILE {
        (4, 6) => p.tokens_by::<S, 4, 6>(s),
        (2, 3) => p.tokens_by::<S, 2, 3>(s),
        _ => p.tokens_by::<S, 1, 1>(s),
    }
}

/// Sixteen of `x` from `i` on.
///
/// # Safety
/// `i + 16` is at most the length of `x`.
#[inline(always)]
unsafe fn load_at<S: Simd, W: Weight>(s: S, x: &[W], i: usize) -> S::F32 {
    debug_assert!(i + LANES <= x.len());
    // SAFETY: inside `x` by the caller's promise.
    let at = unsafe { x.as_ptr().add(i) };
    // SAFETY: 16 are readable there by the caller's promise.
    unsafe { W::load(s, at) }
}

/// Up to sixteen weights, the missing ones 0.
#[inline(always)]
fn load_partial<S: Simd, W: Weight>(s: S, w: &[W]) -> S::F32 {
    let mut wide = [0.0; LANES];
    for (wide, w) in wide.iter_mut().zip(w) {
        *wide = w.widen();
    }
    s.load_slice(&wide)
}

impl<W: Weight> Product<'_, W> {
    #[inline(always)]
    fn tokens_by<S: Simd, const R: usize, const T: usize>(self, s: S) {
        let mut token = 0;
        while token + T <= self.tokens {
            self.rows_by::<S, R, T>(s, token);
            token += T;
        }
        while token < self.tokens {
            if self.cols <= SHORT {
                self.rows_by::<S, 1, 1>(s, token);
            } else {
                self.rows_by::<S, 4, 1>(s, token);
            }
            token += 1;
        }
    }

    #[inline(always)]
    fn rows_by<S: Simd, const R: usize, const T: usize>(self, s: S, token: usize) {
        let count = self.rows.len().checked_div(self.cols).unwrap_or(0);
        let mut row = 0;
        while row + R <= count {
            self.tile::<S, R, T>(s, row, token);
            row += R;
        }
        while row < count {
            self.tile::<S, 1, T>(s, row, token);
            row += 1;
        }
    }

    /// Rows `row..row + R` by tokens `token..token + T`.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const T: usize>(self, s: S, row: usize, token: usize) {
        let cols = self.cols;
        let w = &self.rows[row * cols..][..R * cols];
        let x = &self.x[token * cols..][..T * cols];
        let mut acc = [[s.splat(0.0); T]; R];
        let full = cols / LANES * LANES;
        let mut k = 0;
        while k < full {
            let mut xs = [s.splat(0.0); T];
            for t in 0..T {
                // SAFETY: `t * cols + k + 16` is within the `T` rows of `x`.
                xs[t] = unsafe { load_at(s, x, t * cols + k) };
            }
            for r in 0..R {
                // SAFETY: `r * cols + k + 16` is within the `R` rows of `w`.
                let ws = unsafe { load_at(s, w, r * cols + k) };
                if T == 1 && R > 1 {
                    // Used once, the rows come straight from memory: ask for those of the next tile.
                    s.prefetch(w.as_ptr().wrapping_add((r + R) * cols + k).cast());
                }
                for t in 0..T {
                    acc[r][t] = s.fma(ws, xs[t], acc[r][t]);
                }
            }
            k += LANES;
        }
        if full < cols {
            for r in 0..R {
                let ws = load_partial(s, &w[r * cols + full..(r + 1) * cols]);
                for t in 0..T {
                    let xs = s.load_partial(&x[t * cols + full..(t + 1) * cols]);
                    acc[r][t] = s.fma(ws, xs, acc[r][t]);
                }
            }
        }
        for t in 0..T {
            // SAFETY: these rows are written by this work item alone.
            let y = unsafe { self.output.at(token + t, self.first + row, R) };
            for r in 0..R {
                y[r] = s.reduce_add(acc[r][t]);
            }
        }
    }
}
