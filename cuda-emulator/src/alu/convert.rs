//! `cvt`: between integers, between floats, across, and packed pairs.
//!
//! Narrow integer results come extended to 16 bits; what is wider than that in a register, `decode` extends.

use super::narrow::{
    Direction, bf16_to_f32, canonical, directed, e4m3_to_f32, e5m2_to_f32, f16_to_f32, f32_to_bf16,
    f32_to_bf16_directed, f32_to_bf16_rz, f32_to_e4m3, f32_to_e5m2, f32_to_f16, f32_to_f16_directed,
    f32_to_f16_rz, f32_to_tf32_rna, flush, int_to_odd, saturate, to_odd,
};
use super::{Alu, lanes};
use crate::decode::Modifiers;
use crate::ptx::Type;

pub(super) fn decode(m: &mut Modifiers<'_>) -> Option<Alu> {
    if m.take("pack") {
        return pack(m);
    }
    let to = m.take_type()?;
    let from = m.take_type()?;
    let rounding = m.take_any(&["rni", "rzi", "rmi", "rpi", "rna", "rn", "rz", "rm", "rp"]).unwrap_or("");
    let ftz = m.take("ftz");
    match (is_integer(to), is_integer(from)) {
        (true, true) => integer_to_integer(to, from, m.take("sat")),
        (true, false) => {
            // Conversions to integers saturate whether asked to or not.
            m.take("sat");
            float_to_integer(to, from, rounding, ftz)
        }
        (false, true) => integer_to_float(to, from, rounding, m.take("sat")),
        (false, false) => float_to_float(m, to, from, rounding, ftz),
    }
}

fn is_integer(ty: Type) -> bool {
    matches!(ty, Type::U8 | Type::S8 | Type::U16 | Type::S16 | Type::U32 | Type::S32 | Type::U64 | Type::S64)
}

/// Calls a macro with the Rust type of an integer type.
macro_rules! with_integer {
    ($ty:expr, $call:ident) => {
        match $ty {
            Type::U8 => $call!(u8),
            Type::S8 => $call!(i8),
            Type::U16 => $call!(u16),
            Type::S16 => $call!(i16),
            Type::U32 => $call!(u32),
            Type::S32 => $call!(i32),
            Type::U64 => $call!(u64),
            Type::S64 => $call!(i64),
            _ => return None,
        }
    };
}

fn integer_to_integer(to: Type, from: Type, sat: bool) -> Option<Alu> {
    macro_rules! convert {
        ($from:ty) => {
            match (to, sat) {
                (Type::U8, false) => lanes!(|x: $from| -> u16 { u16::from(x as u8) }),
                (Type::S8, false) => lanes!(|x: $from| -> i16 { i16::from(x as i8) }),
                (Type::U16 | Type::S16, false) => lanes!(|x: $from| -> u16 { x as u16 }),
                (Type::U32 | Type::S32, false) => lanes!(|x: $from| -> u32 { x as u32 }),
                (_, false) => lanes!(|x: $from| -> u64 { x as u64 }),
                (Type::U8, true) => lanes!(|x: $from| -> u16 { (x as i128).clamp(0, 0xff) as u16 }),
                (Type::S8, true) => lanes!(|x: $from| -> i16 { (x as i128).clamp(-0x80, 0x7f) as i16 }),
                (Type::U16, true) => lanes!(|x: $from| -> u16 { (x as i128).clamp(0, 0xffff) as u16 }),
                (Type::S16, true) => lanes!(|x: $from| -> i16 { (x as i128).clamp(-0x8000, 0x7fff) as i16 }),
                (Type::U32, true) => {
                    lanes!(|x: $from| -> u32 { (x as i128).clamp(0, u32::MAX.into()) as u32 })
                }
                (Type::S32, true) => {
                    lanes!(|x: $from| -> i32 { (x as i128).clamp(i32::MIN.into(), i32::MAX.into()) as i32 })
                }
                (Type::U64, true) => {
                    lanes!(|x: $from| -> u64 { (x as i128).clamp(0, u64::MAX.into()) as u64 })
                }
                (_, true) => {
                    lanes!(|x: $from| -> i64 { (x as i128).clamp(i64::MIN.into(), i64::MAX.into()) as i64 })
                }
            }
        };
    }
    Some(with_integer!(from, convert))
}

