//! Quantizers from rows of f32 weights to blocks.
//!
//! Scales are stored in f16. For most groups that rounding is harmless. It is not where the scale is below
//! 2^-14, where an f16 loses bits, down to a single one at 2^-24, nor for a Q4_1 minimum far from zero, which may be
//! stored several steps from its value. So:
//!
//! * [`q4_row`], [`q4_row_fit`] and [`q4_row_optimal`] choose codes for the scale as stored.
//! * [`q4_row_max`] and [`q4_1_row`] write what GGUF writers write, codes for the unrounded
//!   parameters, as long as the rounding moves no weight by more than half a step; that is every group
//!   with a normal f16 scale (and, for Q4_1, a minimum within a thousand steps of zero). Other
//!   groups get their scale rounded up, so that it still reaches the biggest weight, and codes for
//!   what is stored.
//!
//! The whole row is checked before anything is written.

use half::f16;
use halfbyte_q8::f16_reaching;

use crate::error::{Error, check_finite, check_len};
use crate::fit::{biggest, fit_group, fit_group_weighted, weighted_error};
use crate::optimal::optimal_stored_scale;
use crate::rounding::{nearest_f16, round_clamped, round_clamped_f64};
use crate::{BlockQ4_0, BlockQ4_1, GROUP, pack_nibbles};

/// The largest f16.
const F16_MAX: f32 = 65504.0;

/// The block of a stored scale and signed codes; [`BlockQ4_0::ZERO`] if it decodes to zeros.
fn block_q4_0(scale: f16, codes: [i8; GROUP]) -> BlockQ4_0 {
    if scale.to_f32() == 0.0 || codes == [0; GROUP] {
        return BlockQ4_0::ZERO;
    }
    BlockQ4_0 { scale, codes: pack_nibbles(&codes.map(|q| (q + 8) as u8)) }
}

/// The codes nearest to the weights for a stored scale, `low..=7`; 0 when the scale is.
fn nearest_codes(x: &[f32; GROUP], scale: f16, low: i8) -> [i8; GROUP] {
    let d = scale.to_f32();
    if d == 0.0 {
        return [0; GROUP];
    }
    x.map(|v| round_clamped(v / d, f32::from(low), 7.0) as i8)
}

/// Squared error of a block, as decoded, weighted by `w`.
fn block_error(x: &[f32; GROUP], w: &[f64; GROUP], block: &BlockQ4_0) -> f64 {
    let codes = block.codes().map(|q| q as i8 - 8);
    weighted_error(x, w, f64::from(block.scale.to_f32()), &codes)
}

/// The importances of the unweighted writers. Multiplying by 1 changes no bit.
const EQUAL: [f64; GROUP] = [1.0; GROUP];

fn max7_block(x: &[f32; GROUP]) -> BlockQ4_0 {
    let scale = f16_reaching(biggest(x).abs() / 7.0);
    block_q4_0(scale, nearest_codes(x, scale, -7))
}

fn max_rule_block(x: &[f32; GROUP]) -> BlockQ4_0 {
    let d = biggest(x) / -8.0;
    let nearest = f16::from_f32(d);
    if 8.0 * (nearest.to_f32() - d).abs() <= 0.5 * d.abs() && nearest.to_f32() != 0.0 {
        let inv = 1.0 / d;
        return BlockQ4_0 {
            scale: nearest,
            codes: pack_nibbles(&x.map(|v| ((v * inv + 8.5) as u8).min(15))),
        };
    }
    let scale = f16_reaching(d);
    block_q4_0(scale, nearest_codes(x, scale, -8))
}

/// The block of least weighted error among `first` and those of the scales, the first of equals.
fn best_block(
    x: &[f32; GROUP],
    w: &[f64; GROUP],
    first: BlockQ4_0,
    scales: impl IntoIterator<Item = f16>,
) -> BlockQ4_0 {
    let mut best = first;
    let mut least = block_error(x, w, &best);
    for scale in scales.into_iter().filter(|scale| scale.is_finite()) {
        let block = block_q4_0(scale, nearest_codes(x, scale, -8));
        let error = block_error(x, w, &block);
        if error < least {
            (best, least) = (block, error);
        }
    }
    best
}

fn fit_block(x: &[f32; GROUP]) -> BlockQ4_0 {
    // The search minimises the error of the unrounded scale. The block with the rounded scale is compared
    // with two others: that of the max rule, and that of a quarter of the biggest weight, which is exact for
    // groups of ternary and other coarse models whose biggest weight is an f16.
    let tries = [nearest_f16(fit_group(x).scale), f16::from_f32(biggest(x) / 4.0)];
    best_block(x, &EQUAL, max_rule_block(x), tries)
}

