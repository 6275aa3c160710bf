//! The hidden layer of a gated feed-forward network: `activation(gate) * up`.

use crate::Context;
use crate::elementwise::CHUNK;
use crate::error::{Error, check_len};
use crate::quantize::{by_groups, by_rows, resize, set, set_row};
use crate::scratch::{Line, Purpose, with_lines};
use crate::simd::{Kernel, LANES, Simd, exp};
use halfbyte_q8::{Activations, GROUP, Part, Precision};

/// What the gate goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activation {
    /// SiLU: `g / (1 + exp(-g))`.
    Silu,
    /// The GELU's usual approximation: `g / 2 * (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3)))`.
    GeluTanh,
    /// SiLU of gpt-oss: with the gate `g` of at most 7, `g / (1 + exp(-1.702 g))`; what it is multiplied by is `up` within
    /// -7 and 7, plus 1.
    ClampedSilu,
}

/// The bound of [`Activation::ClampedSilu`], and what its gate is multiplied by in the exponential.
const CLAMP: f32 = 7.0;
const CLAMPED_SLOPE: f32 = 1.702;

/// `sqrt(8 / pi)`: twice that of the formula with `tanh`, since `(1 + tanh(x)) / 2 = 1 / (1 + exp(-2 x))`.
const GELU_SLOPE: f32 = 1.595_769;
/// `0.044715 sqrt(8 / pi)`.
const GELU_CUBE: f32 = 0.071_354_82;

/// `y = activation(gate) * up`, element by element.
///
/// Numerics, barring underflow:
/// - [`Activation::Silu`]: for a gate of at least -87.3 within `10 * 2^-24` of the exact value, relatively; below,
///   `silu` is -0 (the exact value lies within 1.1e-36 of it).
/// - [`Activation::GeluTanh`], with `z = sqrt(8 / pi) (g + 0.044715 g^3)`: for `z` of at least -87.3 within
///   `(10 + 4 |min(z, 0)|) * 2^-24` of the exact value, relatively: the rounding of `z` is multiplied by `z` in the
///   exponential; below, it is -0 (the exact value lies within 2e-37 of it).
///
/// - [`Activation::ClampedSilu`]: as SiLU with `z = 1.702 g` in the place of the gate, `(10 + 2 |min(z, 0)|) * 2^-24`; one
///   more rounding for `up + 1`.
///
/// NaN in, NaN out; the activation of minus infinity is NaN, as the formula says, and of infinity infinity, or that of 7.
///
/// # Errors
/// [`Error::Length`] if the lengths differ. Nothing is written then.
pub fn gated(
    ctx: Context<'_>,
    activation: Activation,
    gate: &[f32],
    up: &[f32],
    y: &mut [f32],
) -> Result<(), Error> {
    check_len("up", gate.len(), up.len())?;
    check_len("y", gate.len(), y.len())?;
    ctx.pool.par_chunks_mut(y, CHUNK, |i, y| {
        let at = i * CHUNK;
        ctx.isa.dispatch(Gated { activation, gate: &gate[at..at + y.len()], up: &up[at..at + y.len()], y });
    });
    Ok(())
}

