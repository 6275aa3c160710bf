//! Products of groups of tokens, each group with a matrix of its own, in f32.

use super::gemm_f32;
use crate::Context;
use crate::error::{Error, check_len};
use crate::int8::check_groups;
use crate::matrix::Matrix;
use crate::scratch::{Line, Purpose, with_lines};

/// [`crate::gemm_int8_grouped`] for f32 activations, `rows` x the matrices' columns, and weights of every type.
///
/// Numerics: those of [`gemm_f32`], which takes one group after the other.
///
/// # Errors
/// As there, and [`Error::Length`] if `x` is not `rows` x the matrices' columns long.
pub fn gemm_f32_grouped(
    ctx: Context<'_>,
    groups: &[(Matrix<'_>, &[usize])],
    x: &[f32],
    rows: usize,
    y: &mut [f32],
) -> Result<(), Error> {
    let cols = groups.first().map_or(0, |(w, _)| w.cols());
    check_groups(groups, rows, cols, y.len())?;
    if !groups.is_empty() {
        check_len("x", rows.saturating_mul(cols), x.len())?;
    }
    let mut rest = y;
    for (w, tokens) in groups {
        let (own, others) = rest.split_at_mut(tokens.len() * w.rows());
        rest = others;
        match **tokens {
            [] => {}
            [row] => gemm_f32(ctx, w, &x[row * cols..][..cols], 1, own)?,
            _ => with_lines(Purpose::Gathered, (tokens.len() * cols).div_ceil(16), |lines| {
                let gathered = &mut bytemuck::cast_slice_mut::<Line, f32>(lines)[..tokens.len() * cols];
                for (to, &row) in gathered.chunks_exact_mut(cols.max(1)).zip(*tokens) {
                    to.copy_from_slice(&x[row * cols..][..cols]);
                }
                gemm_f32(ctx, w, gathered, tokens.len(), own)
            })?,
        }
    }
    Ok(())
}
