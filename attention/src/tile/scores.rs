//! The scores: dot products of up to four queries with the keys of a block.
//!
//! Keys are in panels, one key a lane. A score is the sum of two chains of fused multiply-adds that start at zero: one over
//! the even numbers of the head plus one over the odd ones.

use super::{BLOCK, QUAD, Weights, register_rich};
use crate::rows::Element;
use halfbyte_cpu_kernels::simd::{LANES, Simd};

/// The number of panels in a block.
const PANELS: usize = BLOCK / LANES;

/// Computes the scores of `L` queries, `stride` elements each and one after the other at `q`, with the keys of the panels
/// `panels.0 .. panels.1` of a block, whose first panel is at `k`: `out[i][16 * p..][..16]` for query `i` and panel `p`.
///
/// # Safety
/// `L * stride` f32 are readable at `q` and `16 * panels.1 * stride` elements at `k`; `L <= QUAD`, and `panels.1` is at most
/// a block's.
#[inline(always)]
pub(super) unsafe fn scores<S: Simd, E: Element, const L: usize>(
    s: S,
    stride: usize,
    q: *const f32,
    k: *const E,
    (first, last): (usize, usize),
    prefetch: bool,
    out: &mut Weights,
) {
    debug_assert!(last <= PANELS && L <= QUAD);
    let mut panel = first;
    // As many sums as fit in registers; a single query needs four panels for enough independent sums.
    macro_rules! panels {
        ($n:literal) => {
            while last - panel >= $n {
                // SAFETY: the caller's promise; these panels are among the readable ones.
                unsafe { some::<S, E, L, $n>(s, stride, q, k, panel, prefetch, out) };
                panel += $n;
            }
        };
    }
    if const { register_rich::<S>() || L == 1 } {
        panels!(4);
    }
    if const { register_rich::<S>() || L <= 2 } {
        panels!(2);
    }
    panels!(1);
}

/// [`scores`] with `P` panels from panel `panel` on.
///
/// # Safety
/// As for [`scores`], and `panel + P <= panels.1`.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "a kernel inlined at its call sites")]
unsafe fn some<S: Simd, E: Element, const L: usize, const P: usize>(
    s: S,
    stride: usize,
    q: *const f32,
    k: *const E,
    panel: usize,
    prefetch: bool,
    out: &mut Weights,
) {
    let mut totals = [[s.splat(0.0); P]; L];
    for parity in 0..2 {
        let mut sums = [[s.splat(0.0); P]; L];
        let mut d = parity;
        while d < stride {
            let mut keys = [s.splat(0.0); P];
            for j in 0..P {
                // SAFETY: the sixteen numbers `d` of panel `panel + j`.
                let p = unsafe { k.add(((panel + j) * stride + d) * LANES) };
                // An even number of an f16 panel and the odd one after it share a cache line.
                if E::STREAMED && prefetch && parity == 0 {
                    s.prefetch(p.wrapping_add(BLOCK * stride).cast());
                }
                // SAFETY: as above.
                keys[j] = unsafe { E::load(s, p) };
            }
            for i in 0..L {
                // SAFETY: number `d` of query `i`.
                let query = unsafe { q.add(i * stride + d) };
                // SAFETY: as above.
                let query = s.splat(unsafe { *query });
                for j in 0..P {
                    sums[i][j] = s.fma(query, keys[j], sums[i][j]);
                }
            }
            d += 2;
        }
        for i in 0..L {
            for j in 0..P {
                totals[i][j] = if parity == 0 { sums[i][j] } else { s.add(totals[i][j], sums[i][j]) };
            }
        }
    }
    for i in 0..L {
        for j in 0..P {
            s.store_slice(&mut out.0[i][(panel + j) * LANES..], totals[i][j]);
        }
    }
}
