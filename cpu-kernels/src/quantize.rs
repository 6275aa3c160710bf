//! f32 rows to integer activations, vectorised.

use crate::Context;
use crate::error::{Error, check_len};
use crate::simd::{Kernel, LANES, Simd};
use halfbyte_q8::{Activations, GROUP, Group, Part, Precision, low_byte, outlier_limit};

/// Quantizes `rows` x `cols` f32 activations into `out`, which takes that shape and keeps its precision, with SIMD and, for
/// several rows, on all threads.
///
/// This is the function to use before [`crate::gemm_int8`]. [`Activations::quantize`] writes the same bits without SIMD, on
/// the calling thread. The rule of both is [`halfbyte_q8::quantize_group`]'s: a group with a non-finite number gets a NaN
/// scale and zero codes.
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
    let precision = out.precision();
    by_rows(ctx, out, rows.div_ceil(ctx.pool.threads()), |first, part| {
        let x = &x[first * GROUP..][..part.groups() * GROUP];
        ctx.isa.dispatch(QuantizeRows { x, cols, precision, part });
    });
    Ok(())
}

/// Gives `out` a shape; its content is unspecified then.
pub(crate) fn resize(out: &mut Activations, rows: usize, cols: usize) -> Result<(), Error> {
    let what = "columns of the activations";
    out.resize(rows, cols).map_err(|_| Error::Group { what, cols, group: GROUP })
}

/// Calls `f` with each piece of `rows_a_piece` rows of `out` and the number of its first group, on the threads of the pool;
/// a single piece is done on the calling thread.
pub(crate) fn by_rows(
    ctx: Context<'_>,
    out: &mut Activations,
    rows_a_piece: usize,
    f: impl Fn(usize, Part<'_>) + Sync,
) {
    let groups_a_piece = rows_a_piece.max(1) * out.groups();
    by_groups(ctx, out, groups_a_piece, f);
}

/// The same by pieces of `groups_a_piece` groups, which need not be whole rows.
pub(crate) fn by_groups(
    ctx: Context<'_>,
    out: &mut Activations,
    groups_a_piece: usize,
    f: impl Fn(usize, Part<'_>) + Sync,
) {
    let mut rest = out.part_mut();
    if rest.groups() <= groups_a_piece || ctx.pool.threads() == 1 {
        return f(0, rest);
    }
    let mut pieces = Vec::new();
    while rest.groups() > 0 {
        let (piece, others) = {
            let groups = groups_a_piece.clamp(1, rest.groups());
            rest.split_at(groups)
        };
        pieces.push(Some(piece));
        rest = others;
    }
    ctx.pool.par_chunks_mut(&mut pieces, 1, |i, piece| {
        for part in piece.iter_mut().filter_map(Option::take) {
            f(i * groups_a_piece, part);
        }
    });
}

/// Whole rows of `cols` numbers.
struct QuantizeRows<'a> {
    x: &'a [f32],
    cols: usize,
    precision: Precision,
    part: Part<'a>,
}

impl Kernel for QuantizeRows<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        for (r, row) in self.x.chunks_exact(self.cols.max(1)).enumerate() {
            set_row(s, &mut self.part, r * self.cols / GROUP, row, self.precision);
        }
    }
}

/// The groups from `first` on become the codes of a row.
#[inline(always)]
pub(crate) fn set_row<S: Simd>(s: S, part: &mut Part<'_>, first: usize, row: &[f32], precision: Precision) {
    let mut sum = s.splat(0.0);
    if precision == Precision::Auto {
        for x in row.chunks_exact(LANES) {
            sum = s.add(sum, abs(s, s.load_slice(x)));
        }
    }
    let limit = limit(s, precision, sum, row.len());
    for (g, x) in row.chunks_exact(GROUP).enumerate() {
        set(s, part, first + g, [s.load_slice(x), s.load_slice(&x[LANES..])], limit);
    }
}

/// [`Precision::limit`] of a row of `n` numbers, whose magnitudes add up to the lanes of `sum`.
#[inline(always)]
pub(crate) fn limit<S: Simd>(s: S, precision: Precision, sum: S::F32, n: usize) -> f32 {
    match precision {
        Precision::Int8 => f32::INFINITY,
        Precision::Auto => outlier_limit(s.reduce_add(sum), n),
        Precision::Int16 => 0.0,
    }
}

/// The magnitudes of the lanes.
#[inline(always)]
pub(crate) fn abs<S: Simd>(s: S, v: S::F32) -> S::F32 {
    s.from_bits(s.and(s.to_bits(v), s.splat_i32(0x7fff_ffff)))
}

/// Group `i` becomes the codes of these 32 numbers: [`halfbyte_q8::quantize_group`] in vectors, two of sixteen.
#[inline(always)]
pub(crate) fn set<S: Simd>(s: S, part: &mut Part<'_>, i: usize, v: [S::F32; 2], limit: f32) {
    const SMALLEST: f32 = 127.0 * f32::MIN_POSITIVE;
    let magnitudes = v.map(|v| abs(s, v));
    // As integers the magnitudes order like the numbers, with infinity and NaN on top.
    let amax = largest(s, magnitudes);
    let low = &mut part.low[i * GROUP..][..GROUP];
    if let Some(wide) = part.wide.get_mut(i) {
        *wide = 0;
        part.high[i * GROUP..][..GROUP].fill(0);
    }
    if !(SMALLEST..=f32::MAX).contains(&amax) {
        low.fill(0);
        (part.scales[i], part.sums[i]) = (if amax.is_finite() { 0.0 } else { f32::NAN }, 0);
        return;
    }
    let mut reach = amax;
    if amax > limit {
        let inner = magnitudes.map(|v| s.select_lt(s.splat(limit), v, s.splat(0.0), v));
        reach = largest(s, inner).max(amax / 256.0).max(SMALLEST);
    }
    let inverse = s.splat(127.0 / reach);
    let q = v.map(|v| s.round_i32(s.mul(v, inverse)));
    if amax > reach {
        let mut codes = [0; GROUP];
        let mut whole = [0; LANES];
        for (codes, q) in codes.chunks_exact_mut(LANES).zip(q) {
            // SAFETY: `whole` has room for 16 numbers of 32 bits.
            unsafe { s.store_u32(whole.as_mut_ptr(), q) };
            for (code, q) in codes.iter_mut().zip(whole) {
                let q = q as i16;
                *code = q + i16::from(low_byte(q) == i8::MIN);
            }
        }
        part.set(i, &Group { codes, scale: reach / 127.0 });
        return;
    }
    // SAFETY: `low` holds 32 bytes.
    unsafe { s.store_i8(low.as_mut_ptr(), q[0]) };
    // SAFETY: 16 bytes into the 32 of `low`.
    let second = unsafe { low.as_mut_ptr().add(LANES) };
    // SAFETY: 16 more bytes lie there.
    unsafe { s.store_i8(second, q[1]) };
    (part.scales[i], part.sums[i]) = (reach / 127.0, s.reduce_add_i32(s.add_i32(q[0], q[1])));
}

/// The largest lane of two vectors of magnitudes, infinity and NaN on top.
#[inline(always)]
fn largest<S: Simd>(s: S, v: [S::F32; 2]) -> f32 {
    f32::from_bits(s.reduce_max_i32(s.max_i32(s.to_bits(v[0]), s.to_bits(v[1]))).cast_unsigned())
}
