//! Affine groups with scale and bias by least squares.
//!
//! The layout is that of MLX, and every reader of it reads the result; only the rule that chooses scale and bias differs.
//! MLX's rule makes zero a code and chooses codes for parameters that are not rounded yet. This one minimises the
//! squared error of the group as stored, `scale * code + bias`.

use super::{AffineScale, GroupSize, check_row, code, pack8, parameters};
use crate::error::Error;
use crate::importance::{Weighted, check_importance};
use crate::least_squares::improve;

/// Quantizes a row to affine groups with scale and bias by least squares.
///
/// For offline use. Shapes as for [`quantize_row`](super::quantize_row). Twenty-one steps from either end are tried for
/// each group, each refitted, and the best of them refitted until that gains nothing. The squared error of every group,
/// `sum((x - (scale * code + bias))^2)` with the parameters as stored, is at most that of
/// [`quantize_row`](super::quantize_row). Zero need not be a code, and the scale may have either sign.
///
/// # Errors
///
/// As [`quantize_row`](super::quantize_row).
///
/// ```
/// use halfbyte_q4::affine::{GroupSize, dequantize_row, quantize_row, quantize_row_fit};
/// let x: Vec<f32> = (0..64).map(|i| (i as f32).sin()).collect();
/// let error = |fitted: bool| {
///     let (mut packed, mut scale, mut bias) = ([0; 8], [0.0f32], [0.0f32]);
///     let write = if fitted { quantize_row_fit } else { quantize_row };
///     write(&x, GroupSize::G64, &mut packed, &mut scale, &mut bias)?;
///     let mut back = [0.0; 64];
///     dequantize_row(&packed, &scale, &bias, GroupSize::G64, &mut back)?;
///     Ok::<f32, halfbyte_q4::Error>(x.iter().zip(back).map(|(a, b)| (a - b).powi(2)).sum())
/// };
/// assert!(error(true)? < error(false)?);
/// # Ok::<(), halfbyte_q4::Error>(())
/// ```
pub fn quantize_row_fit<S: AffineScale>(
    x: &[f32],
    group: GroupSize,
    packed: &mut [u32],
    scales: &mut [S],
    biases: &mut [S],
) -> Result<(), Error> {
    check_row(x, group, packed, scales, biases)?;
    let _all_equal = write(x, None, group, packed, scales, biases);
    Ok(())
}

/// [`quantize_row_fit`] for columns of unequal importance.
///
/// `importance`: one number of at least 0 for each weight of `x`; the other shapes as for
/// [`quantize_row`](super::quantize_row). The weighted squared error of every group,
/// `sum(importance * (x - (scale * code + bias))^2)` with the parameters as stored, is at most that of
/// [`quantize_row`](super::quantize_row). Equal importances give the bytes of [`quantize_row_fit`]. A
/// group whose importances are all 0 gets equal ones; the report counts them.
///
/// # Errors
///
/// As [`quantize_row`](super::quantize_row), and [`Error::Importance`]. Nothing is written then.
pub fn quantize_row_weighted<S: AffineScale>(
    x: &[f32],
    importance: &[f32],
    group: GroupSize,
    packed: &mut [u32],
    scales: &mut [S],
    biases: &mut [S],
) -> Result<Weighted, Error> {
    check_row(x, group, packed, scales, biases)?;
    check_importance(importance, x.len())?;
    Ok(write(x, Some(importance), group, packed, scales, biases))
}

/// Writes a checked row.
fn write<S: AffineScale>(
    x: &[f32],
    importance: Option<&[f32]>,
    group: GroupSize,
    packed: &mut [u32],
    scales: &mut [S],
    biases: &mut [S],
) -> Weighted {
    match group {
        GroupSize::G32 => write_groups::<S, 32>(x, importance, packed, scales, biases),
        GroupSize::G64 => write_groups::<S, 64>(x, importance, packed, scales, biases),
        GroupSize::G128 => write_groups::<S, 128>(x, importance, packed, scales, biases),
    }
}

fn write_groups<S: AffineScale, const N: usize>(
    x: &[f32],
    importance: Option<&[f32]>,
    packed: &mut [u32],
    scales: &mut [S],
    biases: &mut [S],
) -> Weighted {
    let mut report = Weighted::default();
    let outputs = packed.chunks_exact_mut(N / 8).zip(scales.iter_mut().zip(biases));
    for (i, (x, (packed, (scale, bias)))) in x.as_chunks::<N>().0.iter().zip(outputs).enumerate() {
        let w = match importance {
            Some(importance) => report.weights(&importance.as_chunks::<N>().0[i]),
            None => [1.0; N],
        };
        let (s, b) = parameters(x);
        let rule = (S::from_f32(s), S::from_f32(b), x.map(|v| code(v, s, b)));
        // MLX decodes in the stored type, where no result may be infinite.
        let best = improve(x, &w, rule, S::LIMIT);
        for (word, codes) in packed.iter_mut().zip(best.codes().as_chunks::<8>().0) {
            *word = pack8(codes);
        }
        (*scale, *bias) = (best.scale, best.bias);
    }
    report
}