/// A NaN becomes 0, or the integer with only its top bit where f64 or 64 bits take part.
fn float_to_integer(to: Type, from: Type, rounding: &str, ftz: bool) -> Option<Alu> {
    macro_rules! convert {
        ($from:ty, |$x:ident| $widen:expr, $round:ident, $nan:expr) => {
            match to {
                Type::U8 => lanes!(|$x: $from| -> u16 { u16::from($widen.$round() as u8) }),
                Type::S8 => lanes!(|$x: $from| -> i16 { i16::from($widen.$round() as i8) }),
                Type::U16 => lanes!(|$x: $from| -> u16 {
                    let x: f64 = $widen;
                    if $nan && x.is_nan() { 1 << 15 } else { x.$round() as u16 }
                }),
                Type::S16 => lanes!(|$x: $from| -> i16 {
                    let x: f64 = $widen;
                    if $nan && x.is_nan() { i16::MIN } else { x.$round() as i16 }
                }),
                Type::U32 => lanes!(|$x: $from| -> u32 {
                    let x: f64 = $widen;
                    if $nan && x.is_nan() { 1 << 31 } else { x.$round() as u32 }
                }),
                Type::S32 => lanes!(|$x: $from| -> i32 {
                    let x: f64 = $widen;
                    if $nan && x.is_nan() { i32::MIN } else { x.$round() as i32 }
                }),
                Type::U64 => lanes!(|$x: $from| -> u64 {
                    let x: f64 = $widen;
                    if x.is_nan() { 1 << 63 } else { x.$round() as u64 }
                }),
                _ => lanes!(|$x: $from| -> i64 {
                    let x: f64 = $widen;
                    if x.is_nan() { i64::MIN } else { x.$round() as i64 }
                }),
            }
        };
    }
    macro_rules! rounded {
        ($from:ty, |$x:ident| $widen:expr, $nan:expr) => {
            match rounding {
                "rni" => convert!($from, |$x| $widen, round_ties_even, $nan),
                "rzi" => convert!($from, |$x| $widen, trunc, $nan),
                "rmi" => convert!($from, |$x| $widen, floor, $nan),
                "rpi" => convert!($from, |$x| $widen, ceil, $nan),
                _ => return None,
            }
        };
    }
    Some(match (from, ftz) {
        (Type::F32, false) => rounded!(f32, |x| f64::from(x), false),
        (Type::F32, true) => rounded!(f32, |x| f64::from(flush(x)), false),
        (Type::F64, _) => rounded!(f64, |x| x, true),
        (Type::F16, _) => rounded!(u16, |x| f64::from(f16_to_f32(x)), false),
        (Type::BF16, _) => rounded!(u16, |x| f64::from(bf16_to_f32(x)), false),
        _ => return None,
    })
}

fn integer_to_float(to: Type, from: Type, rounding: &str, sat: bool) -> Option<Alu> {
    macro_rules! convert {
        ($from:ty) => {
            match (to, rounding) {
                (Type::F32, "rn") if sat => lanes!(|x: $from| -> f32 { saturate(x as f32) }),
                (Type::F32, "rn") => lanes!(|x: $from| -> f32 { x as f32 }),
                (Type::F32, "rz") => {
                    lanes!(|x: $from| -> f32 { integer_directed(x as i128, Direction::Zero) })
                }
                (Type::F32, "rm") => {
                    lanes!(|x: $from| -> f32 { integer_directed(x as i128, Direction::Down) })
                }
                (Type::F32, "rp") => lanes!(|x: $from| -> f32 { integer_directed(x as i128, Direction::Up) }),
                (Type::F64, "rn") => lanes!(|x: $from| -> f64 { x as f64 }),
                (Type::F16, "rn") => lanes!(|x: $from| -> u16 { f32_to_f16(int_to_odd(x as i128)) }),
                (Type::BF16, "rn") => lanes!(|x: $from| -> u16 { f32_to_bf16(int_to_odd(x as i128)) }),
                _ => return None,
            }
        };
    }
    Some(with_integer!(from, convert))
}