/// [`fit_block`] for the weighted error, which is never more than that of the block of `fit_block`.
pub(crate) fn fit_block_weighted(x: &[f32; GROUP], w: &[f64; GROUP]) -> BlockQ4_0 {
    let first = fit_block(x);
    if *w == EQUAL {
        return first;
    }
    let tries = [nearest_f16(fit_group_weighted(x, w).scale), f16::from_f32(biggest(x) / 4.0)];
    let best = best_block(x, w, first, tries);
    better_block(x, w, best, max_rule_block(x))
}

/// The block of the best f16 scale.
pub(crate) fn optimal_block(x: &[f32; GROUP], w: &[f64; GROUP]) -> BlockQ4_0 {
    // The enumeration is at least as good as the other quantizers except for rounding; comparing with their blocks makes
    // it so in every case.
    let best = better_block(x, w, fit_block_weighted(x, w), max7_block(x));
    let Some(scale) = optimal_stored_scale(x, w) else {
        return best;
    };
    // In f64, because an f32 quotient may be rounded to a tie, and the codes would not be the best ones.
    let codes = x.map(|v| round_clamped_f64(f64::from(v) / scale.to_f64(), -8.0, 7.0) as i8);
    better_block(x, w, best, block_q4_0(scale, codes))
}

/// The block of less weighted error, the first of equals.
fn better_block(x: &[f32; GROUP], w: &[f64; GROUP], first: BlockQ4_0, other: BlockQ4_0) -> BlockQ4_0 {
    if block_error(x, w, &other) < block_error(x, w, &first) { other } else { first }
}

pub(crate) fn q4_1_block(x: &[f32; GROUP]) -> BlockQ4_1 {
    let (lo, d) = q4_1_parameters(x);
    let (scale, min) = (f16::from_f32(d), f16::from_f32(lo));
    let moved = (min.to_f32() - lo).abs() + 15.0 * (scale.to_f32() - d).abs();
    if moved <= 0.5 * d && scale.to_f32() != 0.0 {
        let inv = 1.0 / d;
        let codes = x.map(|v| (((v - lo) * inv + 0.5) as u8).min(15));
        return BlockQ4_1 { scale, min, codes: pack_nibbles(&codes) };
    }
    let scale = f16_reaching(d);
    let (d, m) = (scale.to_f32(), min.to_f32());
    // The cast saturates: a weight below the stored minimum gets code 0.
    let codes = x.map(|v| if d > 0.0 { (((v - m) / d + 0.5) as u8).min(15) } else { 0 });
    // Codes that are all 0 need no scale.
    let scale = if codes == [0; GROUP] { f16::ZERO } else { scale };
    BlockQ4_1 { scale, min, codes: pack_nibbles(&codes) }
}

/// Minimum and step of a group; the step is infinite when the range is.
fn q4_1_parameters(x: &[f32; GROUP]) -> (f32, f32) {
    let (lo, hi) = x.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(lo, hi), &v| (lo.min(v), hi.max(v)));
    (lo, (hi - lo) / 15.0)
}

/// The groups of a row with `out` blocks, all of them finite.
fn check_row(x: &[f32], out: usize) -> Result<&[[f32; GROUP]], Error> {
    let (groups, tail) = x.as_chunks::<GROUP>();
    if !tail.is_empty() {
        return Err(Error::NotWholeGroups { group: GROUP, got: x.len() });
    }
    check_len("blocks", groups.len(), out)?;
    check_finite(x, GROUP)?;
    Ok(groups)
}

/// [`Error::Overflow`] if a parameter of a group is beyond the largest f16.
fn check_f16(group: usize, what: &'static str, value: f32) -> Result<(), Error> {
    if value.abs() <= F16_MAX {
        Ok(())
    } else {
        Err(Error::Overflow { index: group * GROUP, group, what, value, limit: F16_MAX })
    }
}

/// The groups of a row that Q4_0 with codes that reach to `steps` can hold.
pub(crate) fn check_q4_0_row(x: &[f32], out: usize, steps: f32) -> Result<&[[f32; GROUP]], Error> {
    let groups = check_row(x, out)?;
    for (i, group) in groups.iter().enumerate() {
        check_f16(i, "scale", biggest(group) / steps)?;
    }
    Ok(groups)
}

/// The groups of a row that Q4_1 can hold.
pub(crate) fn check_q4_1_row(x: &[f32], out: usize) -> Result<&[[f32; GROUP]], Error> {
    let groups = check_row(x, out)?;
    for (i, group) in groups.iter().enumerate() {
        let (lo, d) = q4_1_parameters(group);
        check_f16(i, "min", lo)?;
        check_f16(i, "scale", d)?;
    }
    Ok(groups)
}

/// Checks a row for Q4_0 with codes that reach to `steps`, then writes it group by group.
fn q4_0_row(
    x: &[f32],
    out: &mut [BlockQ4_0],
    steps: f32,
    quantize: fn(&[f32; GROUP]) -> BlockQ4_0,
) -> Result<(), Error> {
    let groups = check_q4_0_row(x, out.len(), steps)?;
    for (block, group) in out.iter_mut().zip(groups) {
        *block = quantize(group);
    }
    Ok(())
}

