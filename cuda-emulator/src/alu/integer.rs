//! Integer arithmetic.

use super::{Alu, lanes};
use crate::decode::Modifiers;
use crate::ptx::Type;

/// One formula for the unsigned types of each width: wrapping arithmetic does not see signs.
macro_rules! wrapping {
    ($ty:expr, |$($arg:ident),+| $body:expr) => {
        match $ty.size() {
            2 => lanes!(|$($arg: u16),+| -> u16 { $body }),
            4 => lanes!(|$($arg: u32),+| -> u32 { $body }),
            _ => lanes!(|$($arg: u64),+| -> u64 { $body }),
        }
    };
}

/// One formula, at the type's own signedness.
macro_rules! signed_or_not {
    ($ty:expr, |$($arg:ident),+| $body:expr) => {
        match $ty {
            Type::U16 => lanes!(|$($arg: u16),+| -> u16 { $body }),
            Type::S16 => lanes!(|$($arg: i16),+| -> i16 { $body }),
            Type::U32 => lanes!(|$($arg: u32),+| -> u32 { $body }),
            Type::S32 => lanes!(|$($arg: i32),+| -> i32 { $body }),
            Type::U64 => lanes!(|$($arg: u64),+| -> u64 { $body }),
            Type::S64 => lanes!(|$($arg: i64),+| -> i64 { $body }),
            _ => return None,
        }
    };
}

/// 32 and 64 bits, with a carry as result.
macro_rules! carrying {
    ($ty:expr, |$($arg:ident),+; $($carry:ident)?| $body:expr) => {
        match $ty.size() {
            4 => lanes!(|$($arg: u32),+ $(, $carry: bool)?| -> (u32, bool) { $body }),
            _ => lanes!(|$($arg: u64),+ $(, $carry: bool)?| -> (u64, bool) { $body }),
        }
    };
}