fn integer_directed(x: i128, direction: Direction) -> f32 {
    let wide = x as f64;
    directed(wide, (x - wide as i128) as f64, direction)
}

fn float_to_float(m: &mut Modifiers<'_>, to: Type, from: Type, rounding: &str, ftz: bool) -> Option<Alu> {
    let sat = m.take("sat");
    let relu = m.take("relu");
    let satfinite = m.take("satfinite");
    if relu || satfinite || !matches!(to, Type::F16 | Type::BF16 | Type::F32 | Type::F64) {
        return packed(to, from, rounding, relu, satfinite);
    }
    macro_rules! single {
        (|$x:ident| $body:expr) => {
            match (ftz, sat) {
                (false, false) => lanes!(|$x: f32| -> f32 { canonical($body) }),
                (true, false) => lanes!(|$x: f32| -> f32 {
                    let $x = flush($x);
                    canonical(flush($body))
                }),
                (false, true) => lanes!(|$x: f32| -> f32 { saturate($body) }),
                (true, true) => lanes!(|$x: f32| -> f32 {
                    let $x = flush($x);
                    saturate(flush($body))
                }),
            }
        };
    }
    Some(match (to, from, rounding) {
        (Type::F32, Type::F32, "rni") => single!(|x| x.round_ties_even()),
        (Type::F32, Type::F32, "rzi") => single!(|x| x.trunc()),
        (Type::F32, Type::F32, "rmi") => single!(|x| x.floor()),
        (Type::F32, Type::F32, "rpi") => single!(|x| x.ceil()),
        (Type::F32, Type::F32, _) => single!(|x| x),
        (Type::F64, Type::F64, "rni") => lanes!(|x: f64| -> f64 { x.round_ties_even() }),
        (Type::F64, Type::F64, "rzi") => lanes!(|x: f64| -> f64 { x.trunc() }),
        (Type::F64, Type::F64, "rmi") => lanes!(|x: f64| -> f64 { x.floor() }),
        (Type::F64, Type::F64, "rpi") => lanes!(|x: f64| -> f64 { x.ceil() }),
        (Type::F64, Type::F32, _) if ftz => lanes!(|x: f32| -> f64 { f64::from(flush(x)) }),
        (Type::F64, Type::F32, _) => lanes!(|x: f32| -> f64 { f64::from(x) }),
        (Type::F32, Type::F64, "rn") if ftz => lanes!(|x: f64| -> f32 { canonical(flush(x as f32)) }),
        (Type::F32, Type::F64, "rn") if sat => lanes!(|x: f64| -> f32 { saturate(x as f32) }),
        (Type::F32, Type::F64, "rn") => lanes!(|x: f64| -> f32 { canonical(x as f32) }),
        (Type::F32, Type::F64, "rz") => lanes!(|x: f64| -> f32 { directed(x, 0.0, Direction::Zero) }),
        (Type::F32, Type::F64, "rm") => lanes!(|x: f64| -> f32 { directed(x, 0.0, Direction::Down) }),
        (Type::F32, Type::F64, "rp") => lanes!(|x: f64| -> f32 { directed(x, 0.0, Direction::Up) }),
        (Type::F32, Type::F16, _) if sat => lanes!(|x: u16| -> f32 { saturate(f16_to_f32(x)) }),
        (Type::F32, Type::F16, _) => lanes!(|x: u16| -> f32 { canonical(f16_to_f32(x)) }),
        (Type::F32, Type::BF16, _) => lanes!(|x: u16| -> f32 { canonical(bf16_to_f32(x)) }),
        (Type::F64, Type::F16, _) => lanes!(|x: u16| -> f64 { f64::from(f16_to_f32(x)) }),
        (Type::F64, Type::BF16, _) => lanes!(|x: u16| -> f64 { f64::from(bf16_to_f32(x)) }),
        (Type::F16, Type::F32, "rn") if sat => lanes!(|x: f32| -> u16 { f32_to_f16(saturate(x)) }),
        (Type::F16, Type::F32, "rn") if ftz => lanes!(|x: f32| -> u16 { f32_to_f16(flush(x)) }),
        (Type::F16, Type::F32, "rn") => lanes!(|x: f32| -> u16 { f32_to_f16(x) }),
        (Type::F16, Type::F32, "rz") => lanes!(|x: f32| -> u16 { f32_to_f16_rz(x) }),
        (Type::F16, Type::F32, "rm") => lanes!(|x: f32| -> u16 { f32_to_f16_directed(x, Direction::Down) }),
        (Type::F16, Type::F32, "rp") => lanes!(|x: f32| -> u16 { f32_to_f16_directed(x, Direction::Up) }),
        (Type::BF16, Type::F32, "rm") => lanes!(|x: f32| -> u16 { f32_to_bf16_directed(x, Direction::Down) }),
        (Type::BF16, Type::F32, "rp") => lanes!(|x: f32| -> u16 { f32_to_bf16_directed(x, Direction::Up) }),
        (Type::F16, Type::F64, "rn") => lanes!(|x: f64| -> u16 { f32_to_f16(to_odd(x)) }),
        (Type::BF16, Type::F32, "rn") => lanes!(|x: f32| -> u16 { f32_to_bf16(x) }),
        (Type::BF16, Type::F32, "rz") => lanes!(|x: f32| -> u16 { f32_to_bf16_rz(x) }),
        (Type::BF16, Type::F64, "rn") => lanes!(|x: f64| -> u16 { f32_to_bf16(to_odd(x)) }),
        (Type::BF16, Type::F16, "rn") => lanes!(|x: u16| -> u16 { f32_to_bf16(f16_to_f32(x)) }),
        (Type::F16, Type::BF16, "rn") => lanes!(|x: u16| -> u16 { f32_to_f16(bf16_to_f32(x)) }),
        (Type::F16, Type::F16, "rni") => {
            lanes!(|x: u16| -> u16 { f32_to_f16(f16_to_f32(x).round_ties_even()) })
        }
        (Type::F16, Type::F16, "rzi") => lanes!(|x: u16| -> u16 { f32_to_f16(f16_to_f32(x).trunc()) }),
        (Type::F16, Type::F16, "rmi") => lanes!(|x: u16| -> u16 { f32_to_f16(f16_to_f32(x).floor()) }),
        (Type::F16, Type::F16, "rpi") => lanes!(|x: u16| -> u16 { f32_to_f16(f16_to_f32(x).ceil()) }),
        _ => return None,
    })
}

