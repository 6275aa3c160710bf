//! Names and numbers to register indices.

use std::collections::HashMap;

use super::function::Lowering;
use super::program::{Address, Constant, Special, Value};
use crate::exec::registers::{CARRY, Class, SINK};
use crate::module::PtxError;
use crate::ptx::{Immediate, Operand, Symbol, Type};

/// What a name stands for in a scope.
#[derive(Debug, Clone, Copy)]
pub(super) enum Binding {
    /// Registers `first..first + count`, of which the name itself is one if it is not a numbered range.
    Registers { class: Class, first: u64, count: u64, numbered: bool },
    /// An offset in the block's shared memory.
    Shared(u64),
    /// An offset in the thread's local memory.
    Local(u64),
    /// An offset in the kernel's parameters.
    Param(u64),
}

/// The dense register indices of a program, given out as registers are first used.
#[derive(Debug, Default)]
pub(super) struct Allocator {
    /// By the number a declaration gave.
    dense: HashMap<(bool, bool, u64), u32>,
    constants: HashMap<(Class, Value), u32>,
    pub(super) list: Vec<Constant>,
    /// File, index and name of the registers that have one.
    pub(super) names: HashMap<(usize, u32), String>,
    next: [u32; 3],
    declared: u64,
}

/// Which file a class lies in.
pub(super) fn file(class: Class) -> usize {
    match class {
        Class::Half | Class::Word => 0,
        Class::Double => 1,
        Class::Predicate => 2,
    }
}

impl Allocator {
    pub(super) fn new() -> Self {
        // Every file has its sink; the predicates have the carry flag too.
        Self { next: [SINK + 1, SINK + 1, CARRY + 1], ..Self::default() }
    }

    pub(super) fn fresh(&mut self, class: Class) -> u32 {
        let next = &mut self.next[file(class)];
        *next += 1;
        *next - 1
    }

    /// Registers in each file.
    pub(super) fn counts(&self) -> [usize; 3] {
        self.next.map(|n| n as usize)
    }

    /// Numbers for `count` newly declared registers.
    pub(super) fn declare(&mut self, count: u64) -> u64 {
        self.declared += count;
        self.declared - count
    }

    fn dense(&mut self, class: Class, declared: u64, name: &str) -> u32 {
        let key = (class == Class::Double, class == Class::Predicate, declared);
        if let Some(&index) = self.dense.get(&key) {
            return index;
        }
        let index = self.fresh(class);
        self.dense.insert(key, index);
        self.names.insert((file(class), index), name.to_owned());
        index
    }

    pub(super) fn constant(&mut self, class: Class, value: Value) -> u32 {
        if let Some(&index) = self.constants.get(&(class, value)) {
            return index;
        }
        let index = self.fresh(class);
        self.constants.insert((class, value), index);
        self.list.push(Constant { class, index, value });
        index
    }
}

/// The class of a register declared with a type.
pub(super) fn class_of(ty: Type) -> Option<Class> {
    match ty {
        Type::Pred => Some(Class::Predicate),
        _ => match ty.size() {
            1 | 2 => Some(Class::Half),
            4 => Some(Class::Word),
            8 => Some(Class::Double),
            _ => None,
        },
    }
}

fn special(name: &str) -> Option<Special> {
    let (name, axis) = match name.strip_prefix('%')?.split_once('.') {
        Some((name, "x")) => (name, Some(0)),
        Some((name, "y")) => (name, Some(1)),
        Some((name, "z")) => (name, Some(2)),
        Some(_) => return None,
        None => (name.strip_prefix('%')?, None),
    };
    Some(match (name, axis) {
        ("tid", Some(axis)) => Special::Tid(axis),
        ("ntid", Some(axis)) => Special::Ntid(axis),
        ("ctaid", Some(axis)) => Special::Ctaid(axis),
        ("nctaid", Some(axis)) => Special::Nctaid(axis),
        ("laneid", None) => Special::LaneId,
        ("warpid", None) => Special::WarpId,
        ("nwarpid", None) => Special::WarpCount,
        ("lanemask_eq", None) => Special::MaskEq,
        ("lanemask_le", None) => Special::MaskLe,
        ("lanemask_lt", None) => Special::MaskLt,
        ("lanemask_ge", None) => Special::MaskGe,
        ("lanemask_gt", None) => Special::MaskGt,
        ("dynamic_smem_size", None) => Special::DynamicShared,
        ("total_smem_size", None) => Special::TotalShared,
        ("smid" | "gridid", None) => Special::Zero,
        ("nsmid", None) => Special::One,
        _ => return None,
    })
}