/// [`gated`] of `rows` rows and [`crate::quantize_activations`] of its result in one pass, with the same bits: `out`
/// takes the shape `rows` x `gate.len() / rows`.
///
/// # Errors
/// [`Error::Length`] if the lengths differ, [`Error::Group`] if `gate` is no `rows` rows, or these are no multiple of 32
/// long. `out` is as it was then.
pub fn gated_quantize(
    ctx: Context<'_>,
    activation: Activation,
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
            ctx.isa.dispatch(GatedGroups {
                activation,
                gate: &gate[elements.clone()],
                up: &up[elements],
                limit,
                part,
            });
        });
    } else if rows == 1 && cols > CHUNK && ctx.pool.threads() > 1 {
        with_row(cols, |y| {
            gated(ctx, activation, gate, up, y)?;
            crate::quantize_activations(ctx, y, 1, cols, out)
        })?;
    } else {
        let rows_a_piece = rows.div_ceil(4 * ctx.pool.threads()).max(CHUNK / cols.max(1));
        by_rows(ctx, out, rows_a_piece, |first, part| {
            let elements = first * GROUP..(first + part.groups()) * GROUP;
            let (gate, up) = (&gate[elements.clone()], &up[elements]);
            with_row(cols, |y| ctx.isa.dispatch(GatedRows { activation, gate, up, y, part }));
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

struct Gated<'a> {
    activation: Activation,
    gate: &'a [f32],
    up: &'a [f32],
    y: &'a mut [f32],
}

#[inline(always)]
fn vector<S: Simd>(s: S, activation: Activation, gate: S::F32, up: S::F32) -> S::F32 {
    let (gate, up) = match activation {
        Activation::ClampedSilu => {
            // The comparisons are false for NaN, which stays.
            let (most, least) = (s.splat(CLAMP), s.splat(-CLAMP));
            let up = s.select_lt(most, up, most, up);
            let up = s.select_lt(up, least, least, up);
            (s.select_lt(most, gate, most, gate), s.add(up, s.splat(1.0)))
        }
        Activation::Silu | Activation::GeluTanh => (gate, up),
    };
    // All activations are `g / (1 + exp(-z))`.
    let z = match activation {
        Activation::Silu => gate,
        Activation::ClampedSilu => s.mul(gate, s.splat(CLAMPED_SLOPE)),
        Activation::GeluTanh => {
            let square = s.mul(gate, gate);
            s.mul(gate, s.fma(square, s.splat(GELU_CUBE), s.splat(GELU_SLOPE)))
        }
    };
    s.mul(times_sigmoid(s, gate, z), up)
}

/// `g / (1 + exp(-z))` for a `g` and a `z` of the same sign.
#[inline(always)]
fn times_sigmoid<S: Simd>(s: S, g: S::F32, z: S::F32) -> S::F32 {
    // By `e = exp(-|z|)`, which can't overflow: `g / (1 + e)` from 0 on, `g e / (1 + e)` below.
    let e = exp(s, s.from_bits(s.or(s.to_bits(z), s.splat_i32(i32::MIN))));
    let numerator = s.select_lt(g, s.splat(0.0), s.mul(g, e), g);
    s.div(numerator, s.add(s.splat(1.0), e))
}

/// [`Activation::Silu`] of `gate`, with the numerics of [`gated`].
#[inline(always)]
pub(crate) fn silu<S: Simd>(s: S, gate: S::F32) -> S::F32 {
    times_sigmoid(s, gate, gate)
}

impl Kernel for Gated<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let full = self.y.len() / LANES * LANES;
        for k in (0..full).step_by(LANES) {
            let v = vector(s, self.activation, s.load_slice(&self.gate[k..]), s.load_slice(&self.up[k..]));
            s.store_slice(&mut self.y[k..], v);
        }
        let v =
            vector(s, self.activation, s.load_partial(&self.gate[full..]), s.load_partial(&self.up[full..]));
        s.store_partial(&mut self.y[full..], v);
    }
}

struct GatedGroups<'a> {
    activation: Activation,
    gate: &'a [f32],
    up: &'a [f32],
    limit: f32,
    part: Part<'a>,
}

impl Kernel for GatedGroups<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let groups = self.gate.chunks_exact(GROUP).zip(self.up.chunks_exact(GROUP));
        for (i, (gate, up)) in groups.enumerate() {
            let first = vector(s, self.activation, s.load_slice(gate), s.load_slice(up));
            let second = vector(s, self.activation, s.load_slice(&gate[LANES..]), s.load_slice(&up[LANES..]));
            set(s, &mut self.part, i, [first, second], self.limit);
        }
    }
}

/// Whole rows, each of which decides about its outliers.
struct GatedRows<'a> {
    activation: Activation,
    gate: &'a [f32],
    up: &'a [f32],
    /// Room for a row.
    y: &'a mut [f32],
    part: Part<'a>,
}

impl Kernel for GatedRows<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let n = self.y.len().max(1);
        for (r, (gate, up)) in self.gate.chunks_exact(n).zip(self.up.chunks_exact(n)).enumerate() {
            let vectors = gate.chunks_exact(LANES).zip(up.chunks_exact(LANES));
            for (y, (gate, up)) in self.y.chunks_exact_mut(LANES).zip(vectors) {
                s.store_slice(y, vector(s, self.activation, s.load_slice(gate), s.load_slice(up)));
            }
            set_row(s, &mut self.part, r * n / GROUP, self.y, Precision::Auto);
        }
    }
}
