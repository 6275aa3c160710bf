//! The online softmax: one step, for one query and one block.
//!
//! `m` is the largest score so far, and `l` the sum of the weights so far, in sixteen lanes by key modulo 16. A block with
//! scores `x` changes them:
//!
//! ```text
//! m'    = max(m, x[0], x[1], ..)
//! alpha = exp(m - m')                  the factor for the results of earlier blocks
//! p[j]  = exp(x[j] - m')               the block's weights
//! l     = l * alpha + p[0..16] + p[16..32] + ..
//! ```

use super::BLOCK;
use super::state::finite_or_zero;
use halfbyte_cpu_kernels::simd::{Kernel, LANES, Simd, exp};

/// Replaces the scores of the keys `seen.0 .. seen.1` by weights and returns `alpha`. It is a kernel of its own so that it
/// is compiled once for each ISA and not into every kind of tile.
pub(super) struct Softmax<'a> {
    /// The weights of keys outside `seen` become 0, as far as they share a vector with keys inside.
    pub(super) scores: &'a mut [f32; BLOCK],
    /// `seen.0 < seen.1 <= BLOCK`.
    pub(super) seen: (usize, usize),
    pub(super) max: &'a mut f32,
    /// 16 elements.
    pub(super) sums: &'a mut [f32],
}

impl Kernel for Softmax<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let Self { scores, seen, max, sums } = self;
        let used = (seen.0 - seen.0 % LANES, seen.1.next_multiple_of(LANES));
        scores[used.0..seen.0].fill(f32::NEG_INFINITY);
        scores[seen.1..used.1].fill(f32::NEG_INFINITY);
        let scores = &mut scores[used.0..used.1];
        let mut largest = s.splat(f32::NEG_INFINITY);
        for x in scores.chunks_exact(LANES) {
            largest = s.max(largest, s.load_slice(x));
        }
        let largest = s.reduce_max(largest);
        let new = if *max > largest { *max } else { largest };
        let base = s.splat(finite_or_zero(new));
        // Late blocks rarely raise the maximum. If it stays, the formula gives exactly 1, and `exp` can be skipped.
        let unchanged = *max == new && new.is_finite();
        let alpha = if unchanged { s.splat(1.0) } else { exp(s, s.sub(s.splat(*max), base)) };
        let mut sum = s.mul(s.load_slice(sums), alpha);
        for x in scores.chunks_exact_mut(LANES) {
            let p = exp(s, s.sub(s.load_slice(x), base));
            s.store_slice(x, p);
            sum = s.add(sum, p);
        }
        *max = new;
        s.store_slice(sums, sum);
        s.to_array(alpha)[0]
    }
}
