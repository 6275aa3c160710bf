//! Loads, stores and atomic operations.

use super::Modifiers;
use super::function::Lowering;
use super::operands::Binding;
use super::program::{Access, Address, Atomic, AtomicFn, Op, Space};
use crate::alu::narrow::{bf16_to_f32, canonical, f16_to_f32, f32_to_bf16, f32_to_f16, flush};
use crate::exec::registers::Class;
use crate::module::PtxError;
use crate::ptx::{Operand, Type};

/// Hints to caches and prefetchers, and scopes: every access here is as wide as `.sys`.
const HINTS: [&str; 20] = [
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "nc",
    "cta",
    "cluster",
    "gpu",
    "sys",
    "evict_first",
    "evict_last",
    "unified",
    "L1::no_allocate",
    "L1::evict_first",
    "L1::evict_last",
    "L1::evict_normal",
    "L1::evict_unchanged",
];

const STRONG: [&str; 7] = ["volatile", "relaxed", "acquire", "release", "acq_rel", "weak", "mmio"];

impl<'a> Lowering<'_, 'a> {
    fn space(&mut self, m: &mut Modifiers<'a>, binding: Option<Binding>) -> Space {
        match m.take_any(&[
            "global",
            "shared",
            "shared::cta",
            "local",
            "const",
            "param",
            "param::entry",
            "param::func",
        ]) {
            Some("global") => Space::Global,
            Some("shared" | "shared::cta") => Space::Shared,
            Some("local") => Space::Local,
            Some("const") => Space::Constant,
            // A `.param` of a call is local memory; one of the kernel is not.
            Some(_) if matches!(binding, Some(Binding::Local(_))) => Space::Local,
            Some(_) => Space::Param,
            None => Space::Generic,
        }
    }

    /// Takes cache hints. An L2 cache policy is a further operand, of which nothing is read.
    fn hints(&mut self, m: &mut Modifiers<'a>) -> bool {
        while m.take_any(&HINTS).is_some() {}
        let mut policy = false;
        while let Some(hint) = m.take_prefixed("L2::") {
            policy |= hint == "L2::cache_hint";
        }
        policy
    }

    pub(super) fn load_store(
        &mut self,
        m: &mut Modifiers<'a>,
        operands: &[Operand<'a>],
    ) -> Result<(), PtxError> {
        let store = m.opcode() == "st";
        let order = m.take_any(&STRONG);
        let strong = order.is_some_and(|order| order != "weak");
        let releases = order == Some("release");
        let policy = self.hints(m);
        let lanes = match m.take_any(&["v2", "v4", "v8"]) {
            Some("v2") => 2,
            Some("v4") => 4,
            Some(_) => 8,
            None => 1,
        };
        let (memory, data) = match (store, operands.len() - usize::from(policy && operands.len() == 3)) {
            (false, 2) => (&operands[1], &operands[0]),
            (true, 2) => (&operands[0], &operands[1]),
            _ => return self.error(format!("`{}` takes two operands", m.opcode())),
        };
        let (address, binding) = self.address(memory)?;
        let space = self.space(m, binding);
        let Some(ty) = m.last_type() else {
            return self.unknown(m);
        };
        if ty == Type::Pred || ty.size() > 8 || ty.size() * lanes > 32 {
            return self.unknown(m);
        }
        let elements = match (data, lanes) {
            (Operand::Vector(elements), lanes) if elements.len() == lanes as usize => elements.as_slice(),
            (Operand::Vector(_), _) => return self.error("the vector's length is not the instruction's"),
            (single, 1) => std::slice::from_ref(single),
            _ => return self.error(format!("expected a vector of {lanes}")),
        };
        let registers = elements
            .iter()
            .map(|element| self.data_register(element, ty.size(), store))
            .collect::<Result<Vec<_>, _>>()?;
        let access =
            Access { space, address, size: ty.size(), signed: ty.signed(), strong, releases, registers };
        self.emit(if store { Op::Store(Box::new(access)) } else { Op::Load(Box::new(access)) })
    }

    /// A register at least as wide as the data; the narrowest for a constant or nothing.
    fn data_register(
        &mut self,
        operand: &Operand<'a>,
        bytes: u32,
        read: bool,
    ) -> Result<(Class, u32), PtxError> {
        let least = match bytes {
            1 | 2 => Class::Half,
            4 => Class::Word,
            _ => Class::Double,
        };
        match (self.any_register(operand)?, least) {
            (Some((Class::Word, index)), Class::Half) => Ok((Class::Word, index)),
            (Some((Class::Double, index)), _) => Ok((Class::Double, index)),
            _ if read => Ok((least, self.source(operand, least)?)),
            _ => Ok((least, self.result(operand, least)?)),
        }
    }

    pub(super) fn atomic(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Result<(), PtxError> {
        let returns = m.opcode() == "atom";
        let releases = matches!(m.take_any(&STRONG), Some("release" | "acq_rel"));
        let policy = self.hints(m);
        m.take("noftz");
        let lanes = match m.take_any(&["v2", "v4", "v8"]) {
            Some("v2") => 2,
            Some("v4") => 4,
            Some(_) => 8,
            None => 1,
        };
        let Some(operation) =
            m.take_any(&["add", "min", "max", "exch", "cas", "and", "or", "xor", "inc", "dec"])
        else {
            return self.unknown(m);
        };
        let Some((ty, update)) = m.last_type().and_then(|ty| Some((ty, atomic_function(operation, ty)?)))
        else {
            return self.unknown(m);
        };
        let expected = usize::from(returns) + 2 + usize::from(operation == "cas");
        if operands.len() != expected && !(policy && operands.len() == expected + 1) {
            return self.error(format!("expected {expected} operands, got {}", operands.len()));
        }
        let (result, rest) = if returns {
            (Some(self.data_register(&operands[0], ty.size(), false)?), &operands[1..])
        } else {
            (None, operands)
        };
        if lanes > 1 && returns {
            return self.unknown(m);
        }
        let (address, binding) = self.address(&rest[0])?;
        let space = self.space(m, binding);
        let elements = match &rest[1] {
            Operand::Vector(elements) if elements.len() == lanes => elements.as_slice(),
            single if lanes == 1 => std::slice::from_ref(single),
            _ => return self.error(format!("expected a vector of {lanes}")),
        };
        let operands = elements
            .iter()
            .map(|element| self.data_register(element, ty.size(), true))
            .collect::<Result<Vec<_>, _>>()?;
        let second = match operation {
            "cas" => Some(self.data_register(&rest[2], ty.size(), true)?),
            _ => None,
        };
        let atomic = Atomic { space, address, size: ty.size(), update, result, releases, operands, second };
        self.emit(Op::Atomic(Box::new(atomic)))
    }
}

/// The new value from the old one and the operands, as raw bits.
fn atomic_function(operation: &str, ty: Type) -> Option<AtomicFn> {
    fn pair(old: u64, new: u64, add: fn(u16, u16) -> u16) -> u64 {
        let low = add(old as u16, new as u16);
        let high = add((old >> 16) as u16, (new >> 16) as u16);
        u64::from(low) | u64::from(high) << 16
    }
    fn add_f16(a: u16, b: u16) -> u16 {
        f32_to_f16(f16_to_f32(a) + f16_to_f32(b))
    }
    fn add_bf16(a: u16, b: u16) -> u16 {
        f32_to_bf16(bf16_to_f32(a) + bf16_to_f32(b))
    }
    Some(match (operation, ty) {
        ("add", Type::U32 | Type::S32) => |a, b, _| u64::from((a as u32).wrapping_add(b as u32)),
        ("add", Type::U64 | Type::S64) => |a, b, _| a.wrapping_add(b),
        // Atomic f32 additions flush subnormals on global memory.
        ("add", Type::F32) => |a, b, _| {
            let sum = flush(f32::from_bits(a as u32)) + flush(f32::from_bits(b as u32));
            u64::from(canonical(flush(sum)).to_bits())
        },
        ("add", Type::F64) => |a, b, _| (f64::from_bits(a) + f64::from_bits(b)).to_bits(),
        ("add", Type::F16) => |a, b, _| add_f16(a as u16, b as u16).into(),
        ("add", Type::BF16) => |a, b, _| add_bf16(a as u16, b as u16).into(),
        ("add", Type::F16x2) => |a, b, _| pair(a, b, add_f16),
        ("add", Type::BF16x2) => |a, b, _| pair(a, b, add_bf16),
        ("min", Type::U32 | Type::U64) => |a, b, _| a.min(b),
        ("max", Type::U32 | Type::U64) => |a, b, _| a.max(b),
        ("min", Type::S32) => |a, b, _| (a as i32).min(b as i32) as u32 as u64,
        ("max", Type::S32) => |a, b, _| (a as i32).max(b as i32) as u32 as u64,
        ("min", Type::S64) => |a, b, _| (a as i64).min(b as i64) as u64,
        ("max", Type::S64) => |a, b, _| (a as i64).max(b as i64) as u64,
        ("exch", Type::B32 | Type::B64) => |_, b, _| b,
        ("cas", Type::B16 | Type::B32 | Type::B64) => |a, b, c| if a == b { c } else { a },
        ("and", Type::B32 | Type::B64) => |a, b, _| a & b,
        ("or", Type::B32 | Type::B64) => |a, b, _| a | b,
        ("xor", Type::B32 | Type::B64) => |a, b, _| a ^ b,
        ("inc", Type::U32) => |a, b, _| if a >= b { 0 } else { a + 1 },
        ("dec", Type::U32) => |a, b, _| if a == 0 || a > b { b } else { a - 1 },
        _ => return None,
    })
}

/// The address of something in shared memory.
pub(super) fn generic_or_shared(space: Space) -> Option<bool> {
    match space {
        Space::Generic => Some(true),
        Space::Shared => Some(false),
        _ => None,
    }
}

impl<'a> Lowering<'_, 'a> {
    /// An address in shared memory, and whether it is a generic one.
    pub(super) fn shared_address(
        &mut self,
        m: &mut Modifiers<'a>,
        operand: &Operand<'a>,
    ) -> Result<(Address, bool), PtxError> {
        let (address, binding) = self.address(operand)?;
        let space = self.space(m, binding);
        match generic_or_shared(space) {
            Some(generic) => Ok((address, generic)),
            None => self.unknown(m),
        }
    }
}
