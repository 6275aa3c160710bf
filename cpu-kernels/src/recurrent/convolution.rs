//! The causal convolution of every channel by itself, with the rows that it still needs of earlier calls.

use crate::Context;
use crate::error::{Error, check_len};
use crate::gated::silu;
use crate::simd::{Kernel, LANES, Simd};

/// Channels that a work item takes where there is only one row.
const CHANNELS: usize = 2048;

/// `y[t][c] = silu(sum over j of taps[j][c] * x[t - n + 1 + j][c])`, where `tail` has the rows before the first, and takes
/// the last `n - 1` rows of `x` afterwards.
///
/// `x` and `y` are rows x `channels`, `taps` is `n` x `channels` (the last tap multiplies the row itself), `tail` is
/// `n - 1` x `channels`; all are row-major. Before the first row of a sequence the tail is zeros.
///
/// Numerics: products are added from the oldest row on by fma; the sum is within `n * 2^-24` times the sum of the products'
/// magnitudes of the exact one, and silu of it is within `10 * 2^-24`, relatively, as in [`crate::gated`]. An output's bits
/// depend on the `n` inputs alone, not on how rows are cut into calls.
///
/// # Errors
/// [`Error::Group`] if `x` is no whole number of rows, or `taps` no whole number of them or empty; [`Error::Length`] if `tail`
/// or `y` has another length. Nothing is written then.
pub fn causal_convolution(
    ctx: Context<'_>,
    x: &[f32],
    channels: usize,
    taps: &[f32],
    tail: &mut [f32],
    y: &mut [f32],
) -> Result<(), Error> {
    convolve::<true>(ctx, x, channels, taps, tail, y)
}

/// [`causal_convolution`] without silu: `y` takes the sums themselves.
///
/// # Errors
/// As [`causal_convolution`].
pub fn causal_convolution_linear(
    ctx: Context<'_>,
    x: &[f32],
    channels: usize,
    taps: &[f32],
    tail: &mut [f32],
    y: &mut [f32],
) -> Result<(), Error> {
    convolve::<false>(ctx, x, channels, taps, tail, y)
}

/// Both of them: with silu if `SILU`.
fn convolve<const SILU: bool>(
    ctx: Context<'_>,
    x: &[f32],
    channels: usize,
    taps: &[f32],
    tail: &mut [f32],
    y: &mut [f32],
) -> Result<(), Error> {
    for (what, len) in
        [("elements of x, rows of the channels", x.len()), ("taps of the channels", taps.len())]
    {
        if channels == 0 || !len.is_multiple_of(channels) {
            return Err(Error::Group { what, cols: len, group: channels });
        }
    }
    if taps.is_empty() {
        return Err(Error::Group { what: "taps of the channels", cols: 0, group: channels });
    }
    check_len("tail", taps.len() - channels, tail.len())?;
    check_len("y", x.len(), y.len())?;
    let rows = x.len() / channels;
    let piece = match rows {
        0 => return Ok(()),
        1 => CHANNELS,
        _ => rows.div_ceil(4 * ctx.pool.threads()) * channels,
    };
    let before = &*tail;
    ctx.pool.par_chunks_mut(y, piece, |i, y| {
        ctx.isa.dispatch(Convolve::<SILU> { x, channels, taps, before, first: i * piece, y });
    });
    // The rows that the next call needs: of the old tail, too, where this call has fewer.
    if x.len() >= tail.len() {
        tail.copy_from_slice(&x[x.len() - tail.len()..]);
    } else {
        tail.copy_within(x.len().., 0);
        let kept = tail.len() - x.len();
        tail[kept..].copy_from_slice(x);
    }
    Ok(())
}

/// Some elements of the output: whole rows, or a part of one.
struct Convolve<'a, const SILU: bool> {
    x: &'a [f32],
    channels: usize,
    taps: &'a [f32],
    /// The tail before this call.
    before: &'a [f32],
    /// The first element, counted over all rows.
    first: usize,
    y: &'a mut [f32],
}

impl<const SILU: bool> Kernel for Convolve<'_, SILU> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { x, channels, taps, before, first, y } = self;
        let (row, channel) = (first / channels, first % channels);
        let n = taps.len() / channels;
        let activate = |sum: S::F32| if SILU { silu(s, sum) } else { sum };
        let width = (channels - channel).min(y.len());
        for (r, y) in y.chunks_mut(width).enumerate() {
            // Input `j` of the row: `before` and `x` stand for one sequence of rows, `n - 1` of them in `before`.
            let input = |j: usize| {
                let at = row + r + j;
                let from = if at + 1 < n { &before[at * channels..] } else { &x[(at + 1 - n) * channels..] };
                &from[channel..channel + width]
            };
            let tap = |j: usize| &taps[j * channels + channel..][..width];
            let full = width / LANES * LANES;
            for k in (0..full).step_by(LANES) {
                let mut sum = s.mul(s.load_slice(&tap(0)[k..]), s.load_slice(&input(0)[k..]));
                for j in 1..n {
                    sum = s.fma(s.load_slice(&tap(j)[k..]), s.load_slice(&input(j)[k..]), sum);
                }
                s.store_slice(&mut y[k..], activate(sum));
            }
            if full < width {
                let mut sum = s.mul(s.load_partial(&tap(0)[full..]), s.load_partial(&input(0)[full..]));
                for j in 1..n {
                    sum = s.fma(s.load_partial(&tap(j)[full..]), s.load_partial(&input(j)[full..]), sum);
                }
                s.store_partial(&mut y[full..], activate(sum));
            }
        }
    }
}
