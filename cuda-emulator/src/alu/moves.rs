//! `mov`, with packing of narrow registers into wide ones and back.

use super::{Alu, lanes};
use crate::decode::Modifiers;
use crate::exec::registers::{Class, Lane, Registers, each};

use super::Operands;

/// A `mov` of one register to one; vectors go through [`pack`] and [`unpack`].
pub(super) fn decode(m: &mut Modifiers<'_>) -> Option<Alu> {
    Some(match m.last_type()?.size() {
        1 => lanes!(|a: bool| -> bool { a }),
        2 => lanes!(|a: u16| -> u16 { a }),
        4 => lanes!(|a: u32| -> u32 { a }),
        8 => lanes!(|a: u64| -> u64 { a }),
        _ => return None,
    })
}

/// A register of `bytes` from `parts` narrower ones, the first in the low bits.
pub(crate) fn pack(bytes: u32, parts: usize) -> Option<Alu> {
    Some(match (bytes, parts) {
        (4, 2) => lanes!(|a: u16, b: u16| -> u32 { u32::from(a) | u32::from(b) << 16 }),
        (8, 2) => lanes!(|a: u32, b: u32| -> u64 { u64::from(a) | u64::from(b) << 32 }),
        (2, 2) => lanes!(|a: u8, b: u8| -> u16 { u16::from(a) | u16::from(b) << 8 }),
        (4, 4) => lanes!(|a: u8, b: u8, c: u8, d: u8| -> u32 { u32::from_le_bytes([a, b, c, d]) }),
        (8, 4) => lanes!(|a: u16, b: u16, c: u16, d: u16| -> u64 {
            u64::from(a) | u64::from(b) << 16 | u64::from(c) << 32 | u64::from(d) << 48
        }),
        _ => return None,
    })
}

/// The narrower registers that make up one of `bytes`, the first from the low bits.
pub(crate) fn unpack(bytes: u32, parts: usize) -> Option<Alu> {
    let (run, results, sources): (super::AluFn, &'static [Class], &'static [Class]) = match (bytes, parts) {
        (2, 2) => (split::<u16, u8, 2>, &[Class::Half; 2], &[Class::Half]),
        (4, 2) => (split::<u32, u16, 2>, &[Class::Half; 2], &[Class::Word]),
        (4, 4) => (split::<u32, u8, 4>, &[Class::Half; 4], &[Class::Word]),
        (8, 2) => (split::<u64, u32, 2>, &[Class::Word; 2], &[Class::Double]),
        (8, 4) => (split::<u64, u16, 4>, &[Class::Half; 4], &[Class::Double]),
        _ => return None,
    };
    Some(Alu { run, results, sources, carry_out: false, carry_in: false })
}

fn split<W: Lane + Into<u64>, N: Lane + Narrow, const PARTS: usize>(
    registers: &mut Registers,
    operands: &Operands,
    mask: u32,
) {
    let wide = W::read(registers, operands[PARTS]);
    for (part, &register) in operands[..PARTS].iter().enumerate() {
        let narrow = each(&wide, |wide| N::part(wide.into(), part));
        N::write(registers, register, &narrow, mask);
    }
}

/// The `part`th piece of a wide value.
trait Narrow {
    fn part(wide: u64, part: usize) -> Self;
}

impl Narrow for u8 {
    #[inline(always)]
    fn part(wide: u64, part: usize) -> Self {
        (wide >> (8 * part)) as Self
    }
}

impl Narrow for u16 {
    #[inline(always)]
    fn part(wide: u64, part: usize) -> Self {
        (wide >> (16 * part)) as Self
    }
}

impl Narrow for u32 {
    #[inline(always)]
    fn part(wide: u64, part: usize) -> Self {
        (wide >> (32 * part)) as Self
    }
}
