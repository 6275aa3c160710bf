//! The sum of what the chosen experts of a mixture give for each token.

use crate::Context;
use crate::error::{Error, check_len};
use crate::simd::{Kernel, Simd};

/// What a token takes of one expert's output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chosen {
    /// The row of the experts' outputs.
    pub row: usize,
    /// What it is multiplied by.
    pub weight: f32,
}

/// Adds to every row of `y` the weighted sum of some rows of `x`: `y[t] += sum over i of weight * x[row]`, for the `k`
/// elements of `chosen` that belong to row `t`.
///
/// `y` is tokens x `width`, `chosen` is tokens x `k`, `x` is rows x `width`, all row-major. Numerics: one f32 rounding for each
/// product and one for each sum, in the order of `chosen`, so a row's bits depend on its own elements of `chosen` alone.
///
/// # Errors
/// [`Error::Group`] if `x` or `y` is no whole number of rows, [`Error::Length`] if `chosen` is not tokens x `k` long,
/// [`Error::Shape`] if there is no such row of `x`. Nothing is written then.
pub fn add_chosen(
    ctx: Context<'_>,
    chosen: &[Chosen],
    k: usize,
    x: &[f32],
    width: usize,
    y: &mut [f32],
) -> Result<(), Error> {
    for (what, len) in [("elements of x, by width", x.len()), ("elements of y, by width", y.len())] {
        if !len.is_multiple_of(width) {
            return Err(Error::Group { what, cols: len, group: width });
        }
    }
    check_len("chosen", y.len().checked_div(width).unwrap_or(0).saturating_mul(k), chosen.len())?;
    let rows = x.len().checked_div(width).unwrap_or(0);
    if let Some(chosen) = chosen.iter().find(|chosen| chosen.row >= rows) {
        return Err(Error::Shape { what: "rows of x", expected: chosen.row + 1, got: rows });
    }
    if width > 0 && k > 0 {
        ctx.pool.par_chunks_mut(y, width, |t, y| {
            for &Chosen { row, weight } in &chosen[t * k..][..k] {
                ctx.isa.dispatch(AddScaled { x: &x[row * width..][..width], weight, y });
            }
        });
    }
    Ok(())
}

struct AddScaled<'a> {
    x: &'a [f32],
    weight: f32,
    y: &'a mut [f32],
}

impl Kernel for AddScaled<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    // No primitive of `S` is used: inlined into its `vectorize`, the loop is compiled for its instructions. The compiler
    // never makes one fma of the two operations.
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (y, x) in self.y.iter_mut().zip(self.x) {
            *y += self.weight * x;
        }
    }
}
