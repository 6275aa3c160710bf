//! SwiGLU, residual addition and softmax.

use crate::error::{Error, check_len};
use crate::quantize::{by_groups, by_rows, resize, set, set_row};
use crate::scratch::{Line, Purpose, with_lines};
use crate::simd::{Kernel, LANES, Simd, exp};
use crate::{Context, Isa};
use halfbyte_q8::{Activations, GROUP, Part, Precision};

/// Elements a work item of an elementwise kernel takes: enough that handing it over costs little beside it.
const CHUNK: usize = 4096;

/// `y = silu(gate) * up`, element by element, with `silu(g) = g / (1 + exp(-g))`.
///
/// Numerics: for a gate of at least -87.3 within `10 * 2^-24` of the exact value, relatively, barring underflow;
/// below, `silu` is -0 (the exact value lies within 1.1e-36 of it). NaN in, NaN out; `silu` of minus infinity is
/// NaN, as the formula says, and `silu` of infinity is infinity.
///
/// # Errors
/// [`Error::Length`] if the lengths differ. Nothing is written then.
pub fn swiglu(ctx: Context<'_>, gate: &[f32], up: &[f32], y: &mut [f32]) -> Result<(), Error> {
    check_len("up", gate.len(), up.len())?;
    check_len("y", gate.len(), y.len())?;
    ctx.pool.par_chunks_mut(y, CHUNK, |i, y| {
        let at = i * CHUNK;
        ctx.isa.dispatch(SwiGlu { gate: &gate[at..at + y.len()], up: &up[at..at + y.len()], y });
    });
    Ok(())
}

/// [`swiglu`] of `rows` rows and [`crate::quantize_activations`] of its result in one pass, with the same bits: `out`
/// takes the shape `rows` x `gate.len() / rows`.
///
/// # Errors
/// [`Error::Length`] if the lengths differ, [`Error::Group`] if `gate` is no `rows` rows, or these are no multiple of 32
/// long. `out` is as it was then.
pub fn swiglu_quantize(
    ctx: Context<'_>,
    gate: &[f32],
    up: &[f32],
    rows: usize,
    out: &mut Activations,
) -> Result<(), Error> {
    check_len("up", gate.len(), up.len())?;
    if !gate.len().is_multiple_of(rows) {
        return Err(Error::Group { what: "elements of gate, by rows", cols: gate.len(), group: rows });
    }
    resize(out, rows, gate.len().checked_div(rows).unwrap_or(0))?;
    let (precision, cols) = (out.precision(), out.cols());
    if precision != Precision::Auto {
        // Every group is on its own.
        let limit = precision.limit(&[]);
        let groups_a_piece = out.groups().saturating_mul(rows).div_ceil(4 * ctx.pool.threads());
        by_groups(ctx, out, groups_a_piece.max(CHUNK / GROUP), |first, part| {
            let elements = first * GROUP..(first + part.groups()) * GROUP;
            ctx.isa.dispatch(SwiGluGroups { gate: &gate[elements.clone()], up: &up[elements], limit, part });
        });
    } else if rows == 1 && cols > CHUNK && ctx.pool.threads() > 1 {
        with_row(cols, |y| {
            swiglu(ctx, gate, up, y)?;
            crate::quantize_activations(ctx, y, 1, cols, out)
        })?;
    } else {
        let rows_a_piece = rows.div_ceil(4 * ctx.pool.threads()).max(CHUNK / cols.max(1));
        by_rows(ctx, out, rows_a_piece, |first, part| {
            let elements = first * GROUP..(first + part.groups()) * GROUP;
            let (gate, up) = (&gate[elements.clone()], &up[elements]);
            with_row(cols, |y| ctx.isa.dispatch(SwiGluRows { gate, up, y, part }));
        });
    }
    Ok(())
}

/// Calls `f` with room for a row of `n` numbers.
fn with_row<R>(n: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    with_lines(Purpose::Activations, n.div_ceil(LANES), |lines| {
        f(&mut bytemuck::cast_slice_mut::<Line, f32>(lines)[..n])
    })
}

struct SwiGlu<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    y: &'a mut [f32],
}

#[inline(always)]
fn swiglu_vector<S: Simd>(s: S, gate: S::F32, up: S::F32) -> S::F32 {
    s.mul(silu(s, gate), up)
}

/// `gate / (1 + exp(-gate))`, as [`swiglu`] describes it.
#[inline(always)]
pub(crate) fn silu<S: Simd>(s: S, gate: S::F32) -> S::F32 {
    // By `e = exp(-|g|)`, which can't overflow: `g / (1 + e)` from 0 on, `g e / (1 + e)` below.
    let e = exp(s, s.from_bits(s.or(s.to_bits(gate), s.splat_i32(i32::MIN))));
    let numerator = s.select_lt(gate, s.splat(0.0), s.mul(gate, e), gate);
    s.div(numerator, s.add(s.splat(1.0), e))
}

impl Kernel for SwiGlu<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let full = self.y.len() / LANES * LANES;
        for k in (0..full).step_by(LANES) {
            let v = swiglu_vector(s, s.load_slice(&self.gate[k..]), s.load_slice(&self.up[k..]));
            s.store_slice(&mut self.y[k..], v);
        }
        let v = swiglu_vector(s, s.load_partial(&self.gate[full..]), s.load_partial(&self.up[full..]));
        s.store_partial(&mut self.y[full..], v);
    }
}

struct SwiGluGroups<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    limit: f32,
    part: Part<'a>,
}

impl Kernel for SwiGluGroups<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let groups = self.gate.chunks_exact(GROUP).zip(self.up.chunks_exact(GROUP));
        for (i, (gate, up)) in groups.enumerate() {
            let first = swiglu_vector(s, s.load_slice(gate), s.load_slice(up));
            let second = swiglu_vector(s, s.load_slice(&gate[LANES..]), s.load_slice(&up[LANES..]));
            set(s, &mut self.part, i, [first, second], self.limit);
        }
    }
}

/// Whole rows, each of which decides about its outliers.
struct SwiGluRows<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    /// Room for a row.
    y: &'a mut [f32],
    part: Part<'a>,
}

impl Kernel for SwiGluRows<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let n = self.y.len().max(1);
        for (r, (gate, up)) in self.gate.chunks_exact(n).zip(self.up.chunks_exact(n)).enumerate() {
            let vectors = gate.chunks_exact(LANES).zip(up.chunks_exact(LANES));
            for (y, (gate, up)) in self.y.chunks_exact_mut(LANES).zip(vectors) {
                s.store_slice(y, swiglu_vector(s, s.load_slice(gate), s.load_slice(up)));
            }
            set_row(s, &mut self.part, r * n / GROUP, self.y, Precision::Auto);
        }
    }
}

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
