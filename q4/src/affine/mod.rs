//! MLX affine 4-bit groups: 32, 64 or 128 weights along a row with a scale and a bias,
//! `w = scale * code + bias`.
//!
//! Three arrays a row, as in MLX's safetensors files:
//!
//! ```text
//! packed   len / 8      u32   eight codes, the first in the lowest nibble
//! scales   len / group  bf16, f16 or f32
//! biases   len / group  the same type
//! ```
//!
//! # MLX's rule
//!
//! In f32, whatever the stored type. The *edge* is the extreme of the group farther from zero (the
//! maximum when they tie). The scale is the range divided by 15, at least 1e-7, and its sign is
//! such that codes count from the edge. It is then corrected so that a whole number of steps leads
//! from the edge to zero, which makes zero a code; the edge is the bias. When not even one step fits
//! between the edge and zero, the bias is 0. Codes are `(w - bias) / scale`, rounded to nearest even
//! and clamped to 0..=15, for the scale and bias before they are rounded to the stored type.

mod fit;

use half::{bf16, f16};

use crate::error::{Error, check_finite, check_len};
use crate::rounding::{odd_f32, round_clamped};

pub use fit::{quantize_row_fit, quantize_row_weighted};

/// Weights in an affine group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GroupSize {
    /// 32 weights.
    G32,
    /// 64 weights, MLX's default.
    G64,
    /// 128 weights.
    G128,
}

impl GroupSize {
    /// The number of weights.
    #[must_use]
    pub const fn weights(self) -> usize {
        match self {
            Self::G32 => 32,
            Self::G64 => 64,
            Self::G128 => 128,
        }
    }
}

impl TryFrom<usize> for GroupSize {
    type Error = Error;

    /// The group of `got` weights, or [`Error::GroupSize`].
    fn try_from(got: usize) -> Result<Self, Error> {
        match got {
            32 => Ok(Self::G32),
            64 => Ok(Self::G64),
            128 => Ok(Self::G128),
            _ => Err(Error::GroupSize { got }),
        }
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for half::bf16 {}
    impl Sealed for half::f16 {}
    impl Sealed for f32 {}
}

/// A type that scales and biases are stored in: [`struct@bf16`], [`struct@f16`] or `f32`.
pub trait AffineScale: Copy + Send + Sync + std::fmt::Debug + bytemuck::Pod + sealed::Sealed {
    /// The largest finite value.
    const LIMIT: f32;
    /// Rounds to nearest even; beyond the largest value, to infinity.
    fn from_f32(v: f32) -> Self;
    /// Rounds to nearest even, once; beyond the largest value, to infinity.
    fn from_f64(v: f64) -> Self;
    /// The value, exact.
    fn to_f32(self) -> f32;
}

impl AffineScale for bf16 {
    const LIMIT: f32 = bf16::MAX.to_f32_const();
    fn from_f32(v: f32) -> Self {
        bf16::from_f32(v)
    }
    fn from_f64(v: f64) -> Self {
        bf16::from_f32(odd_f32(v))
    }
    fn to_f32(self) -> f32 {
        bf16::to_f32(self)
    }
}

impl AffineScale for f16 {
    const LIMIT: f32 = f16::MAX.to_f32_const();
    fn from_f32(v: f32) -> Self {
        f16::from_f32(v)
    }
    fn from_f64(v: f64) -> Self {
        f16::from_f32(odd_f32(v))
    }
    fn to_f32(self) -> f32 {
        f16::to_f32(self)
    }
}

impl AffineScale for f32 {
    const LIMIT: f32 = f32::MAX;
    fn from_f32(v: f32) -> Self {
        v
    }
    fn from_f64(v: f64) -> Self {
        v as f32
    }
    fn to_f32(self) -> f32 {
        self
    }
}

/// Packs eight codes, the first in the lowest nibble; only the low four bits of each are used.
#[must_use]
pub fn pack8(codes: &[u8; 8]) -> u32 {
    codes.iter().rev().fold(0, |word, &q| word << 4 | u32::from(q & 15))
}

/// The eight codes of a word, 0..=15, in the order of the weights.
#[must_use]
pub fn unpack8(word: u32) -> [u8; 8] {
    std::array::from_fn(|i| (word >> (4 * i)) as u8 & 15)
}

/// Scale and bias of a finite group, by MLX's rule. Infinite when the range of the group is.
fn parameters(x: &[f32]) -> (f32, f32) {
    let (min, max) = x.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(lo, hi), &v| (lo.min(v), hi.max(v)));
    let from_min = min.abs() > max.abs();
    let step = ((max - min) / 15.0).max(1e-7);
    let (edge, scale) = if from_min { (min, step) } else { (max, -step) };
    let steps = (edge / scale).round_ties_even();
    if steps == 0.0 { (scale, 0.0) } else { (edge / steps, edge) }
}