impl<'a> Lowering<'_, 'a> {
    pub(super) fn error<T>(&self, message: impl Into<String>) -> Result<T, PtxError> {
        Err(PtxError { line: self.line, message: message.into() })
    }

    pub(super) fn lookup(&self, name: &str) -> Option<Binding> {
        let split = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = name[split.len()..].parse::<u64>().ok();
        self.scopes.iter().rev().find_map(|scope| {
            if let Some(&binding) = scope.get(name)
                && !matches!(binding, Binding::Registers { numbered: true, .. })
            {
                return Some(binding);
            }
            match (scope.get(split), number) {
                (Some(&Binding::Registers { class, first, count, numbered: true }), Some(n)) if n < count => {
                    Some(Binding::Registers { class, first: first + n, count: 1, numbered: false })
                }
                _ => None,
            }
        })
    }

    /// Class and index of a register.
    pub(super) fn register(&mut self, name: &str) -> Option<(Class, u32)> {
        match self.lookup(name)? {
            Binding::Registers { class, first, numbered: false, .. } => {
                Some((class, self.allocator.dense(class, first, name)))
            }
            _ => None,
        }
    }

    /// A register to write; `_` is one to throw away.
    pub(super) fn result(&mut self, operand: &Operand<'a>, class: Class) -> Result<u32, PtxError> {
        match operand {
            Operand::Sink => Ok(SINK),
            Operand::Name(Symbol { name: "_", .. }) => Ok(SINK),
            Operand::Name(Symbol { name, offset: 0 }) => match self.register(name) {
                Some((found, index)) if found == class => Ok(index),
                Some((found, _)) => {
                    self.error(format!("`{name}` is a {found:?} register, expected {class:?}"))
                }
                None => self.error(format!("`{name}` is not a declared register")),
            },
            other => self.error(format!("expected a register, got {other:?}")),
        }
    }

    /// A register to read: a declared one, or one that holds a constant.
    pub(super) fn source(&mut self, operand: &Operand<'a>, class: Class) -> Result<u32, PtxError> {
        match operand {
            Operand::Immediate(value) => {
                let bits = self.immediate(*value, class)?;
                Ok(self.allocator.constant(class, Value::Bits(bits)))
            }
            Operand::Name(Symbol { name, offset }) => {
                if let Some((found, index)) = self.register(name) {
                    if *offset != 0 {
                        return self.error("a register with an offset is not a value");
                    }
                    if found != class {
                        return self.error(format!("`{name}` is a {found:?} register, expected {class:?}"));
                    }
                    return Ok(index);
                }
                if let Some(special) = special(name) {
                    return Ok(self.allocator.constant(class, Value::Special(special)));
                }
                match self.symbol(name, *offset)? {
                    Some(value) => Ok(self.allocator.constant(class, value)),
                    None => self.error(format!("`{name}` is not declared")),
                }
            }
            other => self.error(format!("expected a value, got {other:?}")),
        }
    }

    /// The address of a variable within its space.
    fn symbol(&mut self, name: &str, offset: i64) -> Result<Option<Value>, PtxError> {
        let at = |base: u64| Value::Bits(base.wrapping_add_signed(offset));
        Ok(match self.lookup(name) {
            Some(Binding::Shared(base) | Binding::Local(base) | Binding::Param(base)) => Some(at(base)),
            Some(Binding::Registers { .. }) => None,
            None => match self.shared.get(name) {
                Some(&base) => Some(at(base)),
                None => self.module.variables.get(name).map(|&index| Value::Variable(index, offset)),
            },
        })
    }

    /// The bits of a number in a register of that class.
    fn immediate(&self, value: Immediate, class: Class) -> Result<u64, PtxError> {
        match (value, class) {
            (Immediate::Integer(x), Class::Double) => Ok(x),
            (Immediate::Integer(x), Class::Word) => Ok(x & 0xffff_ffff),
            (Immediate::Integer(x), Class::Half) => Ok(x & 0xffff),
            (Immediate::Integer(x), Class::Predicate) => Ok(u64::from(x != 0)),
            (Immediate::Single(x), Class::Word) => Ok(u64::from(x)),
            (Immediate::Single(x), Class::Double) => Ok(f64::from(f32::from_bits(x)).to_bits()),
            (Immediate::Double(x), Class::Double) => Ok(x),
            (Immediate::Double(x), Class::Word) => Ok(u64::from((f64::from_bits(x) as f32).to_bits())),
            (value, class) => self.error(format!("{value:?} does not fit a {class:?} register")),
        }
    }

    /// A predicate to read and whether it is negated.
    pub(super) fn predicate(&mut self, operand: &Operand<'a>) -> Result<(u32, bool), PtxError> {
        match operand {
            Operand::Not(name) => {
                let plain = Operand::Name(Symbol { name, offset: 0 });
                Ok((self.source(&plain, Class::Predicate)?, true))
            }
            operand => Ok((self.source(operand, Class::Predicate)?, false)),
        }
    }

    /// `[base + offset]`, and what the base is bound to when it is a variable.
    pub(super) fn address(&mut self, operand: &Operand<'a>) -> Result<(Address, Option<Binding>), PtxError> {
        match operand {
            Operand::Absolute(at) => {
                let base = self.allocator.constant(Class::Double, Value::Bits(*at));
                Ok((Address { base, wide: true, offset: 0 }, None))
            }
            Operand::Memory(Symbol { name, offset }) => {
                let binding = self.lookup(name);
                match self.register(name) {
                    Some((Class::Word, base)) => Ok((Address { base, wide: false, offset: *offset }, None)),
                    Some((Class::Double, base)) => Ok((Address { base, wide: true, offset: *offset }, None)),
                    Some(_) => self.error(format!("`{name}` is too narrow for an address")),
                    None => match self.symbol(name, *offset)? {
                        Some(value) => {
                            let base = self.allocator.constant(Class::Double, value);
                            Ok((Address { base, wide: true, offset: 0 }, binding))
                        }
                        None => self.error(format!("`{name}` is not declared")),
                    },
                }
            }
            other => self.error(format!("expected an address, got {other:?}")),
        }
    }

    /// A register of any class to read or write.
    pub(super) fn any_register(&mut self, operand: &Operand<'a>) -> Result<Option<(Class, u32)>, PtxError> {
        Ok(match operand {
            Operand::Name(Symbol { name, offset: 0 }) => self.register(name),
            _ => None,
        })
    }
}
