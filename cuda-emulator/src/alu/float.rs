//! f32 and f64 arithmetic.
//!
//! `add`, `sub`, `mul`, `fma`, `div.rn`, `rcp.rn` and `sqrt.rn` are correctly rounded, as on a GPU. The approximate
//! functions are computed in f64 and rounded: more exact than the hardware, so their last bits differ from it.

use super::narrow::{Direction, canonical, directed, flush, saturate, two_sum};
use super::{Alu, lanes};
use crate::decode::Modifiers;
use crate::ptx::Type;

/// An f32 formula with `.ftz` and `.sat` around it.
macro_rules! single {
    ($m:expr, |$($arg:ident),+| $body:expr) => {
        match ($m.take("ftz"), $m.take("sat")) {
            (false, false) => lanes!(|$($arg: f32),+| -> f32 { canonical($body) }),
            (true, false) => lanes!(|$($arg: f32),+| -> f32 { $(let $arg = flush($arg);)+ canonical(flush($body)) }),
            (false, true) => lanes!(|$($arg: f32),+| -> f32 { saturate($body) }),
            (true, true) => lanes!(|$($arg: f32),+| -> f32 { $(let $arg = flush($arg);)+ saturate(flush($body)) }),
        }
    };
}

pub(super) fn decode(m: &mut Modifiers<'_>) -> Option<Alu> {
    match m.last_type()? {
        Type::F32 => single_precision(m),
        Type::F64 => double_precision(m),
        _ => None,
    }
}

fn single_precision(m: &mut Modifiers<'_>) -> Option<Alu> {
    Some(match m.opcode() {
        "add" | "sub" | "mul" | "fma" | "mad" => match m.take_any(&["rn", "rz", "rm", "rp"]) {
            Some("rz") => return rounded::<0>(m),
            Some("rm") => return rounded::<1>(m),
            Some("rp") => return rounded::<2>(m),
            _ => match m.opcode() {
                "add" => single!(m, |a, b| a + b),
                "sub" => single!(m, |a, b| a - b),
                "mul" => single!(m, |a, b| a * b),
                _ => single!(m, |a, b, c| a.mul_add(b, c)),
            },
        },
        "div" => {
            m.take_any(&["rn", "approx", "full"])?;
            single!(m, |a, b| a / b)
        }
        "rcp" => {
            m.take_any(&["rn", "approx"])?;
            single!(m, |a| 1.0 / a)
        }
        "sqrt" => {
            m.take_any(&["rn", "approx"])?;
            single!(m, |a| a.sqrt())
        }
        "rsqrt" if m.take("approx") => single!(m, |a| (1.0 / f64::from(a).sqrt()) as f32),
        "ex2" if m.take("approx") => single!(m, |a| f64::from(a).exp2() as f32),
        "lg2" if m.take("approx") => single!(m, |a| f64::from(a).log2() as f32),
        "sin" if m.take("approx") => single!(m, |a| f64::from(a).sin() as f32),
        "cos" if m.take("approx") => single!(m, |a| f64::from(a).cos() as f32),
        "tanh" if m.take("approx") => single!(m, |a| f64::from(a).tanh() as f32),
        "neg" => match m.take("ftz") {
            false => lanes!(|a: f32| -> f32 { -a }),
            true => lanes!(|a: f32| -> f32 { -flush(a) }),
        },
        "abs" => match m.take("ftz") {
            false => lanes!(|a: f32| -> f32 { a.abs() }),
            true => lanes!(|a: f32| -> f32 { flush(a).abs() }),
        },
        "min" if m.take("NaN") => {
            single!(m, |a, b| if a.is_nan() || b.is_nan() { f32::NAN } else { min(a, b) })
        }
        "max" if m.take("NaN") => {
            single!(m, |a, b| if a.is_nan() || b.is_nan() { f32::NAN } else { max(a, b) })
        }
        "min" => single!(m, |a, b| min(a, b)),
        "max" => single!(m, |a, b| max(a, b)),
        "copysign" => lanes!(|a: f32, b: f32| -> f32 { b.copysign(a) }),
        "testp" => {
            match m.take_any(&["finite", "infinite", "notanumber", "number", "normal", "subnormal"])? {
                "finite" => lanes!(|a: f32| -> bool { a.is_finite() }),
                "infinite" => lanes!(|a: f32| -> bool { a.is_infinite() }),
                "notanumber" => lanes!(|a: f32| -> bool { a.is_nan() }),
                "number" => lanes!(|a: f32| -> bool { !a.is_nan() }),
                "normal" => lanes!(|a: f32| -> bool { a.is_normal() }),
                _ => lanes!(|a: f32| -> bool { a.is_subnormal() }),
            }
        }
        _ => return None,
    })
}

/// The lesser number; a NaN only of two NaNs; a negative zero is less than a positive one.
#[inline(always)]
pub(super) fn min(a: f32, b: f32) -> f32 {
    if a == b {
        return f32::from_bits(a.to_bits() | b.to_bits());
    }
    a.min(b)
}

