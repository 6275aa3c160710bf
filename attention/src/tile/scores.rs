//! Scores: the dot products of up to four queries with the keys of a block.
//!
//! A score is a chain of fused multiply-adds over the head, sixteen lanes wide, started at zero:
//! lane `i` sums `q[i] k[i]`, then `q[16 + i] k[16 + i]`, ...; `Simd::reduce_add` folds the lanes. Sixteen chains
//! run before their lanes are folded together by `reduce_add_each`, which has the same bits.

use super::{BLOCK, QUAD, Weights, register_rich};
use crate::rows::Element;
use halfbyte_cpu_kernels::simd::{LANES, Simd};

/// Keys of a part of a step. Where registers are few, their chains with a pair of queries go two keys at a time: eight
/// registers of sums, and as many loads as multiplications.
const KEYS: usize = 4;

/// Scores of `L` queries, `vectors * 16` elements each and one after the other at `q`, with the keys `from .. n` of
/// a block, which lies alike at `k`: `out[i][from..n]` for query `i`. What lies behind them in `out` is unspecified.
///
/// # Safety
/// `L * vectors * 16` f32 are readable at `q` and `n * vectors * 16` at `k`; `from` is a multiple of 16 and
/// `from < n <= BLOCK`.
#[inline(always)]
pub(super) unsafe fn scores<S: Simd, E: Element, const L: usize>(
    s: S,
    vectors: usize,
    q: *const f32,
    k: *const E,
    (from, n): (usize, usize),
    out: &mut Weights,
) {
    // Sixteen chains a step: one query by 16 keys, two by 8, or three or four by 4.
    let keys = match L {
        1 => 16,
        2 => 8,
        _ => 4,
    };
    let mut first = from;
    while first < n {
        let mut sums = [s.splat(0.0); LANES];
        let mut part = 0;
        while part < keys {
            // A step past the last key reads that key again; nothing looks at such a score.
            let mut pointers = [k; KEYS];
            for (i, p) in pointers.iter_mut().enumerate() {
                let key = (first + part + i).min(n - 1);
                // SAFETY: `key` is below `n`, so the pointer stays inside the caller's keys.
                *p = unsafe { k.add(key * vectors * LANES) };
            }
            let mut i = 0;
            while i < L {
                // SAFETY: query `i` is one of the `L` that are readable.
                let q = unsafe { q.add(i * vectors * LANES) };
                let sums = &mut sums[part..];
                if register_rich::<S>() {
                    // SAFETY: `L` queries are readable from the first on, and so is a key at each pointer.
                    put(unsafe { chains::<S, E, L, KEYS>(s, vectors, q, pointers) }, sums, keys, i);
                    i += L;
                } else if i + 2 <= L {
                    let [a, b, c, d] = pointers;
                    // SAFETY: two queries are readable at `q`, and so is a key at each pointer.
                    put(unsafe { chains::<S, E, 2, 2>(s, vectors, q, [a, b]) }, sums, keys, i);
                    // SAFETY: as above.
                    put(unsafe { chains::<S, E, 2, 2>(s, vectors, q, [c, d]) }, &mut sums[2..], keys, i);
                    i += 2;
                } else {
                    // SAFETY: a query is readable at `q`, and so is a key at each pointer.
                    put(unsafe { chains::<S, E, 1, KEYS>(s, vectors, q, pointers) }, sums, keys, i);
                    i += 1;
                }
            }
            part += KEYS;
        }
        let sums = s.to_array(s.reduce_add_each(sums));
        for i in 0..L {
            out.0[i][first..first + keys].copy_from_slice(&sums[i * keys..][..keys]);
        }
        first += keys;
    }
}

/// Puts the chains of some queries, of which the first is query `first`, into `sums`, which has `keys` of each query.
#[inline(always)]
fn put<T: Copy, const L: usize, const K: usize>(
    chains: [[T; K]; L],
    sums: &mut [T],
    keys: usize,
    first: usize,
) {
    for i in 0..L {
        sums[(first + i) * keys..][..K].copy_from_slice(&chains[i]);
    }
}

/// The unfolded sums of `L` queries by `K` keys.
///
/// # Safety
/// `L * vectors * 16` f32 are readable at `q` and `vectors * 16` at each of `k`.
#[inline(always)]
unsafe fn chains<S: Simd, E: Element, const L: usize, const K: usize>(
    s: S,
    vectors: usize,
    q: *const f32,
    k: [*const E; K],
) -> [[S::F32; K]; L] {
    let mut sums = [[s.splat(0.0); K]; L];
    for d in 0..vectors {
        let mut keys = [s.splat(0.0); K];
        for j in 0..K {
            // SAFETY: vector `d` lies inside key `j`.
            let p = unsafe { k[j].add(d * LANES) };
            // SAFETY: as above, all 16 elements of it.
            keys[j] = unsafe { E::load(s, p) };
        }
        for i in 0..L {
            // SAFETY: vector `d` lies inside query `i`.
            let p = unsafe { q.add((i * vectors + d) * LANES) };
            // SAFETY: as above, all 16 elements of it.
            let query = unsafe { s.load(p) };
            for j in 0..K {
                sums[i][j] = s.fma(query, keys[j], sums[i][j]);
            }
        }
    }
    sums
}

const _: () = assert!(BLOCK.is_multiple_of(LANES) && QUAD == KEYS);
