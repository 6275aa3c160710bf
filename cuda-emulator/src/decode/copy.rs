//! `cp.async` and its groups.

use super::Modifiers;
use super::function::Lowering;
use super::program::{CopyAsync, Op};
use crate::exec::registers::Class;
use crate::module::PtxError;
use crate::ptx::{Immediate, Operand};

impl<'a> Lowering<'_, 'a> {
    pub(super) fn copy_async(
        &mut self,
        m: &mut Modifiers<'a>,
        operands: &[Operand<'a>],
    ) -> Result<(), PtxError> {
        if !m.take("async") {
            return self.unknown(m);
        }
        if m.take("commit_group") {
            return self.emit(Op::CommitGroup);
        }
        if m.take("wait_all") {
            return self.emit(Op::WaitAll);
        }
        if m.take("wait_group") {
            let [Operand::Immediate(Immediate::Integer(n))] = operands else {
                return self.error("`cp.async.wait_group` takes a number");
            };
            return self.emit(Op::WaitGroup(u32::try_from(*n).unwrap_or(u32::MAX)));
        }
        let cache = m.take_any(&["ca", "cg"]);
        let to_shared = m.take("shared") || m.take("shared::cta");
        let (Some(cache), true, true) = (cache, to_shared, m.take("global")) else {
            return self.unknown(m);
        };
        let mut policy = false;
        while let Some(hint) = m.take_prefixed("L2::") {
            policy |= hint == "L2::cache_hint";
        }
        let [to, from, Operand::Immediate(Immediate::Integer(size)), rest @ ..] = operands else {
            return self.error("`cp.async` takes two addresses and a size");
        };
        if !matches!((cache, size), ("ca", 4 | 8 | 16) | ("cg", 16)) {
            return self.error(format!("`cp.async.{cache}` copies 4, 8 or 16 bytes (`.cg` 16), not {size}"));
        }
        let rest = if policy { &rest[..rest.len().saturating_sub(1)] } else { rest };
        let (to, _) = self.address(to)?;
        let (from, _) = self.address(from)?;
        let (mut read, mut ignore) = (None, None);
        match rest {
            [] => {}
            [operand] if self.is_predicate(operand)? => ignore = Some(self.predicate(operand)?),
            [operand] => read = Some(self.source(operand, Class::Word)?),
            _ => return self.error("`cp.async` has an operand too many"),
        }
        let copy = CopyAsync { to, from, size: *size as u32, read, ignore };
        self.emit(Op::CopyAsync(Box::new(copy)))
    }

    fn is_predicate(&mut self, operand: &Operand<'a>) -> Result<bool, PtxError> {
        Ok(matches!(operand, Operand::Not(_))
            || matches!(self.any_register(operand)?, Some((Class::Predicate, _))))
    }
}