pub(super) fn decode(m: &mut Modifiers<'_>) -> Option<Alu> {
    if matches!(m.opcode(), "dp4a" | "dp2a") {
        return dot(m);
    }
    if m.opcode() == "vabsdiff4" {
        return byte_differences(m);
    }
    let ty = m.last_type()?;
    if !matches!(ty, Type::U16 | Type::S16 | Type::U32 | Type::S32 | Type::U64 | Type::S64) {
        return None;
    }
    if matches!(m.opcode(), "addc" | "subc" | "madc") || m.take("cc") {
        return with_carry(m, ty);
    }
    Some(match m.opcode() {
        "add" if ty == Type::S32 && m.take("sat") => {
            lanes!(|a: i32, b: i32| -> i32 { a.saturating_add(b) })
        }
        "sub" if ty == Type::S32 && m.take("sat") => {
            lanes!(|a: i32, b: i32| -> i32 { a.saturating_sub(b) })
        }
        "add" => wrapping!(ty, |a, b| a.wrapping_add(b)),
        "sub" => wrapping!(ty, |a, b| a.wrapping_sub(b)),
        "mul" if m.take("wide") => match ty {
            Type::U16 => lanes!(|a: u16, b: u16| -> u32 { u32::from(a) * u32::from(b) }),
            Type::S16 => lanes!(|a: i16, b: i16| -> i32 { i32::from(a) * i32::from(b) }),
            Type::U32 => lanes!(|a: u32, b: u32| -> u64 { u64::from(a) * u64::from(b) }),
            Type::S32 => lanes!(|a: i32, b: i32| -> i64 { i64::from(a) * i64::from(b) }),
            _ => return None,
        },
        "mad" if m.take("wide") => match ty {
            Type::U16 => {
                lanes!(|a: u16, b: u16, c: u32| -> u32 { (u32::from(a) * u32::from(b)).wrapping_add(c) })
            }
            Type::S16 => {
                lanes!(|a: i16, b: i16, c: i32| -> i32 { (i32::from(a) * i32::from(b)).wrapping_add(c) })
            }
            Type::U32 => {
                lanes!(|a: u32, b: u32, c: u64| -> u64 { (u64::from(a) * u64::from(b)).wrapping_add(c) })
            }
            Type::S32 => {
                lanes!(|a: i32, b: i32, c: i64| -> i64 { (i64::from(a) * i64::from(b)).wrapping_add(c) })
            }
            _ => return None,
        },
        "mul" if m.take("hi") => signed_or_not!(ty, |a, b| High::high(a, b)),
        "mad" if m.take("hi") => signed_or_not!(ty, |a, b, c| High::high(a, b).wrapping_add(c)),
        "mul" if m.take("lo") => wrapping!(ty, |a, b| a.wrapping_mul(b)),
        "mad" if m.take("lo") => wrapping!(ty, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        "mul24" if m.take("lo") => match ty {
            Type::U32 => lanes!(|a: u32, b: u32| -> u32 { (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff) }),
            Type::S32 => lanes!(|a: i32, b: i32| -> i32 { (a << 8 >> 8).wrapping_mul(b << 8 >> 8) }),
            _ => return None,
        },
        "mad24" if m.take("lo") => match ty {
            Type::U32 => lanes!(|a: u32, b: u32, c: u32| -> u32 {
                (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff).wrapping_add(c)
            }),
            Type::S32 => lanes!(|a: i32, b: i32, c: i32| -> i32 {
                (a << 8 >> 8).wrapping_mul(b << 8 >> 8).wrapping_add(c)
            }),
            _ => return None,
        },
        // A division by zero has no defined result; all ones is what the hardware gives.
        "div" => signed_or_not!(ty, |a, b| if b == 0 { !b } else { a.wrapping_div(b) }),
        "rem" => signed_or_not!(ty, |a, b| if b == 0 { a } else { a.wrapping_rem(b) }),
        "neg" => wrapping!(ty, |a| a.wrapping_neg()),
        "abs" => match ty {
            Type::S16 => lanes!(|a: i16| -> i16 { a.wrapping_abs() }),
            Type::S32 => lanes!(|a: i32| -> i32 { a.wrapping_abs() }),
            Type::S64 => lanes!(|a: i64| -> i64 { a.wrapping_abs() }),
            _ => return None,
        },
        "min" => signed_or_not!(ty, |a, b| a.min(b)),
        "max" => signed_or_not!(ty, |a, b| a.max(b)),
        "sad" => {
            signed_or_not!(ty, |a, b, c| c.wrapping_add(if a < b {
                b.wrapping_sub(a)
            } else {
                a.wrapping_sub(b)
            }))
        }
        _ => return None,
    })
}

/// `vabsdiff4.to.a.b[.add] d, a, b, c`: differences of bytes, or `c` plus their sum.
fn byte_differences(m: &mut Modifiers<'_>) -> Option<Alu> {
    let add = m.take("add");
    let types = (m.take_type()?, m.take_type()?, m.take_type()?);
    macro_rules! of {
        ($ty:ty) => {
            match add {
                false => lanes!(|a: u32, b: u32, _c: u32| -> u32 {
                    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
                    u32::from_le_bytes(std::array::from_fn(|i| (a[i] as $ty).abs_diff(b[i] as $ty)))
                }),
                true => lanes!(|a: u32, b: u32, c: u32| -> u32 {
                    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
                    (0..4).fold(c, |sum, i| sum.wrapping_add((a[i] as $ty).abs_diff(b[i] as $ty).into()))
                }),
            }
        };
    }
    Some(match types {
        (Type::U32, Type::U32, Type::U32) => of!(u8),
        (Type::U32, Type::S32, Type::S32) => of!(i8),
        _ => return None,
    })
}

/// The upper half of a product.
trait High {
    fn high(a: Self, b: Self) -> Self;
}

macro_rules! high {
    ($($ty:ty, $wide:ty, $bits:expr);+) => {$(
        impl High for $ty {
            #[inline(always)]
            fn high(a: Self, b: Self) -> Self {
                ((<$wide>::from(a) * <$wide>::from(b)) >> $bits) as $ty
            }
        }
    )+};
}
high!(u16, u32, 16; i16, i32, 16; u32, u64, 32; i32, i64, 32; u64, u128, 64; i64, i128, 64);

/// `add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc`, `madc`: the carry flag is the last result and the last source.
/// A `madc` or `addc` without `.cc` keeps the flag.
fn with_carry(m: &mut Modifiers<'_>, ty: Type) -> Option<Alu> {
    if ty.size() < 4 {
        return None;
    }
    // `last_type` came first, so `.cc` of the add, sub and mad forms is taken already.
    let chained = m.opcode().ends_with('c');
    let out = !chained || m.take("cc");
    let alu = match m.opcode() {
        "add" => carrying!(ty, |a, b;| a.overflowing_add(b)),
        "sub" => carrying!(ty, |a, b;| a.overflowing_sub(b)),
        "addc" => carrying!(ty, |a, b; c| {
            let (sum, first) = a.overflowing_add(b);
            let (sum, second) = sum.overflowing_add(c.into());
            (sum, first | second)
        }),
        "subc" => carrying!(ty, |a, b; c| {
            let (rest, first) = a.overflowing_sub(b);
            let (rest, second) = rest.overflowing_sub(c.into());
            (rest, first | second)
        }),
        "mad" | "madc" => match (m.take_any(&["lo", "hi"])?, chained, ty) {
            ("lo", false, _) => carrying!(ty, |a, b, d;| a.wrapping_mul(b).overflowing_add(d)),
            ("lo", true, _) => carrying!(ty, |a, b, d; c| {
                let (sum, first) = a.wrapping_mul(b).overflowing_add(d);
                let (sum, second) = sum.overflowing_add(c.into());
                (sum, first | second)
            }),
            (_, false, Type::S32) => {
                lanes!(|a: i32, b: i32, d: u32| -> (u32, bool) {
                    (High::high(a, b) as u32).overflowing_add(d)
                })
            }
            (_, false, Type::S64) => {
                lanes!(|a: i64, b: i64, d: u64| -> (u64, bool) {
                    (High::high(a, b) as u64).overflowing_add(d)
                })
            }
            (_, true, Type::S32) => lanes!(|a: i32, b: i32, d: u32, c: bool| -> (u32, bool) {
                let (sum, first) = (High::high(a, b) as u32).overflowing_add(d);
                let (sum, second) = sum.overflowing_add(c.into());
                (sum, first | second)
            }),
            (_, true, Type::S64) => lanes!(|a: i64, b: i64, d: u64, c: bool| -> (u64, bool) {
                let (sum, first) = (High::high(a, b) as u64).overflowing_add(d);
                let (sum, second) = sum.overflowing_add(c.into());
                (sum, first | second)
            }),
            (_, false, _) => carrying!(ty, |a, b, d;| High::high(a, b).overflowing_add(d)),
            (_, true, _) => carrying!(ty, |a, b, d; c| {
                let (sum, first) = High::high(a, b).overflowing_add(d);
                let (sum, second) = sum.overflowing_add(c.into());
                (sum, first | second)
            }),
        },
        _ => return None,
    };
    Some(alu.with_carry(chained, out))
}

/// The byte of `x` at `i`, extended by its type.
#[inline(always)]
fn byte<const SIGNED: bool>(x: u32, i: u32) -> i32 {
    let byte = (x >> (8 * i)) as u8;
    if SIGNED { i32::from(byte as i8) } else { i32::from(byte) }
}

#[inline(always)]
fn half<const SIGNED: bool>(x: u32, i: u32) -> i32 {
    let half = (x >> (16 * i)) as u16;
    if SIGNED { i32::from(half as i16) } else { i32::from(half) }
}

#[inline(always)]
fn dp4a<const A: bool, const B: bool>(a: u32, b: u32, c: u32) -> u32 {
    (0..4).fold(c, |sum, i| sum.wrapping_add((byte::<A>(a, i) * byte::<B>(b, i)) as u32))
}

#[inline(always)]
fn dp2a<const A: bool, const B: bool, const HIGH: u32>(a: u32, b: u32, c: u32) -> u32 {
    (0..2).fold(c, |sum, i| sum.wrapping_add(half::<A>(a, i).wrapping_mul(byte::<B>(b, 2 * HIGH + i)) as u32))
}

/// `dp4a`, `dp2a`: dot products of packed bytes, accumulated.
fn dot(m: &mut Modifiers<'_>) -> Option<Alu> {
    let (a, b) = (m.take_type()?, m.take_type()?);
    let mode = if m.opcode() == "dp2a" { m.take_any(&["lo", "hi"])? } else { "" };
    macro_rules! signs {
        ($function:ident $(, $high:expr)?) => {
            match (a, b) {
                (Type::U32, Type::U32) => lanes!(|x: u32, y: u32, z: u32| -> u32 { $function::<false, false $(, $high)?>(x, y, z) }),
                (Type::U32, Type::S32) => lanes!(|x: u32, y: u32, z: u32| -> u32 { $function::<false, true $(, $high)?>(x, y, z) }),
                (Type::S32, Type::U32) => lanes!(|x: u32, y: u32, z: u32| -> u32 { $function::<true, false $(, $high)?>(x, y, z) }),
                (Type::S32, Type::S32) => lanes!(|x: u32, y: u32, z: u32| -> u32 { $function::<true, true $(, $high)?>(x, y, z) }),
                _ => return None,
            }
        };
    }
    Some(match mode {
        "" => signs!(dp4a),
        "lo" => signs!(dp2a, 0),
        _ => signs!(dp2a, 1),
    })
}