/// The code of a weight by MLX's rule, for parameters that are not rounded yet.
fn code(v: f32, scale: f32, bias: f32) -> u8 {
    round_clamped((v - bias) / scale, 0.0, 15.0) as u8
}

/// Quantizes a row to affine groups by MLX's rule; equal to `mlx.core.quantize(bits=4)` bit for bit.
///
/// `x`: weights, a whole number of groups, as f32 (for MLX's own bytes from a bf16 or f16 tensor:
/// its values, and `S` its type). `packed`: `x.len() / 8`; `scales`, `biases`: `x.len() / group`.
///
/// # Errors
///
/// [`Error::NotWholeGroups`], [`Error::Length`], [`Error::NonFinite`], and [`Error::Overflow`] when
/// a scale or bias would be stored as infinity. Nothing is written then.
pub fn quantize_row<S: AffineScale>(
    x: &[f32],
    group: GroupSize,
    packed: &mut [u32],
    scales: &mut [S],
    biases: &mut [S],
) -> Result<(), Error> {
    check_row(x, group, packed, scales, biases)?;
    let size = group.weights();
    let outputs = packed.chunks_exact_mut(size / 8).zip(scales.iter_mut().zip(biases));
    for (x, (packed, (scale, bias))) in x.chunks_exact(size).zip(outputs) {
        let (s, b) = parameters(x);
        for (word, x) in packed.iter_mut().zip(x.as_chunks::<8>().0) {
            *word = pack8(&x.map(|v| code(v, s, b)));
        }
        (*scale, *bias) = (S::from_f32(s), S::from_f32(b));
    }
    Ok(())
}

/// Checks the lengths of the slices of a row, and that its parameters by MLX's rule are in range.
fn check_row<S: AffineScale>(
    x: &[f32],
    group: GroupSize,
    packed: &[u32],
    scales: &[S],
    biases: &[S],
) -> Result<(), Error> {
    let size = group.weights();
    if !x.len().is_multiple_of(size) {
        return Err(Error::NotWholeGroups { group: size, got: x.len() });
    }
    check_len("packed", x.len() / 8, packed.len())?;
    check_len("scales", x.len() / size, scales.len())?;
    check_len("biases", x.len() / size, biases.len())?;
    check_finite(x, size)?;
    for (i, group) in x.chunks_exact(size).enumerate() {
        let (scale, bias) = parameters(group);
        for (what, value) in [("scale", scale), ("bias", bias)] {
            if !S::from_f32(value).to_f32().is_finite() {
                return Err(Error::Overflow { index: i * size, group: i, what, value, limit: S::LIMIT });
            }
        }
    }
    Ok(())
}

/// Expands affine groups into `out`, `8 * packed.len()` weights, each as MLX computes it in the type
/// `S`: the product `scale * code` is rounded to `S`, then the sum with the bias is.
///
/// Kernels may compute `scale * code + bias` in f32 instead, which is more precise.
///
/// # Errors
///
/// [`Error::NotWholeGroups`] when `out` is not a whole number of groups, [`Error::Length`] for the
/// others; nothing is written then.
pub fn dequantize_row<S: AffineScale>(
    packed: &[u32],
    scales: &[S],
    biases: &[S],
    group: GroupSize,
    out: &mut [f32],
) -> Result<(), Error> {
    let size = group.weights();
    if !out.len().is_multiple_of(size) {
        return Err(Error::NotWholeGroups { group: size, got: out.len() });
    }
    check_len("packed", out.len() / 8, packed.len())?;
    check_len("scales", out.len() / size, scales.len())?;
    check_len("biases", out.len() / size, biases.len())?;
    let groups = packed.chunks_exact(size / 8).zip(scales.iter().zip(biases));
    for (out, (packed, (scale, bias))) in out.chunks_exact_mut(size).zip(groups) {
        let (s, b) = (scale.to_f32(), bias.to_f32());
        for (out, &word) in out.as_chunks_mut::<8>().0.iter_mut().zip(packed) {
            // f32 holds the product of an f16 or bf16 and a code exactly, and rounding an f32 sum of
            // two such numbers again changes nothing: f32 has more than twice their bits.
            *out = unpack8(word).map(|q| S::from_f32(S::from_f32(s * f32::from(q)).to_f32() + b).to_f32());
        }
    }
    Ok(())
}
