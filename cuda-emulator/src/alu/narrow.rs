//! Narrow floating-point formats, and rounding to them.

use half::{bf16, f16};

/// The NaN that arithmetic gives in each format.
pub(crate) const NAN_F32: u32 = 0x7fff_ffff;
const NAN_16: u16 = 0x7fff;

/// Replaces every NaN by the one a GPU gives.
#[inline(always)]
pub(crate) fn canonical(x: f32) -> f32 {
    if x.is_nan() { f32::from_bits(NAN_F32) } else { x }
}

/// Replaces subnormals by zeros of their sign.
#[inline(always)]
pub(crate) fn flush(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE { f32::from_bits(x.to_bits() & 1 << 31) } else { x }
}

/// Clamps to `[0, 1]`, NaN to 0.
#[inline(always)]
#[allow(clippy::manual_clamp, reason = "clamp keeps a NaN")]
pub(crate) fn saturate(x: f32) -> f32 {
    // `max` gives its other operand for a NaN; adding 0 makes a negative zero positive.
    x.max(0.0).min(1.0) + 0.0
}

#[inline(always)]
pub(crate) fn f16_to_f32(x: u16) -> f32 {
    f16::from_bits(x).to_f32()
}

#[inline(always)]
pub(crate) fn bf16_to_f32(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

/// To nearest, ties to even.
#[inline(always)]
pub(crate) fn f32_to_f16(x: f32) -> u16 {
    if x.is_nan() { NAN_16 } else { f16::from_f32(x).to_bits() }
}

/// To nearest, ties to even.
#[inline(always)]
pub(crate) fn f32_to_bf16(x: f32) -> u16 {
    if x.is_nan() { NAN_16 } else { bf16::from_f32(x).to_bits() }
}

/// Towards zero.
pub(crate) fn f32_to_f16_rz(x: f32) -> u16 {
    let nearest = f32_to_f16(x);
    if x.is_finite() && f16_to_f32(nearest).abs() > x.abs() { nearest - 1 } else { nearest }
}

/// Towards zero.
pub(crate) fn f32_to_bf16_rz(x: f32) -> u16 {
    if x.is_nan() { NAN_16 } else { (x.to_bits() >> 16) as u16 }
}

/// Down or up.
pub(crate) fn f32_to_f16_directed(x: f32, direction: Direction) -> u16 {
    step(x, f32_to_f16(x), f16_to_f32(f32_to_f16(x)), direction)
}

/// Down or up.
pub(crate) fn f32_to_bf16_directed(x: f32, direction: Direction) -> u16 {
    step(x, f32_to_bf16(x), bf16_to_f32(f32_to_bf16(x)), direction)
}

/// `nearest`, or the number next to it in the wanted direction when it lies on the wrong side of `x`. Codes of one
/// sign are ordered as their magnitudes, and rounding to nearest does not cross zero.
fn step(x: f32, nearest: u16, value: f32, direction: Direction) -> u16 {
    let wrong = match direction {
        Direction::Down => value > x,
        Direction::Up => value < x,
        Direction::Zero => value.abs() > x.abs(),
    };
    match (wrong, direction) {
        (false, _) => nearest,
        // Away from zero where the sign of the number is that of the direction.
        (true, Direction::Down) if value.is_sign_negative() => nearest + 1,
        (true, Direction::Up) if value.is_sign_positive() => nearest + 1,
        (true, _) => nearest - 1,
    }
}

/// To the 10 fraction bits of TF32; ties away from zero, as `cvt.rna` says.
pub(crate) fn f32_to_tf32_rna(x: f32) -> u32 {
    if x.is_finite() { (x.to_bits() + 0x1000) & !0x1fff } else { canonical(x).to_bits() & !0x1fff }
}

/// The wide value rounded to an f32 "to odd": what is inexact keeps a last bit of one, so that rounding once more to a
/// format at least two bits shorter gives the correctly rounded result.
#[inline(always)]
pub(crate) fn to_odd(x: f64) -> f32 {
    let nearest = x as f32;
    let wide = f64::from(nearest);
    if wide == x || x.is_nan() {
        return nearest;
    }
    let toward_zero = nearest.to_bits() - u32::from(wide.abs() > x.abs());
    f32::from_bits(toward_zero | 1)
}

/// `a * b + c`, exact but for rounding to odd: f32 products are exact in f64.
#[inline(always)]
pub(crate) fn fma_to_odd(a: f32, b: f32, c: f32) -> f32 {
    let (sum, rest) = two_sum(f64::from(a) * f64::from(b), f64::from(c));
    to_odd(sum_to_odd(sum, rest))
}

/// The rounded sum and what rounding took from it.
#[inline(always)]
pub(crate) fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_part = sum - a;
    (sum, (a - (sum - b_part)) + (b - b_part))
}

