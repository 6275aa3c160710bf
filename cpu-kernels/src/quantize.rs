//! f32 rows to int8 activations, vectorised.

use crate::Context;
use crate::error::{Error, check_len};
use crate::simd::{Kernel, LANES, Simd};
use halfbyte_q8::{Activations, GROUP};

/// Quantizes `rows` x `cols` f32 activations into `out`, which takes that shape.
///
/// The same bits as [`Activations::quantize`], whose rule it follows: per group of 32, `a = amax / 127` and codes
/// `round_ties_even(x * (127 / amax))`; a group with a non-finite number gets a NaN scale and zero codes.
///
/// # Errors
/// [`Error::Length`] if `x` is not `rows` x `cols` long, [`Error::Group`] if `cols` is no multiple of 32.
pub fn quantize_activations(
    ctx: Context<'_>,
    x: &[f32],
    rows: usize,
    cols: usize,
    out: &mut Activations,
) -> Result<(), Error> {
    check_len("x", rows.saturating_mul(cols), x.len())?;
    out.resize(rows, cols).map_err(|_| Error::Group {
        what: "columns of the activations",
        cols,
        group: GROUP,
    })?;
    let (codes, scales, sums) = out.rows_mut().into_parts();
    if rows <= 1 || ctx.pool.threads() == 1 {
        ctx.isa.dispatch(QuantizeGroups { x, codes, scales, sums });
        return Ok(());
    }
    let groups_a_piece = (rows * cols / GROUP).div_ceil(ctx.pool.threads()).max(1);
    let mut pieces: Vec<_> = x
        .chunks(groups_a_piece * GROUP)
        .zip(codes.chunks_mut(groups_a_piece * GROUP))
        .zip(scales.chunks_mut(groups_a_piece).zip(sums.chunks_mut(groups_a_piece)))
        .collect();
    ctx.pool.par_chunks_mut(&mut pieces, 1, |_, piece| {
        for ((x, codes), (scales, sums)) in piece {
            ctx.isa.dispatch(QuantizeGroups { x, codes, scales, sums });
        }
    });
    Ok(())
}

/// Consecutive groups; rows are whole groups, so they need no attention.
struct QuantizeGroups<'a> {
    x: &'a [f32],
    codes: &'a mut [i8],
    scales: &'a mut [f32],
    sums: &'a mut [i32],
}

/// [`halfbyte_q8::quantize_group`] in vectors: two of sixteen.
#[inline(always)]
fn group<S: Simd>(s: S, x: &[f32], codes: &mut [i8]) -> (f32, i32) {
    let v = [s.load_slice(x), s.load_slice(&x[LANES..])];
    let magnitude = s.splat_i32(0x7fff_ffff);
    let bits = s.max_i32(s.and(s.to_bits(v[0]), magnitude), s.and(s.to_bits(v[1]), magnitude));
    // As integers the magnitudes order like the numbers, with infinity and NaN on top.
    let amax = f32::from_bits(s.reduce_max_i32(bits).cast_unsigned());
    let codes = &mut codes[..GROUP];
    if !(127.0 * f32::MIN_POSITIVE..=f32::MAX).contains(&amax) {
        codes.fill(0);
        return (if amax.is_finite() { 0.0 } else { f32::NAN }, 0);
    }
    let inverse = s.splat(127.0 / amax);
    let q = [s.round_i32(s.mul(v[0], inverse)), s.round_i32(s.mul(v[1], inverse))];
    // SAFETY: `codes` holds 32 bytes.
    unsafe { s.store_i8(codes.as_mut_ptr(), q[0]) };
    // SAFETY: 16 bytes into the 32 of `codes`.
    let second = unsafe { codes.as_mut_ptr().add(LANES) };
    // SAFETY: 16 more bytes lie there.
    unsafe { s.store_i8(second, q[1]) };
    (amax / 127.0, s.reduce_add_i32(s.add_i32(q[0], q[1])))
}

impl Kernel for QuantizeGroups<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let parameters = self.scales.iter_mut().zip(self.sums);
        let groups = self.x.chunks_exact(GROUP).zip(self.codes.chunks_exact_mut(GROUP));
        for ((x, codes), (scale, sum)) in groups.zip(parameters) {
            (*scale, *sum) = group(s, x, codes);
        }
    }
}