/// Conversions of pairs (the first source is the high half), and the scalar ones with `.relu` or `.satfinite`.
fn packed(to: Type, from: Type, rounding: &str, relu: bool, satfinite: bool) -> Option<Alu> {
    macro_rules! pair {
        (|$x:ident| $narrow:expr) => {
            if relu {
                lanes!(|high: f32, low: f32| -> u32 {
                    let ($x, low) = (positive(high), positive(low));
                    let high = $narrow;
                    let $x = low;
                    join(high, $narrow)
                })
            } else {
                lanes!(|high: f32, low: f32| -> u32 {
                    let $x = high;
                    let high = $narrow;
                    let $x = low;
                    join(high, $narrow)
                })
            }
        };
    }
    macro_rules! pair_of_bytes {
        ($narrow:ident) => {
            if relu {
                lanes!(|high: f32, low: f32| -> u16 {
                    u16::from_le_bytes([$narrow(positive(low)), $narrow(positive(high))])
                })
            } else {
                lanes!(|high: f32, low: f32| -> u16 { u16::from_le_bytes([$narrow(low), $narrow(high)]) })
            }
        };
    }
    macro_rules! bytes_from_f16x2 {
        ($narrow:ident) => {
            lanes!(|x: u32| -> u16 {
                let (low, high) = (f16_to_f32(x as u16), f16_to_f32((x >> 16) as u16));
                u16::from_le_bytes([$narrow(low), $narrow(high)])
            })
        };
    }
    macro_rules! f16x2_from_bytes {
        ($widen:ident) => {
            if relu {
                lanes!(|x: u16| -> u32 {
                    let [low, high] = x.to_le_bytes();
                    join(f32_to_f16(positive($widen(high))), f32_to_f16(positive($widen(low))))
                })
            } else {
                lanes!(|x: u16| -> u32 {
                    let [low, high] = x.to_le_bytes();
                    join(f32_to_f16($widen(high)), f32_to_f16($widen(low)))
                })
            }
        };
    }
    Some(match (to, from, rounding, satfinite) {
        (Type::F16x2, Type::F32, "rn", false) => pair!(|x| f32_to_f16(x)),
        (Type::F16x2, Type::F32, "rz", false) => pair!(|x| f32_to_f16_rz(x)),
        (Type::BF16x2, Type::F32, "rn", false) => pair!(|x| f32_to_bf16(x)),
        (Type::BF16x2, Type::F32, "rz", false) => pair!(|x| f32_to_bf16_rz(x)),
        (Type::F16, Type::F32, "rn", false) if relu => lanes!(|x: f32| -> u16 { f32_to_f16(positive(x)) }),
        (Type::BF16, Type::F32, "rn", false) if relu => lanes!(|x: f32| -> u16 { f32_to_bf16(positive(x)) }),
        (Type::E4M3x2, Type::F32, "rn", true) => pair_of_bytes!(f32_to_e4m3),
        (Type::E5M2x2, Type::F32, "rn", true) => pair_of_bytes!(f32_to_e5m2),
        (Type::E4M3x2, Type::F16x2, "rn", true) if !relu => bytes_from_f16x2!(f32_to_e4m3),
        (Type::E5M2x2, Type::F16x2, "rn", true) if !relu => bytes_from_f16x2!(f32_to_e5m2),
        (Type::F16x2, Type::E4M3x2, "rn", false) => f16x2_from_bytes!(e4m3_to_f32),
        (Type::F16x2, Type::E5M2x2, "rn", false) => f16x2_from_bytes!(e5m2_to_f32),
        (Type::TF32, Type::F32, "rna", false) if !relu => lanes!(|x: f32| -> u32 { f32_to_tf32_rna(x) }),
        _ => return None,
    })
}

