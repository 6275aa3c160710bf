//! Logic, shifts, fields and permutations of bits.

use super::{Alu, lanes};
use crate::decode::Modifiers;
use crate::ptx::Type;

/// One formula for each width of the untyped values; `pred` is done on lane masks elsewhere.
macro_rules! widths {
    ($ty:expr, |$($arg:ident),+| $body:expr) => {
        match $ty {
            Type::B16 | Type::U16 | Type::S16 => lanes!(|$($arg: u16),+| -> u16 { $body }),
            Type::B32 | Type::U32 | Type::S32 => lanes!(|$($arg: u32),+| -> u32 { $body }),
            Type::B64 | Type::U64 | Type::S64 => lanes!(|$($arg: u64),+| -> u64 { $body }),
            _ => return None,
        }
    };
}

pub(super) fn decode(m: &mut Modifiers<'_>) -> Option<Alu> {
    let ty = m.last_type()?;
    if ty == Type::Pred {
        return Some(match m.opcode() {
            "and" => lanes!(|a: bool, b: bool| -> bool { a & b }),
            "or" => lanes!(|a: bool, b: bool| -> bool { a | b }),
            "xor" => lanes!(|a: bool, b: bool| -> bool { a ^ b }),
            "not" => lanes!(|a: bool| -> bool { !a }),
            _ => return None,
        });
    }
    Some(match m.opcode() {
        "and" => widths!(ty, |a, b| a & b),
        "or" => widths!(ty, |a, b| a | b),
        "xor" => widths!(ty, |a, b| a ^ b),
        "not" => widths!(ty, |a| !a),
        "cnot" => widths!(ty, |a| (a == 0).into()),
        "shl" => match ty.size() {
            2 => lanes!(|a: u16, n: u32| -> u16 { a.checked_shl(n).unwrap_or(0) }),
            4 => lanes!(|a: u32, n: u32| -> u32 { a.checked_shl(n).unwrap_or(0) }),
            _ => lanes!(|a: u64, n: u32| -> u64 { a.checked_shl(n).unwrap_or(0) }),
        },
        "shr" => match ty {
            Type::S16 => lanes!(|a: i16, n: u32| -> i16 { a >> n.min(15) }),
            Type::S32 => lanes!(|a: i32, n: u32| -> i32 { a >> n.min(31) }),
            Type::S64 => lanes!(|a: i64, n: u32| -> i64 { a >> n.min(63) }),
            Type::B16 | Type::U16 => lanes!(|a: u16, n: u32| -> u16 { a.checked_shr(n).unwrap_or(0) }),
            Type::B32 | Type::U32 => lanes!(|a: u32, n: u32| -> u32 { a.checked_shr(n).unwrap_or(0) }),
            Type::B64 | Type::U64 => lanes!(|a: u64, n: u32| -> u64 { a.checked_shr(n).unwrap_or(0) }),
            _ => return None,
        },
        "shf" if ty == Type::B32 => match (m.take_any(&["l", "r"])?, m.take_any(&["clamp", "wrap"])?) {
            ("l", "clamp") => lanes!(|a: u32, b: u32, n: u32| -> u32 { funnel_left(a, b, n.min(32)) }),
            ("l", _) => lanes!(|a: u32, b: u32, n: u32| -> u32 { funnel_left(a, b, n & 31) }),
            (_, "clamp") => lanes!(|a: u32, b: u32, n: u32| -> u32 { funnel_right(a, b, n.min(32)) }),
            (_, _) => lanes!(|a: u32, b: u32, n: u32| -> u32 { funnel_right(a, b, n & 31) }),
        },
        "bfe" => match ty {
            Type::U32 => lanes!(|a: u32, at: u32, n: u32| -> u32 {
                extract(u64::from(a), at & 0xff, n & 0xff, 32, false) as u32
            }),
            Type::S32 => lanes!(|a: u32, at: u32, n: u32| -> u32 {
                extract(u64::from(a), at & 0xff, n & 0xff, 32, true) as u32
            }),
            Type::U64 => {
                lanes!(|a: u64, at: u32, n: u32| -> u64 { extract(a, at & 0xff, n & 0xff, 64, false) })
            }
            Type::S64 => {
                lanes!(|a: u64, at: u32, n: u32| -> u64 { extract(a, at & 0xff, n & 0xff, 64, true) })
            }
            _ => return None,
        },
        "bfi" => match ty.size() {
            4 => lanes!(|a: u32, b: u32, at: u32, n: u32| -> u32 {
                insert(u64::from(a), u64::from(b), at & 0xff, n & 0xff) as u32
            }),
            _ => lanes!(|a: u64, b: u64, at: u32, n: u32| -> u64 { insert(a, b, at & 0xff, n & 0xff) }),
        },
        "bfind" => {
            let shift = m.take("shiftamt");
            match (ty, shift) {
                (Type::U32, false) => lanes!(|a: u32| -> u32 { 31u32.wrapping_sub(a.leading_zeros()) }),
                (Type::U32, true) => {
                    lanes!(|a: u32| -> u32 { if a == 0 { u32::MAX } else { a.leading_zeros() } })
                }
                (Type::S32, false) => {
                    lanes!(|a: i32| -> u32 { 31u32.wrapping_sub((a ^ a >> 31).leading_zeros()) })
                }
                (Type::S32, true) => lanes!(|a: i32| -> u32 {
                    let a = a ^ a >> 31;
                    if a == 0 { u32::MAX } else { a.leading_zeros() }
                }),
                (Type::U64, false) => lanes!(|a: u64| -> u32 { 63u32.wrapping_sub(a.leading_zeros()) }),
                (Type::U64, true) => {
                    lanes!(|a: u64| -> u32 { if a == 0 { u32::MAX } else { a.leading_zeros() } })
                }
                (Type::S64, false) => {
                    lanes!(|a: i64| -> u32 { 63u32.wrapping_sub((a ^ a >> 63).leading_zeros()) })
                }
                _ => return None,
            }
        }
        "brev" => match ty.size() {
            4 => lanes!(|a: u32| -> u32 { a.reverse_bits() }),
            _ => lanes!(|a: u64| -> u64 { a.reverse_bits() }),
        },
        "clz" => match ty.size() {
            4 => lanes!(|a: u32| -> u32 { a.leading_zeros() }),
            _ => lanes!(|a: u64| -> u32 { a.leading_zeros() }),
        },
        "popc" => match ty.size() {
            4 => lanes!(|a: u32| -> u32 { a.count_ones() }),
            _ => lanes!(|a: u64| -> u32 { a.count_ones() }),
        },
        "prmt" if ty == Type::B32 => match m.take_any(&["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]) {
            None => lanes!(|a: u32, b: u32, c: u32| -> u32 { permute(a, b, c) }),
            Some("f4e") => {
                lanes!(|a: u32, b: u32, c: u32| -> u32 { permute(a, b, 0x3210 + 0x1111 * (c & 3)) })
            }
            Some("b4e") => lanes!(|a: u32, b: u32, c: u32| -> u32 {
                let s = c & 3;
                permute(
                    a,
                    b,
                    s | (s.wrapping_sub(1) & 7) << 4
                        | (s.wrapping_sub(2) & 7) << 8
                        | (s.wrapping_sub(3) & 7) << 12,
                )
            }),
            Some("rc8") => lanes!(|a: u32, b: u32, c: u32| -> u32 { permute(a, b, 0x1111 * (c & 3)) }),
            Some("ecl") => lanes!(|a: u32, b: u32, c: u32| -> u32 {
                let s = c & 3;
                permute(a, b, s.max(3) << 12 | s.max(2) << 8 | s.max(1) << 4 | s)
            }),
            Some("ecr") => lanes!(|a: u32, b: u32, c: u32| -> u32 {
                let s = c & 3;
                permute(a, b, s << 12 | s.min(2) << 8 | s.min(1) << 4)
            }),
            Some(_) => lanes!(|a: u32, b: u32, c: u32| -> u32 {
                permute(a, b, if c & 1 == 0 { 0x1010 } else { 0x3232 })
            }),
        },
        "lop3" if ty == Type::B32 => lanes!(|a: u32, b: u32, c: u32, table: u32| -> u32 {
            let entry = |i: u32| (table >> i & 1).wrapping_neg();
            let choose = |s: u32, one: u32, zero: u32| zero ^ (s & (one ^ zero));
            let when_a = choose(b, choose(c, entry(7), entry(6)), choose(c, entry(5), entry(4)));
            let when_not = choose(b, choose(c, entry(3), entry(2)), choose(c, entry(1), entry(0)));
            choose(a, when_a, when_not)
        }),
        "szext" => match (m.take_any(&["clamp", "wrap"])?, ty) {
            ("wrap", Type::U32) => {
                lanes!(|a: u32, n: u32| -> u32 { extract(u64::from(a), 0, n & 31, 32, false) as u32 })
            }
            ("wrap", Type::S32) => {
                lanes!(|a: u32, n: u32| -> u32 { extract(u64::from(a), 0, n & 31, 32, true) as u32 })
            }
            (_, Type::U32) => {
                lanes!(|a: u32, n: u32| -> u32 { extract(u64::from(a), 0, n.min(32), 32, false) as u32 })
            }
            (_, Type::S32) => {
                lanes!(|a: u32, n: u32| -> u32 { extract(u64::from(a), 0, n.min(32), 32, true) as u32 })
            }
            _ => return None,
        },
        "bmsk" => match m.take_any(&["clamp", "wrap"])? {
            "wrap" => lanes!(|at: u32, n: u32| -> u32 { insert(u64::MAX, 0, at & 31, n & 31) as u32 }),
            _ => lanes!(|at: u32, n: u32| -> u32 { insert(u64::MAX, 0, at.min(32), n.min(32)) as u32 }),
        },
        _ => return None,
    })
}

/// The upper word of `b:a << n`, `n <= 32`.
#[inline(always)]
fn funnel_left(a: u32, b: u32, n: u32) -> u32 {
    ((u64::from(b) << 32 | u64::from(a)) << n >> 32) as u32
}

/// The lower word of `b:a >> n`, `n <= 32`.
#[inline(always)]
fn funnel_right(a: u32, b: u32, n: u32) -> u32 {
    ((u64::from(b) << 32 | u64::from(a)) >> n) as u32
}

/// `n` bits of an integer of `width` bits from bit `at` on. A signed field takes its sign from its top bit, or
/// from the integer's when it reaches beyond it.
#[inline(always)]
fn extract(a: u64, at: u32, n: u32, width: u32, signed: bool) -> u64 {
    let ones = |n: u32| if n >= 64 { u64::MAX } else { (1 << n) - 1 };
    let field = a.checked_shr(at).unwrap_or(0) & ones(n);
    if !signed || n == 0 {
        return field;
    }
    let sign = a >> (at + n - 1).min(width - 1) & 1;
    if sign == 0 {
        return field;
    }
    let given = ones(n.min(width.saturating_sub(at)));
    field & given | !given
}

/// `b` with its `n` bits from `at` on replaced by the low ones of `a`.
#[inline(always)]
fn insert(a: u64, b: u64, at: u32, n: u32) -> u64 {
    let ones = if n >= 64 { u64::MAX } else { (1 << n) - 1 };
    let field = ones.checked_shl(at).unwrap_or(0);
    b & !field | a.checked_shl(at).unwrap_or(0) & field
}

/// Byte `i` of the result is the byte of `b:a` that nibble `i` of the selector names, or eight copies of its sign.
#[inline(always)]
fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    let mut out = 0;
    for i in 0..4 {
        let nibble = selector >> (4 * i);
        let byte = (bytes >> (8 * (nibble & 7))) as u8;
        let byte = if nibble & 8 == 0 { byte } else { (byte as i8 >> 7) as u8 };
        out |= u32::from(byte) << (8 * i);
    }
    out
}
