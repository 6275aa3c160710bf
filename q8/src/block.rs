//! Q8_0, GGUF's 8-bit weight format: groups of 32 with one f16 scale, `w = scale * code`.
//!
//! ```text
//! byte   0      2                                34
//!        | f16  | i8 code of weight 0, 1, ... 31 |
//! ```
//!
//! # Which codes
//!
//! GGUF writers divide by the scale before it is rounded to f16: `d = amax / 127`,
//! `code = round(x * (1 / d))`, half away from zero, all in f32. As long as the rounding of `d` moves no
//! weight by more than half a step, the rows written here equal theirs byte for byte; that is so for
//! every normal f16 (a sixteenth of a step) and well below, down to weights of about 0.001. For
//! smaller weights an f16 has few bits left, and codes chosen for a scale that is not the stored one
//! are wrong by up to a quarter of the weight. There the scale is first rounded *up* to an f16 (up, so
//! that 127 steps still reach the biggest weight), and the codes are chosen for what is stored.
//!
//! [`quantize_row_fit`] gives up GGUF's bytes and does so for every group, with the f16 on either side of
//! `d`, and keeps what errs least.

use bytemuck::{Pod, Zeroable};
use half::f16;

use crate::GROUP;
use crate::error::{Error, check_len};

/// One Q8_0 group of 32 weights: `w[i] = scale * codes[i]`. 34 bytes, alignment 2, any bit pattern is valid.
///
/// `Pod`, so bytes of a file become blocks with `bytemuck::cast_slice`. The layout is little-endian
/// on disk; a big-endian host has to swap the scale.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ8_0 {
    /// Step between neighbouring codes.
    pub scale: f16,
    /// Codes in row order. This crate writes -127..=127; files may hold -128.
    pub codes: [i8; GROUP],
}

const _: () = assert!(size_of::<BlockQ8_0>() == 34 && align_of::<BlockQ8_0>() == 2);

/// The largest magnitude that Q8_0 can store: 127 steps of the largest f16. Exact in f32.
const LIMIT: f32 = 127.0 * 65504.0;

/// `d` rounded to f16, away from zero: the scale of a group whose biggest weight the codes then reach. Quantizers of other
/// formats use it, too. The result is infinite where `|d|` is beyond 65504, and NaN for NaN.
///
/// ```
/// use halfbyte_q8::f16_reaching;
/// assert_eq!(f16_reaching(0.5).to_f32(), 0.5);
/// // Between 2048 and 4096, f16s are the even numbers.
/// assert_eq!((f16_reaching(2049.0).to_f32(), f16_reaching(-2048.1).to_f32()), (2050.0, -2050.0));
/// ```
#[must_use]
pub fn f16_reaching(d: f32) -> f16 {
    let nearest = f16::from_f32(d);
    if nearest.to_f32().abs() < d.abs() {
        // Neighbours of one sign differ by one in their bits, from zero to infinity.
        f16::from_bits(nearest.to_bits() + 1)
    } else {
        nearest
    }
}

impl BlockQ8_0 {
    /// Quantizes 32 finite weights of magnitude at most `LIMIT`.
    fn from_finite(x: &[f32; GROUP]) -> Self {
        let amax = x.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        let d = amax / 127.0;
        let nearest = f16::from_f32(d);
        if 127.0 * (nearest.to_f32() - d).abs() <= 0.5 * d && nearest.to_f32() != 0.0 {
            let inv = 1.0 / d;
            return Self { scale: nearest, codes: x.map(|v| (v * inv).round() as i8) };
        }
        let scale = f16_reaching(d);
        let d = scale.to_f32();
        let codes = x.map(|v| if d > 0.0 { (v / d).round() as i8 } else { 0 });
        // Codes that are all 0 need no scale.
        Self { scale: if codes == [0; GROUP] { f16::ZERO } else { scale }, codes }
    }

    /// The best of [`from_finite`](Self::from_finite) and of two scales rounded first.
    fn fit_finite(x: &[f32; GROUP]) -> Self {
        let amax = x.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        let up = f16_reaching(amax / 127.0);
        // The bits of positive f16s order like the numbers, and zero has none below it.
        let down = f16::from_bits(up.to_bits().saturating_sub(1));
        let mut best = Self::from_finite(x);
        let mut least = best.squared_error(x);
        for scale in [up, down].into_iter().filter(|scale| *scale != f16::ZERO) {
            let d = scale.to_f32();
            let codes = x.map(|v| (v / d).round().clamp(-127.0, 127.0) as i8);
            let block = Self { scale, codes };
            let error = block.squared_error(x);
            if error < least {
                (best, least) = (block, error);
            }
        }
        best
    }

