//! The gates of recurrent layers and of gated attention.

use crate::elementwise::CHUNK;
use crate::error::{Error, check_len};
use crate::gated::silu;
use crate::norm::inverse;
use crate::simd::{Kernel, LANES, Simd, exp};
use crate::{Context, Isa};

/// `1 / (1 + exp(-x))`: within `8 * 2^-24` of the exact value, relatively; 0 below -87.3, NaN for NaN.
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(s: S, x: S::F32) -> S::F32 {
    // By `e = exp(-|x|)`, which can't overflow: `1 / (1 + e)` from 0 on, `e / (1 + e)` below.
    let e = exp_minus_abs(s, x);
    let numerator = s.select_lt(x, s.splat(0.0), e, s.splat(1.0));
    s.div(numerator, s.add(s.splat(1.0), e))
}

/// `ln(1 + exp(x))`: within `12 * 2^-24` of the exact value, relatively; 0 below -87.3, NaN for NaN.
#[inline(always)]
pub(crate) fn softplus<S: Simd>(s: S, x: S::F32) -> S::F32 {
    // `max(x, 0) + ln(1 + e)` with `e = exp(-|x|)` from 0 to 1, and `ln(1 + e) = 2 artanh(u)` for `u = e / (2 + e)`: of
    // the series `u + u^3 / 3 + ..`, with `u` up to 1/3, what is left out lies below 2^-28 of the sum.
    let e = exp_minus_abs(s, x);
    let u = s.div(e, s.add(s.splat(2.0), e));
    let square = s.mul(u, u);
    let mut p = s.splat(1.0 / 17.0);
    for odd in [15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0] {
        p = s.fma(p, square, s.splat(1.0 / odd));
    }
    let twice = s.add(u, u);
    let log = s.fma(s.mul(p, square), twice, twice);
    // The second operand is what a NaN leaves, and `log` is NaN then.
    s.add(s.max(x, s.splat(0.0)), log)
}

#[inline(always)]
fn exp_minus_abs<S: Simd>(s: S, x: S::F32) -> S::F32 {
    exp(s, s.from_bits(s.or(s.to_bits(x), s.splat_i32(i32::MIN))))
}

/// The gates of the delta rule, in place: `beta = sigmoid(beta)`, and `decay = exp(rate * softplus(decay + bias))`.
///
/// `beta` and `decay` are rows x heads, `rate` and `bias` one number a head. The rates of a trained model are negative, so
/// that decays lie from 0 to 1.
///
/// Numerics: a beta is within `8 * 2^-24` of the exact value, relatively; a decay within `(16 |g| + 8) * 2^-24`, where `g` is
/// the exponent, of the value for the f32 sum of `decay + bias`. Both are 0 where the exact value is below `1.3e-38`.
///
/// # Errors
/// [`Error::Length`] unless `bias` is as long as `rate` and `decay` as long as `beta`, [`Error::Group`] unless these are whole
/// rows. Nothing is written then.
pub fn delta_gates(
    isa: Isa,
    beta: &mut [f32],
    decay: &mut [f32],
    rate: &[f32],
    bias: &[f32],
) -> Result<(), Error> {
    check_len("bias", rate.len(), bias.len())?;
    check_len("decay", beta.len(), decay.len())?;
    if rate.is_empty() || !beta.len().is_multiple_of(rate.len()) {
        let what = "elements of beta, rows of the length of rate";
        return Err(Error::Group { what, cols: beta.len(), group: rate.len() });
    }
    isa.dispatch(DeltaGates { beta, decay, rate, bias });
    Ok(())
}

struct DeltaGates<'a> {
    beta: &'a mut [f32],
    decay: &'a mut [f32],
    rate: &'a [f32],
    bias: &'a [f32],
}

impl Kernel for DeltaGates<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let heads = self.rate.len();
        for (beta, decay) in self.beta.chunks_exact_mut(heads).zip(self.decay.chunks_exact_mut(heads)) {
            for k in (0..heads).step_by(LANES) {
                let b = sigmoid(s, s.load_partial(&beta[k..]));
                s.store_up_to(&mut beta[k..], b);
                let a = s.add(s.load_partial(&decay[k..]), s.load_partial(&self.bias[k..]));
                let g = s.mul(s.load_partial(&self.rate[k..]), softplus(s, a));
                s.store_up_to(&mut decay[k..], exp(s, g));
            }
        }
    }
}