/// Q4_0 by the symmetric rule: scale max|x| / 7 rounded up to an f16, codes -7..=7.
///
/// `x`: weights, a whole number of groups of 32. `out`: `x.len() / 32` blocks. Every weight is off by
/// at most half the stored step. A group of zeros (or of weights below half the smallest step, 2^-24)
/// becomes [`BlockQ4_0::ZERO`].
///
/// # Errors
///
/// [`Error::NotWholeGroups`], [`Error::Length`], [`Error::NonFinite`]; [`Error::Overflow`] when a
/// weight is beyond 7 * 65504. Nothing is written then.
pub fn q4_row(x: &[f32], out: &mut [BlockQ4_0]) -> Result<(), Error> {
    q4_0_row(x, out, 7.0, max7_block)
}

/// Q4_0 by the rule of GGUF writers: the biggest weight of a group is -8, codes -8..=7.
///
/// Shapes as for [`q4_row`]. The bytes equal those of GGUF writers, except that zeros
/// become [`BlockQ4_0::ZERO`] (they store a scale of -0), and that groups whose scale f16 rounds by
/// more than 1/16 (it takes a scale below 2^-21) get codes for the stored scale.
///
/// # Errors
///
/// [`Error::NotWholeGroups`], [`Error::Length`], [`Error::NonFinite`]; [`Error::Overflow`] when a
/// weight is beyond 8 * 65504. Nothing is written then.
pub fn q4_row_max(x: &[f32], out: &mut [BlockQ4_0]) -> Result<(), Error> {
    q4_0_row(x, out, 8.0, max_rule_block)
}

/// Q4_0 with fitted scales: [`fit_group`]'s search in f64, after which codes are chosen for the scale as stored.
///
/// `halfbyte_cpu_kernels::quantize_q4_0_fit` is the same search in f32 arithmetic, vectorised and on all threads of a pool:
/// it is much faster and meant for whole models. Its bytes may differ from those of this function where two tries have
/// nearly equal errors; its squared error is within a few millionths of this one's.
///
/// Shapes as for [`q4_row`]. The squared error of every group, as decoded, is at most that of
/// [`q4_row_max`]. The scale may be negative. A group of multiples of a quarter of its biggest weight
/// (ternary weights, say) is reproduced exactly when that weight is an f16 of magnitude 2^-12 or more.
///
/// # Errors
///
/// [`Error::NotWholeGroups`], [`Error::Length`], [`Error::NonFinite`]; [`Error::Overflow`] when a
/// weight is beyond 8 * 65504. Nothing is written then.
///
/// ```
/// use halfbyte_q4::{BlockQ4_0, q4_row_fit};
/// let mut x = [0.0; 32];
/// (x[0], x[1]) = (1.0, -1.0);
/// let mut out = [BlockQ4_0::ZERO];
/// q4_row_fit(&x, &mut out)?;
/// assert_eq!(out[0].dequantize(), x);
/// # Ok::<(), halfbyte_q4::Error>(())
/// ```
pub fn q4_row_fit(x: &[f32], out: &mut [BlockQ4_0]) -> Result<(), Error> {
    q4_0_row(x, out, 8.0, fit_block)
}

/// Q4_0 with the best scale, found by enumeration. It is slow: for offline use, and to compare the others with.
///
/// Shapes as for [`q4_row`]. No f16 scale gives a group a smaller squared error, as decoded, except for the
/// rounding of f64 sums. The error is never more than that of [`q4_row_fit`], [`q4_row_max`] or [`q4_row`]. See
/// [`optimal_group`](crate::fit::optimal_group) for the unrounded scale.
///
/// # Errors
///
/// [`Error::NotWholeGroups`], [`Error::Length`], [`Error::NonFinite`]; [`Error::Overflow`] when a
/// weight is beyond 8 * 65504. Nothing is written then.
pub fn q4_row_optimal(x: &[f32], out: &mut [BlockQ4_0]) -> Result<(), Error> {
    q4_0_row(x, out, 8.0, |x| optimal_block(x, &EQUAL))
}

/// Q4_1 by the rule of GGUF writers: the smallest weight of a group is code 0, the biggest 15.
///
/// Shapes as for [`q4_row`]. The bytes equal those of GGUF writers, except where rounding the
/// parameters to f16 moves a weight by more than half a step: such groups get codes for the stored
/// parameters. Groups of one value have scale 0 and decode to that value as an f16.
///
/// # Errors
///
/// [`Error::NotWholeGroups`], [`Error::Length`], [`Error::NonFinite`]; [`Error::Overflow`] when the
/// minimum or the scale of a group is beyond 65504. Nothing is written then.
pub fn q4_1_row(x: &[f32], out: &mut [BlockQ4_1]) -> Result<(), Error> {
    let groups = check_q4_1_row(x, out.len())?;
    for (block, group) in out.iter_mut().zip(groups) {
        *block = q4_1_block(group);
    }
    Ok(())
}
