//! The soft cap of scores: `cap * tanh(x / cap)`.

use super::BLOCK;
use halfbyte_cpu_kernels::simd::{Kernel, LANES, Simd, exp};

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

/// `tanh(x)` within 4 units in the last place, -1 and 1 for infinities, NaN for NaN.
///
/// Below 0.625 the odd polynomial of Cephes' `tanhf`, above `1 - 2 / (exp(2 |x|) + 1)`.
#[inline(always)]
#[allow(clippy::excessive_precision, reason = "the published constants, digit for digit")]
fn tanh<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let bits = s.to_bits(x);
    let size = s.from_bits(s.and(bits, s.splat_i32(0x7fff_ffff)));
    let sign = s.and(bits, s.splat_i32(i32::MIN));
    let square = s.mul(x, x);
    let mut p = s.splat(-5.704_988_727_45e-3);
    for c in [2.063_908_879_54e-2, -5.373_971_555_31e-2, 1.333_144_220_36e-1, -3.333_328_194_22e-1] {
        p = s.fma(p, square, s.splat(c));
    }
    let small = s.fma(s.mul(p, square), x, x);
    let one = s.splat(1.0);
    let e = exp(s, s.add(size, size));
    let large = s.sub(one, s.div(s.splat(2.0), s.add(e, one)));
    let large = s.from_bits(s.or(s.to_bits(large), sign));
    s.select_lt(size, s.splat(0.625), small, large)
}
