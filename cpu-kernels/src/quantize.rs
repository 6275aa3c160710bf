//! f32 rows to int8 activations, vectorised.

use crate::Context;
use crate::error::{Error, check_len};
use crate::simd::{Kernel, LANES, Simd};
use halfbyte_q8::{Activations, GROUP};

/// Quantizes `rows` x `cols` f32 activations into `out`, which takes that shape, with SIMD and, for several rows, on all
/// threads.
///
/// This is the function to use before [`crate::gemm_int8`]. [`Activations::quantize`] writes the same bits without SIMD, on
/// the calling thread. The rule of both: per group of 32, `a = amax / 127` and codes `round_ties_even(x * (127 / amax))`; a
/// group with a non-finite number gets a NaN scale and zero codes.
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
    resize(out, rows, cols)?;
    let groups_a_piece = if rows <= 1 { usize::MAX } else { (x.len() / GROUP).div_ceil(ctx.pool.threads()) };
    by_pieces(ctx, out, groups_a_piece, |first, groups| {
        let x = &x[first * GROUP..][..groups.len() * GROUP];
        ctx.isa.dispatch(QuantizeGroups { x, groups });
    });
    Ok(())
}

/// Gives `out` a shape; its content is unspecified then.
pub(crate) fn resize(out: &mut Activations, rows: usize, cols: usize) -> Result<(), Error> {
    let what = "columns of the activations";
    out.resize(rows, cols).map_err(|_| Error::Group { what, cols, group: GROUP })
}

/// Consecutive groups of int8 activations, to be written.
pub(crate) struct Groups<'a> {
    codes: &'a mut [i8],
    scales: &'a mut [f32],
    sums: &'a mut [i32],
}

impl Groups<'_> {
    pub(crate) fn len(&self) -> usize {
        self.scales.len()
    }

    /// Group `i` becomes the codes of these 32 numbers.
    #[inline(always)]
    pub(crate) fn set<S: Simd>(&mut self, s: S, i: usize, v: [S::F32; 2]) {
        (self.scales[i], self.sums[i]) = group(s, v, &mut self.codes[i * GROUP..][..GROUP]);
    }
}

/// Calls `f` with each piece of `out` and the number of its first group, on the threads of the pool; a single piece is done
/// on the calling thread.
pub(crate) fn by_pieces(
    ctx: Context<'_>,
    out: &mut Activations,
    groups_a_piece: usize,
    f: impl Fn(usize, Groups<'_>) + Sync,
) {
    let (codes, scales, sums) = out.parts_mut();
    if scales.len() <= groups_a_piece || ctx.pool.threads() == 1 {
        return f(0, Groups { codes, scales, sums });
    }
    let groups_a_piece = groups_a_piece.max(1);
    let codes = codes.chunks_mut(groups_a_piece * GROUP);
    let parameters = scales.chunks_mut(groups_a_piece).zip(sums.chunks_mut(groups_a_piece));
    let mut pieces: Vec<_> =
        codes.zip(parameters).map(|(codes, (scales, sums))| Some(Groups { codes, scales, sums })).collect();
    ctx.pool.par_chunks_mut(&mut pieces, 1, |i, piece| {
        for groups in piece.iter_mut().filter_map(Option::take) {
            f(i * groups_a_piece, groups);
        }
    });
}

/// Consecutive groups of any rows, since a row is whole groups.
struct QuantizeGroups<'a> {
    x: &'a [f32],
    groups: Groups<'a>,
}

/// [`halfbyte_q8::quantize_group`] in vectors: two of sixteen.
#[inline(always)]
fn group<S: Simd>(s: S, v: [S::F32; 2], codes: &mut [i8]) -> (f32, i32) {
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
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        for (i, x) in self.x.chunks_exact(GROUP).enumerate() {
            self.groups.set(s, i, [s.load_slice(x), s.load_slice(&x[LANES..])]);
        }
    }
}