/// `cvt.pack.sat.to.s32[.b32] d, a, b[, c]`: `a` above `b`, both saturated; bytes go below the low half of `c`.
fn pack(m: &mut Modifiers<'_>) -> Option<Alu> {
    if !m.take("sat") {
        return None;
    }
    let types = (m.take_type()?, m.take_type()?, m.take_type());
    macro_rules! bytes {
        ($to:ty) => {
            lanes!(|a: i32, b: i32, c: u32| -> u32 {
                let byte = |x: i32| u32::from(x.clamp(<$to>::MIN.into(), <$to>::MAX.into()) as u8);
                c << 16 | byte(a) << 8 | byte(b)
            })
        };
    }
    macro_rules! halves {
        ($to:ty) => {
            lanes!(|a: i32, b: i32| -> u32 {
                let half = |x: i32| x.clamp(<$to>::MIN.into(), <$to>::MAX.into()) as u16;
                join(half(a), half(b))
            })
        };
    }
    Some(match types {
        (Type::S8, Type::S32, Some(Type::B32)) => bytes!(i8),
        (Type::U8, Type::S32, Some(Type::B32)) => bytes!(u8),
        (Type::S16, Type::S32, None) => halves!(i16),
        (Type::U16, Type::S32, None) => halves!(u16),
        _ => return None,
    })
}

#[inline(always)]
fn join(high: u16, low: u16) -> u32 {
    u32::from(high) << 16 | u32::from(low)
}

#[inline(always)]
fn positive(x: f32) -> f32 {
    if x <= 0.0 { 0.0 } else { x }
}
