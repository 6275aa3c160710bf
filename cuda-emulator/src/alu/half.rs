//! f16 and bf16 arithmetic, one value in 16 bits or two in 32.
//!
//! Operands are widened to f32, where sums and products of two have enough bits to be rounded twice without harm;
//! `fma` goes through round-to-odd.

use super::float::{max, min};
use super::narrow::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, flush, fma_to_odd, saturate};
use super::{Alu, lanes};
use crate::decode::Modifiers;
use crate::ptx::Type;

/// How a 16-bit format widens, rounds and flushes.
trait Format {
    fn widen(x: u16) -> f32;
    fn narrow(x: f32) -> u16;
    fn flush(x: f32) -> f32;
}

struct F16;
struct Bf16;

impl Format for F16 {
    #[inline(always)]
    fn widen(x: u16) -> f32 {
        f16_to_f32(x)
    }
    #[inline(always)]
    fn narrow(x: f32) -> u16 {
        f32_to_f16(x)
    }
    #[inline(always)]
    fn flush(x: f32) -> f32 {
        // The smallest normal f16 is 2^-14.
        if x.abs() < 6.103_515_6e-5 { f32::from_bits(x.to_bits() & 1 << 31) } else { x }
    }
}

impl Format for Bf16 {
    #[inline(always)]
    fn widen(x: u16) -> f32 {
        bf16_to_f32(x)
    }
    #[inline(always)]
    fn narrow(x: f32) -> u16 {
        f32_to_bf16(x)
    }
    #[inline(always)]
    fn flush(x: f32) -> f32 {
        flush(x)
    }
}

/// One formula on f32 for both formats, single and packed.
macro_rules! each {
    ($ty:expr, |$($arg:ident),+| $body:expr) => {
        match $ty {
            Type::F16 => each!(@one F16, |$($arg),+| $body),
            Type::BF16 => each!(@one Bf16, |$($arg),+| $body),
            Type::F16x2 => each!(@two F16, |$($arg),+| $body),
            _ => each!(@two Bf16, |$($arg),+| $body),
        }
    };
    (@one $format:ty, |$($arg:ident),+| $body:expr) => {
        lanes!(|$($arg: u16),+| -> u16 {
            type Fmt = $format;
            $(let $arg = Fmt::widen($arg);)+
            Fmt::narrow($body)
        })
    };
    (@two $format:ty, |$($arg:ident),+| $body:expr) => {
        lanes!(|$($arg: u32),+| -> u32 {
            type Fmt = $format;
            let low = { $(let $arg = Fmt::widen($arg as u16);)+ Fmt::narrow($body) };
            let high = { $(let $arg = Fmt::widen(($arg >> 16) as u16);)+ Fmt::narrow($body) };
            u32::from(low) | u32::from(high) << 16
        })
    };
}

/// The same with `.ftz`, `.sat` and `.relu` around the formula.
macro_rules! modified {
    ($m:expr, $ty:expr, |$($arg:ident),+| $body:expr) => {
        match ($m.take("ftz"), $m.take_any(&["sat", "relu"])) {
            (false, None) => each!($ty, |$($arg),+| $body),
            (true, None) => each!($ty, |$($arg),+| { $(let $arg = Fmt::flush($arg);)+ Fmt::flush($body) }),
            (false, Some("sat")) => each!($ty, |$($arg),+| saturate($body)),
            (true, Some("sat")) => each!($ty, |$($arg),+| { $(let $arg = Fmt::flush($arg);)+ saturate(Fmt::flush($body)) }),
            (false, Some(_)) => each!($ty, |$($arg),+| relu($body)),
            (true, Some(_)) => each!($ty, |$($arg),+| { $(let $arg = Fmt::flush($arg);)+ relu(Fmt::flush($body)) }),
        }
    };
}

/// Negative values to 0; a NaN stays one.
#[inline(always)]
fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x + 0.0 }
}

pub(super) fn decode(m: &mut Modifiers<'_>) -> Option<Alu> {
    let ty = m.last_type()?;
    if !matches!(ty, Type::F16 | Type::F16x2 | Type::BF16 | Type::BF16x2) {
        return None;
    }
    Some(match m.opcode() {
        "add" => {
            m.take("rn");
            modified!(m, ty, |a, b| a + b)
        }
        "sub" => {
            m.take("rn");
            modified!(m, ty, |a, b| a - b)
        }
        "mul" => {
            m.take("rn");
            modified!(m, ty, |a, b| a * b)
        }
        "fma" if m.take("rn") => modified!(m, ty, |a, b, c| fma_to_odd(a, b, c)),
        "min" if m.take("NaN") => {
            modified!(m, ty, |a, b| if a.is_nan() || b.is_nan() { f32::NAN } else { min(a, b) })
        }
        "max" if m.take("NaN") => {
            modified!(m, ty, |a, b| if a.is_nan() || b.is_nan() { f32::NAN } else { max(a, b) })
        }
        "min" => modified!(m, ty, |a, b| min(a, b)),
        "max" => modified!(m, ty, |a, b| max(a, b)),
        "ex2" if m.take("approx") => modified!(m, ty, |a| f64::from(a).exp2() as f32),
        "tanh" if m.take("approx") => modified!(m, ty, |a| f64::from(a).tanh() as f32),
        // Signs are bits: NaNs keep their payload.
        "neg" if !m.take("ftz") => match ty {
            Type::F16 | Type::BF16 => lanes!(|a: u16| -> u16 { a ^ 0x8000 }),
            _ => lanes!(|a: u32| -> u32 { a ^ 0x8000_8000 }),
        },
        "abs" if !m.take("ftz") => match ty {
            Type::F16 | Type::BF16 => lanes!(|a: u16| -> u16 { a & 0x7fff }),
            _ => lanes!(|a: u32| -> u32 { a & 0x7fff_7fff }),
        },
        _ => return None,
    })
}