    /// `sum((x - scale * code)^2)` in f64.
    fn squared_error(&self, x: &[f32; GROUP]) -> f64 {
        x.iter().zip(self.dequantize()).map(|(&x, w)| (f64::from(x) - f64::from(w)).powi(2)).sum()
    }

    /// The 32 weights, `scale * code` in f32, which is exact: 11 bits times 8 bits.
    #[must_use]
    pub fn dequantize(&self) -> [f32; GROUP] {
        let d = self.scale.to_f32();
        self.codes.map(|q| d * f32::from(q))
    }
}

/// Quantizes a row to Q8_0.
///
/// `x`: weights, a whole number of groups of 32. `out`: `x.len() / 32` blocks.
///
/// The bytes equal those of GGUF writers, except where rounding the scale to f16 would move a weight by
/// more than half a step (some groups of magnitude below 0.001): those get a scale rounded up and
/// the codes nearest to that. With `amax` the group's biggest magnitude, a weight is off by at most
/// `amax / 254 + amax / 2000` when `amax >= 0.008`, and below by at most `amax / 127` or 2^-25,
/// whichever is larger (and a rounding error of f32). A group whose weights are all below half of the
/// smallest step, 2^-24, is all zero bytes.
///
/// # Errors
///
/// [`Error::NotWholeGroups`], [`Error::Length`]; [`Error::NonFinite`] for the first NaN or infinity,
/// [`Error::Overflow`] for the first weight beyond 127 * 65504. Nothing is written then.
pub fn quantize_row(x: &[f32], out: &mut [BlockQ8_0]) -> Result<(), Error> {
    write(x, out, BlockQ8_0::from_finite)
}

/// Quantizes a row to Q8_0 with scales that are rounded to f16 before codes are chosen.
///
/// Shapes as for [`quantize_row`]. For every group the two f16s next to a 127th of its biggest magnitude are tried, the
/// codes of each the nearest ones for the scale as stored, -127..=127. The squared error of a group, as
/// decoded, is at most that of [`quantize_row`], whose block is kept when neither lowers it.
///
/// # Errors
///
/// As [`quantize_row`].
///
/// ```
/// use halfbyte_q8::{quantize_row, quantize_row_fit, dequantize_row};
/// let x: [f32; 32] = std::array::from_fn(|i| (i as f32).sin());
/// let error = |fitted: bool| {
///     let (mut block, mut back) = ([bytemuck::Zeroable::zeroed()], [0.0; 32]);
///     let write = if fitted { quantize_row_fit } else { quantize_row };
///     write(&x, &mut block)?;
///     dequantize_row(&block, &mut back)?;
///     Ok::<f32, halfbyte_q8::Error>(x.iter().zip(back).map(|(a, b)| (a - b).powi(2)).sum())
/// };
/// assert!(error(true)? <= error(false)?);
/// # Ok::<(), halfbyte_q8::Error>(())
/// ```
pub fn quantize_row_fit(x: &[f32], out: &mut [BlockQ8_0]) -> Result<(), Error> {
    write(x, out, BlockQ8_0::fit_finite)
}

/// Checks a row, then writes it group by group.
fn write(x: &[f32], out: &mut [BlockQ8_0], quantize: fn(&[f32; GROUP]) -> BlockQ8_0) -> Result<(), Error> {
    let (groups, tail) = x.as_chunks::<GROUP>();
    if !tail.is_empty() {
        return Err(Error::NotWholeGroups { group: GROUP, got: x.len() });
    }
    check_len("blocks", groups.len(), out.len())?;
    if let Some(index) = x.iter().position(|v| v.is_nan() || v.abs() > LIMIT) {
        let (group, value) = (index / GROUP, x[index]);
        return Err(if value.is_finite() {
            Error::Overflow { index, group, value, limit: LIMIT }
        } else {
            Error::NonFinite { index, group, value }
        });
    }
    for (block, group) in out.iter_mut().zip(groups) {
        *block = quantize(group);
    }
    Ok(())
}

/// Expands Q8_0 blocks into `out`, `32 * blocks.len()` weights; exact.
///
/// # Errors
///
/// [`Error::Length`] when `out` has another length; nothing is written then.
pub fn dequantize_row(blocks: &[BlockQ8_0], out: &mut [f32]) -> Result<(), Error> {
    check_len("out", blocks.len() * GROUP, out.len())?;
    for (group, block) in out.as_chunks_mut::<GROUP>().0.iter_mut().zip(blocks) {
        *group = block.dequantize();
    }
    Ok(())
}
