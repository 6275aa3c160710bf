//! Comparisons and selections. `setp` is decoded to its plain comparison; what it combines with is a further step.

use super::{Alu, lanes};
use crate::decode::Modifiers;
use crate::ptx::Type;

/// All comparisons of one type.
macro_rules! integers {
    ($ty:ty, $comparison:expr) => {
        match $comparison {
            "eq" => lanes!(|a: $ty, b: $ty| -> bool { a == b }),
            "ne" => lanes!(|a: $ty, b: $ty| -> bool { a != b }),
            "lt" | "lo" => lanes!(|a: $ty, b: $ty| -> bool { a < b }),
            "le" | "ls" => lanes!(|a: $ty, b: $ty| -> bool { a <= b }),
            "gt" | "hi" => lanes!(|a: $ty, b: $ty| -> bool { a > b }),
            _ => lanes!(|a: $ty, b: $ty| -> bool { a >= b }),
        }
    };
}

/// The same for pairs: a mask of each half. `set` alone has these.
macro_rules! pairs {
    ($comparison:expr, |$raw:ident| $widen:expr, [$(($name:expr, $a:ident, $b:ident, $body:expr)),+]) => {
        match $comparison {
            $($name => lanes!(|x: u32, y: u32| -> u32 {
                let half = |shift: u32| {
                    let $raw = (x >> shift) as u16;
                    let $a = $widen;
                    let $raw = (y >> shift) as u16;
                    let $b = $widen;
                    if $body { 0xffff << shift } else { 0 }
                };
                half(0) | half(16)
            }),)+
            _ => return None,
        }
    };
    ($comparison:expr, |$raw:ident| $widen:expr) => {
        pairs!($comparison, |$raw| $widen, [
            ("eq", a, b, a == b), ("ne", a, b, a < b || a > b), ("lt", a, b, a < b), ("le", a, b, a <= b),
            ("gt", a, b, a > b), ("ge", a, b, a >= b), ("equ", a, b, !(a < b || a > b)), ("neu", a, b, a != b),
            ("ltu", a, b, !(a >= b)), ("leu", a, b, !(a > b)), ("gtu", a, b, !(a <= b)), ("geu", a, b, !(a < b)),
            ("num", a, b, !(a.is_nan() || b.is_nan())), ("nan", a, b, a.is_nan() || b.is_nan())
        ])
    };
}

/// The same for floats, `$widen` making f32 or f64 of what the register holds. The `u` forms are true for NaNs.
macro_rules! floats {
    ($ty:ty, $comparison:expr, |$raw:ident| $widen:expr) => {
        floats!(@all $ty, $comparison, |$raw| $widen, [
            ("eq", a, b, a == b), ("ne", a, b, a < b || a > b), ("lt", a, b, a < b), ("le", a, b, a <= b),
            ("gt", a, b, a > b), ("ge", a, b, a >= b), ("equ", a, b, !(a < b || a > b)), ("neu", a, b, a != b),
            ("ltu", a, b, !(a >= b)), ("leu", a, b, !(a > b)), ("gtu", a, b, !(a <= b)), ("geu", a, b, !(a < b)),
            ("num", a, b, !(a.is_nan() || b.is_nan())), ("nan", a, b, a.is_nan() || b.is_nan())
        ])
    };
    (@all $ty:ty, $comparison:expr, |$raw:ident| $widen:expr,
        [$(($name:expr, $a:ident, $b:ident, $body:expr)),+]) => {
        match $comparison {
            $($name => {
                #[allow(
                    clippy::neg_cmp_op_on_partial_ord,
                    clippy::nonminimal_bool,
                    clippy::double_comparisons,
                    clippy::almost_swapped,
                    reason = "each form means something of its own for NaNs; nothing is swapped"
                )]
                {
                    lanes!(|$a: $ty, $b: $ty| -> bool {
                        let $raw = $a;
                        let $a = $widen;
                        let $raw = $b;
                        let $b = $widen;
                        $body
                    })
                }
            })+
            _ => return None,
        }
    };
}

const COMPARISONS: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu",
    "num", "nan",
];

pub(super) fn decode(m: &mut Modifiers<'_>) -> Option<Alu> {
    match m.opcode() {
        "setp" | "set" => {
            let ty = m.last_type()?;
            let comparison = m.take_any(&COMPARISONS)?;
            match (m.opcode(), ty) {
                ("set", Type::F16x2 | Type::BF16x2) => comparison_of_pairs(ty, comparison),
                _ => comparison_of(ty, comparison, m.take("ftz")),
            }
        }
        "selp" => Some(match m.last_type()?.size() {
            2 => lanes!(|a: u16, b: u16, p: bool| -> u16 { if p { a } else { b } }),
            4 => lanes!(|a: u32, b: u32, p: bool| -> u32 { if p { a } else { b } }),
            8 => lanes!(|a: u64, b: u64, p: bool| -> u64 { if p { a } else { b } }),
            _ => return None,
        }),
        "slct" => {
            let condition = m.last_type()?;
            m.take("ftz");
            Some(match (m.take_type()?.size(), condition) {
                (4, Type::S32) => lanes!(|a: u32, b: u32, c: i32| -> u32 { if c >= 0 { a } else { b } }),
                (8, Type::S32) => lanes!(|a: u64, b: u64, c: i32| -> u64 { if c >= 0 { a } else { b } }),
                (4, Type::F32) => lanes!(|a: u32, b: u32, c: f32| -> u32 { if c >= 0.0 { a } else { b } }),
                (8, Type::F32) => lanes!(|a: u64, b: u64, c: f32| -> u64 { if c >= 0.0 { a } else { b } }),
                _ => return None,
            })
        }
        _ => None,
    }
}

#[allow(
    clippy::neg_cmp_op_on_partial_ord,
    clippy::nonminimal_bool,
    clippy::double_comparisons,
    reason = "each form means something of its own for NaNs"
)]
fn comparison_of_pairs(ty: Type, comparison: &'static str) -> Option<Alu> {
    Some(match ty {
        Type::F16x2 => pairs!(comparison, |x| super::narrow::f16_to_f32(x)),
        _ => pairs!(comparison, |x| super::narrow::bf16_to_f32(x)),
    })
}

fn comparison_of(ty: Type, comparison: &'static str, ftz: bool) -> Option<Alu> {
    let unordered = comparison.len() == 3;
    let integer = !matches!(ty, Type::F16 | Type::BF16 | Type::F32 | Type::F64);
    if integer && unordered || !integer && matches!(comparison, "lo" | "ls" | "hi" | "hs") {
        return None;
    }
    Some(match ty {
        Type::U16 | Type::B16 => integers!(u16, comparison),
        Type::S16 => integers!(i16, comparison),
        Type::U32 | Type::B32 => integers!(u32, comparison),
        Type::S32 => integers!(i32, comparison),
        Type::U64 | Type::B64 => integers!(u64, comparison),
        Type::S64 => integers!(i64, comparison),
        Type::F32 if ftz => floats!(f32, comparison, |x| super::narrow::flush(x)),
        Type::F32 => floats!(f32, comparison, |x| x),
        Type::F64 => floats!(f64, comparison, |x| x),
        Type::F16 => floats!(u16, comparison, |x| super::narrow::f16_to_f32(x)),
        Type::BF16 => floats!(u16, comparison, |x| super::narrow::bf16_to_f32(x)),
        _ => return None,
    })
}