#[inline(always)]
fn sum_to_odd(sum: f64, rest: f64) -> f64 {
    if !(rest != 0.0 && sum.is_finite()) || sum.to_bits() & 1 == 1 {
        return sum;
    }
    let away = (rest > 0.0) == (sum > 0.0);
    f64::from_bits(if away { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

/// An integer as an f32 rounded to odd.
pub(crate) fn int_to_odd(x: i128) -> f32 {
    let wide = x as f64;
    to_odd(sum_to_odd(wide, (x - wide as i128) as f64))
}

/// `value + rest` (with `rest` below half a unit of `value`) rounded to f32 towards zero, minus or plus infinity.
pub(crate) fn directed(value: f64, rest: f64, direction: Direction) -> f32 {
    let nearest = value as f32;
    let difference = value - f64::from(nearest);
    let error = if difference == 0.0 { rest } else { difference };
    let down = error < 0.0 && (direction == Direction::Down || direction == Direction::Zero && nearest > 0.0);
    let up = error > 0.0 && (direction == Direction::Up || direction == Direction::Zero && nearest < 0.0);
    match (down, up) {
        (true, _) => nearest.next_down(),
        (_, true) => nearest.next_up(),
        _ => nearest,
    }
}

/// A rounding direction other than to nearest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Zero,
    Down,
    Up,
}

/// Exponent bias, fraction bits and largest finite code of an 8-bit format.
struct Eight {
    bias: i32,
    fraction: i32,
    largest: u8,
    nan: u8,
}

const E4M3: Eight = Eight { bias: 7, fraction: 3, largest: 0x7e, nan: 0x7f };
const E5M2: Eight = Eight { bias: 15, fraction: 2, largest: 0x7b, nan: 0x7f };

impl Eight {
    /// To nearest even; what is too large becomes the largest finite value, NaN a NaN.
    fn encode(&self, x: f32) -> u8 {
        if x.is_nan() {
            return self.nan;
        }
        let sign = ((x.to_bits() >> 31) as u8) << 7;
        let magnitude = x.abs();
        let exponent = (((magnitude.to_bits() >> 23) as i32) - 127).max(1 - self.bias);
        // In units of the last place at this exponent; a carry into the next exponent falls out of the addition.
        let units = (f64::from(magnitude) * 2f64.powi(self.fraction - exponent)).round_ties_even();
        let code = units + f64::from((exponent + self.bias - 1) << self.fraction);
        sign | code.min(f64::from(self.largest)) as u8
    }

    fn decode(&self, code: u8) -> f32 {
        let magnitude = code & 0x7f;
        let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
        if magnitude > self.largest {
            // E4M3 has no infinity; E5M2 has one right after its largest value.
            let infinite = self.fraction == 2 && magnitude == self.largest + 1;
            return if infinite { sign * f32::INFINITY } else { f32::from_bits(NAN_F32) };
        }
        let exponent = i32::from(magnitude) >> self.fraction;
        let fraction = i32::from(magnitude) & ((1 << self.fraction) - 1);
        let (units, exponent) =
            if exponent == 0 { (fraction, 1) } else { (fraction | 1 << self.fraction, exponent) };
        sign * units as f32 * 2f32.powi(exponent - self.bias - self.fraction)
    }
}

/// Nearest even, saturating.
pub(crate) fn f32_to_e4m3(x: f32) -> u8 {
    E4M3.encode(x)
}

/// Nearest even, saturating.
pub(crate) fn f32_to_e5m2(x: f32) -> u8 {
    E5M2.encode(x)
}

pub(crate) fn e4m3_to_f32(code: u8) -> f32 {
    E4M3.decode(code)
}

pub(crate) fn e5m2_to_f32(code: u8) -> f32 {
    E5M2.decode(code)
}
