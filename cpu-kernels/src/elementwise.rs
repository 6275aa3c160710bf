//! Residual addition, products, scaling, the soft cap of logits, and softmax.

use crate::error::{Error, check_len};
use crate::simd::{Kernel, LANES, Simd, exp, tanh};
use crate::{Context, Isa};

/// Elements a work item of an elementwise kernel takes: enough that handing it over costs little beside it.
pub(crate) const CHUNK: usize = 4096;

/// `y += x`, element by element: the residual stream.
///
/// # Errors
/// [`Error::Length`] if the lengths differ. Nothing is written then.
pub fn add_assign(ctx: Context<'_>, y: &mut [f32], x: &[f32]) -> Result<(), Error> {
    check_len("x", y.len(), x.len())?;
    ctx.pool.par_chunks_mut(y, CHUNK, |i, y| {
        let at = i * CHUNK;
        ctx.isa.dispatch(Add { x: &x[at..at + y.len()], y });
    });
    Ok(())
}

struct Add<'a> {
    x: &'a [f32],
    y: &'a mut [f32],
}

impl Kernel for Add<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    // No primitive of `S` is used: inlined into its `vectorize`, the loop is compiled for its instructions.
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (y, x) in self.y.iter_mut().zip(self.x) {
            *y += x;
        }
    }
}

/// `y *= x`, element by element, each product rounded once: the gates of short convolutions.
///
/// # Errors
/// [`Error::Length`] if the lengths differ. Nothing is written then.
pub fn multiply_assign(ctx: Context<'_>, y: &mut [f32], x: &[f32]) -> Result<(), Error> {
    check_len("x", y.len(), x.len())?;
    ctx.pool.par_chunks_mut(y, CHUNK, |i, y| {
        let at = i * CHUNK;
        ctx.isa.dispatch(Multiply { x: &x[at..at + y.len()], y });
    });
    Ok(())
}

struct Multiply<'a> {
    x: &'a [f32],
    y: &'a mut [f32],
}

impl Kernel for Multiply<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    // No primitive of `S` is used: inlined into its `vectorize`, the loop is compiled for its instructions.
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (y, x) in self.y.iter_mut().zip(self.x) {
            *y *= x;
        }
    }
}

/// `x *= factor`, element by element, each product rounded once.
pub fn scale(ctx: Context<'_>, x: &mut [f32], factor: f32) {
    ctx.pool.par_chunks_mut(x, CHUNK, |_, x| ctx.isa.dispatch(Scale { x, factor }));
}

struct Scale<'a> {
    x: &'a mut [f32],
    factor: f32,
}

impl Kernel for Scale<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    // No primitive of `S` is used: inlined into its `vectorize`, the loop is compiled for its instructions.
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for x in self.x {
            *x *= self.factor;
        }
    }
}

/// Replaces every `x` by `cap * tanh(x / cap)`, which keeps it between `-cap` and `cap`.
///
/// Numerics: within `7 * 2^-24` of the exact value, relatively, barring underflow of `x / cap`. NaN in, NaN out.
///
/// # Errors
/// [`Error::Unsupported`] unless `cap` is a positive normal number. Nothing is written then.
pub fn soft_cap(ctx: Context<'_>, x: &mut [f32], cap: f32) -> Result<(), Error> {
    if !(cap > 0.0 && cap.is_normal()) {
        let (got, supported) = (format!("a cap of {cap}"), "positive normal numbers".into());
        return Err(Error::Unsupported { what: "soft_cap", got, supported });
    }
    ctx.pool.par_chunks_mut(x, CHUNK, |_, x| ctx.isa.dispatch(SoftCap { x, cap }));
    Ok(())
}

struct SoftCap<'a> {
    x: &'a mut [f32],
    cap: f32,
}

impl Kernel for SoftCap<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let cap = s.splat(self.cap);
        for x in self.x.chunks_mut(LANES) {
            let v = if x.len() == LANES { s.load_slice(x) } else { s.load_partial(x) };
            s.store_up_to(x, s.mul(cap, tanh(s, s.div(v, cap))));
        }
    }
}

/// Replaces `x` by `exp(x - max) / sum(exp(x - max))`.
///
/// Numerics: sums in sixteen f32 lanes; the output for `x` is within `(n / 16 + ln n + (max - x) + 16) * 2^-24` of
/// the exact value, relatively, or within 2^-126 of it (the term `max - x` is the rounding of that difference). What
/// lies more than 87.3 below the maximum becomes exactly 0, and so does minus infinity. If all are minus infinity,
/// all become 0: nothing may be chosen. NaN or plus infinity anywhere makes every output NaN.
pub fn softmax(isa: Isa, x: &mut [f32]) {
    isa.dispatch(Softmax(x));
}

struct Softmax<'a>(&'a mut [f32]);

impl Kernel for Softmax<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let x = self.0;
        let mut top = f32::NEG_INFINITY;
        for &v in x.iter() {
            if v.is_nan() || v == f32::INFINITY {
                x.fill(f32::NAN);
                return;
            }
            top = if v > top { v } else { top };
        }
        if top == f32::NEG_INFINITY {
            x.fill(0.0);
            return;
        }
        let full = x.len() / LANES * LANES;
        let mut sum = s.splat(0.0);
        for k in (0..full).step_by(LANES) {
            let e = exp(s, s.sub(s.load_slice(&x[k..]), s.splat(top)));
            s.store_slice(&mut x[k..], e);
            sum = s.add(sum, e);
        }
        // Lanes past the end count as minus infinity.
        let mut tail = [f32::NEG_INFINITY; LANES];
        tail[..x.len() - full].copy_from_slice(&x[full..]);
        let e = exp(s, s.sub(s.load_slice(&tail), s.splat(top)));
        let inverse = s.splat(1.0 / s.reduce_add(s.add(sum, e)));
        s.store_partial(&mut x[full..], s.mul(e, inverse));
        for k in (0..full).step_by(LANES) {
            let v = s.mul(s.load_slice(&x[k..]), inverse);
            s.store_slice(&mut x[k..], v);
        }
    }
}
