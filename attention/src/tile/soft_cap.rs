//! The soft cap of scores: `cap * tanh(x / cap)`.

use super::BLOCK;
use halfbyte_cpu_kernels::simd::{Kernel, LANES, Simd, tanh};

/// Caps the scores of the keys `from .. to` of a block; `from` is a multiple of 16. Numbers after them, up to a whole
/// vector, change, too.
pub(super) struct SoftCap<'a> {
    pub(super) cap: f32,
    /// The scores of one or more queries.
    pub(super) scores: &'a mut [[f32; BLOCK]],
    pub(super) from: usize,
    pub(super) to: usize,
}

impl Kernel for SoftCap<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let cap = s.splat(self.cap);
        for scores in self.scores {
            let scores = &mut scores[self.from..self.to.next_multiple_of(LANES)];
            for x in scores.chunks_exact_mut(LANES) {
                let y = s.mul(cap, tanh(s, s.div(s.load_slice(x), cap)));
                s.store_slice(x, y);
            }
        }
    }
}
