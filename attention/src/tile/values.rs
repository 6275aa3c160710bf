//! The weighted values: what a block adds to the outputs of up to four queries.
//!
//! For each element, `o = o * alpha`, then `o = p[j] * v[j] + o`, fused, key after key. The order does not depend on how
//! elements are assigned to registers.

use super::{BLOCK, Weights, record, register_rich};
use crate::rows::Element;
use halfbyte_cpu_kernels::simd::{LANES, Simd};

/// Adds the values of the keys `keys` of a block at `v` to the outputs of the `L` queries from query `first` of the
/// quad on, after multiplying the outputs by `alpha`. Outputs are in records, values have `vectors * 16` elements each.
///
/// # Safety
/// `L` records are readable and writable at `o`, and `keys.1 * vectors * 16` f32 readable at `v`;
/// `keys.1 <= BLOCK`, `first + L <= QUAD`.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "a kernel inlined at its two call sites")]
pub(super) unsafe fn add_values<S: Simd, E: Element, const L: usize>(
    s: S,
    vectors: usize,
    weights: &Weights,
    first: usize,
    keys: (usize, usize),
    alpha: [S::F32; L],
    v: *const E,
    o: *mut f32,
    prefetch: bool,
) {
    let mut d = 0;
    // Columns of `$width` vectors: as many sums as fit in registers.
    macro_rules! columns {
        ($width:literal) => {
            while vectors - d >= $width {
                // SAFETY: the caller's promise; the column ends inside the head.
                unsafe {
                    column::<S, E, L, $width>(s, vectors, weights, first, keys, alpha, v, o, prefetch, d)
                };
                d += $width;
            }
        };
    }
    if const { register_rich::<S>() || L == 1 } {
        columns!(4);
    }
    if const { register_rich::<S>() || L <= 2 } {
        columns!(2);
    }
    columns!(1);
}

/// [`add_values`] for the vectors `d .. d + C` of the head.
///
/// # Safety
/// As for [`add_values`], and `d + C <= vectors`.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "a kernel inlined at its call sites")]
unsafe fn column<S: Simd, E: Element, const L: usize, const C: usize>(
    s: S,
    vectors: usize,
    weights: &Weights,
    first: usize,
    keys: (usize, usize),
    alpha: [S::F32; L],
    v: *const E,
    o: *mut f32,
    prefetch: bool,
    d: usize,
) {
    let mut sums = [[s.splat(0.0); C]; L];
    for i in 0..L {
        for c in 0..C {
            // SAFETY: vector `d + c` lies inside output `i`.
            let p = unsafe { o.add(i * record(vectors) + (d + c) * LANES) };
            // SAFETY: as above, all 16 elements of it.
            sums[i][c] = s.mul(unsafe { s.load(p) }, alpha[i]);
        }
    }
    for j in keys.0..keys.1 {
        let mut values = [s.splat(0.0); C];
        for c in 0..C {
            // SAFETY: vector `d + c` lies inside value `j`.
            let p = unsafe { v.add((j * vectors + d + c) * LANES) };
            // Two vectors of f16 are one cache line.
            if E::STREAMED && prefetch && c % 2 == 0 {
                s.prefetch(p.wrapping_add(BLOCK * vectors * LANES).cast());
            }
            // SAFETY: as above, all 16 elements of it.
            values[c] = unsafe { E::load(s, p) };
        }
        for i in 0..L {
            // SAFETY: `first + L <= QUAD`, so this is one of the quad's queries.
            let row = unsafe { weights.0.get_unchecked(first + i) };
            // SAFETY: `j < keys.1 <= BLOCK`.
            let p = s.splat(*unsafe { row.get_unchecked(j) });
            for c in 0..C {
                sums[i][c] = s.fma(p, values[c], sums[i][c]);
            }
        }
    }
    for i in 0..L {
        for c in 0..C {
            // SAFETY: vector `d + c` lies inside output `i`.
            let p = unsafe { o.add(i * record(vectors) + (d + c) * LANES) };
            // SAFETY: as above, all 16 elements of it.
            unsafe { s.store(p, sums[i][c]) };
        }
    }
}