/// `y = y * sigmoid(gate)`, element by element: how gated attention weighs what it found.
///
/// Numerics: within `9 * 2^-24` of the exact value, relatively; 0 for a gate below -87.3.
///
/// # Errors
/// [`Error::Length`] if the lengths differ. Nothing is written then.
pub fn sigmoid_gate(ctx: Context<'_>, y: &mut [f32], gate: &[f32]) -> Result<(), Error> {
    check_len("gate", y.len(), gate.len())?;
    ctx.pool.par_chunks_mut(y, CHUNK, |i, y| {
        ctx.isa.dispatch(SigmoidGate { gate: &gate[i * CHUNK..][..y.len()], y });
    });
    Ok(())
}

struct SigmoidGate<'a> {
    gate: &'a [f32],
    y: &'a mut [f32],
}

impl Kernel for SigmoidGate<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let full = self.y.len() / LANES * LANES;
        for k in (0..full).step_by(LANES) {
            let v = s.mul(s.load_slice(&self.y[k..]), sigmoid(s, s.load_slice(&self.gate[k..])));
            s.store_slice(&mut self.y[k..], v);
        }
        let v = s.mul(s.load_partial(&self.y[full..]), sigmoid(s, s.load_partial(&self.gate[full..])));
        s.store_partial(&mut self.y[full..], v);
    }
}

/// `x[r] = rms_norm(x[r]) * silu(gate[r])` for every row, in place: how a recurrent layer weighs a head's output.
///
/// `x` and `gate` are rows x `weight.len()`; the norm is [`crate::rms_norm`]'s.
///
/// Numerics: within `(n / 32 + 19) * 2^-24` of the exact value, relatively, for rows of `n`, barring underflow.
///
/// # Errors
/// [`Error::Group`] if `x` is no whole number of rows or `weight` is empty, [`Error::Length`] if `gate` differs in length from
/// `x`. Nothing is written then.
pub fn rms_norm_gated(
    ctx: Context<'_>,
    x: &mut [f32],
    weight: &[f32],
    eps: f32,
    gate: &[f32],
) -> Result<(), Error> {
    let n = weight.len();
    check_len("gate", x.len(), gate.len())?;
    if n == 0 || !x.len().is_multiple_of(n) {
        let what = "elements of x, rows of the length of weight";
        return Err(Error::Group { what, cols: x.len(), group: n });
    }
    let piece = (x.len() / n).div_ceil(4 * ctx.pool.threads()).max(1) * n;
    ctx.pool.par_chunks_mut(x, piece, |i, x| {
        ctx.isa.dispatch(NormGated { gate: &gate[i * piece..][..x.len()], weight, eps, x });
    });
    Ok(())
}

struct NormGated<'a> {
    x: &'a mut [f32],
    weight: &'a [f32],
    eps: f32,
    gate: &'a [f32],
}

impl Kernel for NormGated<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n = self.weight.len();
        let full = n / LANES * LANES;
        for (x, gate) in self.x.chunks_exact_mut(n).zip(self.gate.chunks_exact(n)) {
            let inverse = inverse(s, x, self.eps);
            for k in (0..full).step_by(LANES) {
                let v = s.mul(s.mul(s.load_slice(&x[k..]), inverse), s.load_slice(&self.weight[k..]));
                s.store_slice(&mut x[k..], s.mul(v, silu(s, s.load_slice(&gate[k..]))));
            }
            let v = s.mul(s.load_partial(&x[full..]), inverse);
            let v = s.mul(v, s.load_partial(&self.weight[full..]));
            s.store_partial(&mut x[full..], s.mul(v, silu(s, s.load_partial(&gate[full..]))));
        }
    }
}

/// Separates heads that lie beside their gates: `x` has for each head `head_dim` numbers of `y`, then as many of `gate`.
///
/// # Errors
/// [`Error::Group`] if `x` is no whole number of such heads, [`Error::Length`] if `y` or `gate` is not half as long. Nothing
/// is written then.
pub fn split_gated(
    ctx: Context<'_>,
    x: &[f32],
    head_dim: usize,
    y: &mut [f32],
    gate: &mut [f32],
) -> Result<(), Error> {
    let pair = head_dim.saturating_mul(2);
    if pair == 0 || !x.len().is_multiple_of(pair) {
        return Err(Error::Group {
            what: "elements of x, heads beside their gates",
            cols: x.len(),
            group: pair,
        });
    }
    check_len("y", x.len() / 2, y.len())?;
    check_len("gate", x.len() / 2, gate.len())?;
    let heads = CHUNK.div_ceil(head_dim);
    let take = |to: &mut [f32], offset: usize| {
        ctx.pool.par_chunks_mut(to, heads * head_dim, |i, to| {
            let from = x[i * heads * pair..].chunks_exact(pair);
            for (to, from) in to.chunks_exact_mut(head_dim).zip(from) {
                to.copy_from_slice(&from[offset..][..head_dim]);
            }
        });
    };
    take(y, 0);
    take(gate, head_dim);
    Ok(())
}
