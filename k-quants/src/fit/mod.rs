//! Quantizers: blocks of least squared error, by search.
//!
//! What is minimised is `sum(v (x - w)^2)` over a block, where `w` are the weights as the block decodes, so that the rounding
//! of scales to f16, to 6 bits and to 4 bits is counted. `v` are the importances of the columns. Without importances, `v`
//! grows with the weight itself: `v = r + |x|`, where `r` is the root of the mean square of the block. Large weights matter
//! more than their number says, because they tend to meet large activations.
//!
//! All searches have the same parts. For given codes the best scale is that of least squares, a quotient of sums; so a
//! search tries scales, rounds the weights to codes for each, and takes the best scale for these codes:
//!
//! * [`symmetric`]: codes that stand for fixed levels, `w = d * level`.
//! * [`line`]: `w = d * code + m`.
//! * [`scales`]: super-blocks of symmetric sub-blocks, `w = (d * sc) * level`.
//! * [`lines`]: super-blocks of sub-blocks with a minimum, `w = (d * sc) * code - (dmin * m)`.
//!
//! Sums are f64. The searches take no time, thread or random number into account: equal rows give equal bytes on every
//! machine.

mod line;
mod lines;
mod pack;
mod quadratic;
mod scales;
mod symmetric;

use crate::block::Block;
use crate::error::{Error, check_len};

/// A block that can be made of weights.
pub trait Fit: Block {
    /// The largest magnitude of a weight that a block can hold, of either sign.
    const LIMIT: f32;

    /// The block of least squared error that the search finds. `x` are [`Block::WEIGHTS`] finite weights of magnitude
    /// [`Self::LIMIT`] at most, `v` as many importances in 1e-9..=1.
    #[doc(hidden)]
    fn fit(x: &[f32], v: &[f64]) -> Self;
}

/// The report of a weighted quantizer about a row.
#[must_use = "blocks without importance are quantized as if there were none, which the caller may not want"]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Weighted {
    /// The number of blocks whose importances were all 0, which were quantized as by [`quantize_row`].
    pub uniform_blocks: usize,
}

/// Quantizes a row with the importances that the weights themselves suggest; see [`Fit`] for the formats.
///
/// `x`: weights, a whole number of blocks. `out`: one block for each `B::WEIGHTS` of them. The sum of
/// `(r + |x|) (x - w)^2` of each block, as decoded, is made small, where `r` is the root of the mean square of its weights.
///
/// # Errors
///
/// [`Error::NotWholeBlocks`], [`Error::Length`], [`Error::NonFinite`], [`Error::Overflow`]. Nothing is written then.
///
/// ```
/// use halfbyte_k_quants::{Block, BlockQ4K, quantize_row};
///
/// let x: [f32; 256] = std::array::from_fn(|i| (i as f32).sin());
/// let mut out = [<BlockQ4K as bytemuck::Zeroable>::zeroed()];
/// quantize_row(&x, &mut out)?;
/// assert!(x.iter().zip(out[0].dequantize()).all(|(x, w)| (x - w).abs() < 0.08));
/// # Ok::<(), halfbyte_k_quants::Error>(())
/// ```
pub fn quantize_row<B: Fit>(x: &[f32], out: &mut [B]) -> Result<(), Error> {
    check_row::<B>(x, out.len())?;
    for (x, out) in x.chunks_exact(B::WEIGHTS).zip(out) {
        *out = B::fit(x, &prior(x));
    }
    Ok(())
}

/// Quantizes a row whose columns differ in importance: the sum of `importance * (x - w)^2` of each block, as decoded, is
/// made small.
///
/// `x` and `out` as for [`quantize_row`]. `importance`: one number of at least 0 for each weight. If it is the mean square of
/// the activation that a column is multiplied by, the sum is the expected squared error of the output for uncorrelated
/// activations. A block whose importances are all 0 is quantized as by [`quantize_row`]; the report counts them.
///
/// # Errors
///
/// As [`quantize_row`], and [`Error::Importance`]. Nothing is written then.
pub fn quantize_row_weighted<B: Fit>(
    x: &[f32],
    importance: &[f32],
    out: &mut [B],
) -> Result<Weighted, Error> {
    check_row::<B>(x, out.len())?;
    check_len("importance", x.len(), importance.len())?;
    if let Some(index) = importance.iter().position(|v| !v.is_finite() || *v < 0.0) {
        return Err(Error::Importance { index, value: importance[index] });
    }
    let mut report = Weighted::default();
    let blocks = x.chunks_exact(B::WEIGHTS).zip(importance.chunks_exact(B::WEIGHTS));
    for ((x, importance), out) in blocks.zip(out) {
        // Relative to the largest, so that no sum is too large or small. The floor gives codes to weights without importance
        // that are as good as the others leave room for.
        let most = importance.iter().fold(0.0, |most: f32, v| most.max(*v));
        *out = if most > 0.0 {
            let v: Vec<f64> =
                importance.iter().map(|v| (f64::from(*v) / f64::from(most)).max(FLOOR)).collect();
            B::fit(x, &v)
        } else {
            report.uniform_blocks += 1;
            B::fit(x, &prior(x))
        };
    }
    Ok(report)
}

/// The least importance, relative to the largest of a block.
const FLOOR: f64 = 1e-9;

/// The importances of weights of which nothing else is known: `r + |x|`, relative to the largest.
fn prior(x: &[f32]) -> Vec<f64> {
    let most = x.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
    if most == 0.0 {
        return vec![1.0; x.len()];
    }
    let relative: Vec<f64> = x.iter().map(|x| f64::from(x.abs()) / f64::from(most)).collect();
    let root = (relative.iter().map(|x| x * x).sum::<f64>() / x.len() as f64).sqrt();
    relative.iter().map(|x| (root + x) / (root + 1.0)).collect()
}

/// Checks a row for blocks `B`, of which there are `out`.
fn check_row<B: Fit>(x: &[f32], out: usize) -> Result<(), Error> {
    if !x.len().is_multiple_of(B::WEIGHTS) {
        return Err(Error::NotWholeBlocks { block: B::WEIGHTS, got: x.len() });
    }
    check_len("blocks", x.len() / B::WEIGHTS, out)?;
    for (index, &value) in x.iter().enumerate() {
        if !value.is_finite() {
            return Err(Error::NonFinite { index, value });
        }
        if value.abs() > B::LIMIT {
            return Err(Error::Overflow { index, value, format: B::NAME, limit: B::LIMIT });
        }
    }
    Ok(())
}