/// The greater number; as [`min`].
#[inline(always)]
pub(super) fn max(a: f32, b: f32) -> f32 {
    if a == b {
        return f32::from_bits(a.to_bits() & b.to_bits());
    }
    a.max(b)
}

/// Rounding towards zero (0), down (1) or up (2).
fn rounded<const DIRECTION: u8>(m: &mut Modifiers<'_>) -> Option<Alu> {
    Some(match (m.opcode(), DIRECTION) {
        ("add", 0) => single!(m, |a, b| fma_directed(a, 1.0, b, Direction::Zero)),
        ("add", 1) => single!(m, |a, b| fma_directed(a, 1.0, b, Direction::Down)),
        ("add", _) => single!(m, |a, b| fma_directed(a, 1.0, b, Direction::Up)),
        ("sub", 0) => single!(m, |a, b| fma_directed(a, 1.0, -b, Direction::Zero)),
        ("sub", 1) => single!(m, |a, b| fma_directed(a, 1.0, -b, Direction::Down)),
        ("sub", _) => single!(m, |a, b| fma_directed(a, 1.0, -b, Direction::Up)),
        // Minus zero is the addend that leaves the sign of a zero product alone.
        ("mul", 0) => single!(m, |a, b| fma_directed(a, b, -0.0, Direction::Zero)),
        ("mul", 1) => single!(m, |a, b| fma_directed(a, b, -0.0, Direction::Down)),
        ("mul", _) => single!(m, |a, b| fma_directed(a, b, -0.0, Direction::Up)),
        (_, 0) => single!(m, |a, b, c| fma_directed(a, b, c, Direction::Zero)),
        (_, 1) => single!(m, |a, b, c| fma_directed(a, b, c, Direction::Down)),
        (_, _) => single!(m, |a, b, c| fma_directed(a, b, c, Direction::Up)),
    })
}

fn fma_directed(a: f32, b: f32, c: f32, direction: Direction) -> f32 {
    let product = f64::from(a) * f64::from(b);
    let (sum, rest) = two_sum(product, f64::from(c));
    if sum == 0.0 && product != 0.0 && direction == Direction::Down {
        // x - x is -0 only when rounding down.
        return -0.0;
    }
    directed(sum, rest, direction)
}

fn double_precision(m: &mut Modifiers<'_>) -> Option<Alu> {
    Some(match m.opcode() {
        "add" => {
            m.take("rn");
            lanes!(|a: f64, b: f64| -> f64 { a + b })
        }
        "sub" => {
            m.take("rn");
            lanes!(|a: f64, b: f64| -> f64 { a - b })
        }
        "mul" => {
            m.take("rn");
            lanes!(|a: f64, b: f64| -> f64 { a * b })
        }
        "fma" | "mad" => {
            m.take("rn");
            lanes!(|a: f64, b: f64, c: f64| -> f64 { a.mul_add(b, c) })
        }
        "div" if m.take("rn") => lanes!(|a: f64, b: f64| -> f64 { a / b }),
        "rcp" if m.take("rn") => lanes!(|a: f64| -> f64 { 1.0 / a }),
        // These two read and give the upper 32 bits alone.
        "rcp" if m.take("approx") && m.take("ftz") => {
            lanes!(|a: f64| -> f64 { upper(1.0 / upper(a)) })
        }
        "rsqrt" if m.take("approx") => {
            m.take("ftz");
            lanes!(|a: f64| -> f64 { upper(1.0 / upper(a).sqrt()) })
        }
        "sqrt" if m.take("rn") => lanes!(|a: f64| -> f64 { a.sqrt() }),
        "neg" => lanes!(|a: f64| -> f64 { -a }),
        "abs" => lanes!(|a: f64| -> f64 { a.abs() }),
        "min" => {
            lanes!(|a: f64, b: f64| -> f64 { if a == b && a.is_sign_negative() { a } else { a.min(b) } })
        }
        "max" => {
            lanes!(|a: f64, b: f64| -> f64 { if a == b && a.is_sign_positive() { a } else { a.max(b) } })
        }
        "copysign" => lanes!(|a: f64, b: f64| -> f64 { b.copysign(a) }),
        "testp" => {
            match m.take_any(&["finite", "infinite", "notanumber", "number", "normal", "subnormal"])? {
                "finite" => lanes!(|a: f64| -> bool { a.is_finite() }),
                "infinite" => lanes!(|a: f64| -> bool { a.is_infinite() }),
                "notanumber" => lanes!(|a: f64| -> bool { a.is_nan() }),
                "number" => lanes!(|a: f64| -> bool { !a.is_nan() }),
                "normal" => lanes!(|a: f64| -> bool { a.is_normal() }),
                _ => lanes!(|a: f64| -> bool { a.is_subnormal() }),
            }
        }
        _ => return None,
    })
}

#[inline(always)]
fn upper(x: f64) -> f64 {
    f64::from_bits(x.to_bits() & !0xffff_ffff)
}
