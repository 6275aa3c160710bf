//! Barriers, fences and what lanes of a warp do together.

use super::Modifiers;
use super::function::Lowering;
use super::program::{Barrier, BarrierKind, Match, Op, Reduce, Shuffle, ShuffleMode, Value, Vote, VoteMode};
use crate::exec::registers::{Class, SINK};
use crate::module::PtxError;
use crate::ptx::{Operand, Symbol, Type};

impl<'a> Lowering<'_, 'a> {
    pub(super) fn barrier(
        &mut self,
        m: &mut Modifiers<'a>,
        operands: &[Operand<'a>],
    ) -> Result<(), PtxError> {
        match m.opcode() {
            "membar" | "fence" => {
                while let Some(part) = m.take_prefixed("") {
                    let known = ["cta", "gl", "sys", "gpu", "cluster", "sc", "acq_rel", "acquire", "release"];
                    if !known.contains(&part) {
                        return self.unknown(m);
                    }
                }
                return self.emit(Op::Fence);
            }
            _ => {}
        }
        if m.take("warp") {
            if !m.take("sync") || operands.len() != 1 {
                return self.unknown(m);
            }
            let members = self.source(&operands[0], Class::Word)?;
            return self.emit(Op::WarpSync(members));
        }
        m.take("cta");
        // `bar` is `barrier.aligned`.
        let aligned = m.take("aligned") || m.opcode() == "bar";
        let Some(action) = m.take_any(&["sync", "arrive", "red"]) else {
            return self.unknown(m);
        };
        let mut rest = operands;
        let kind = match action {
            "sync" => BarrierKind::Sync,
            "arrive" => BarrierKind::Arrive,
            _ => {
                let ([result, middle @ .., predicate], Some(operation), Some(ty)) =
                    (operands, m.take_any(&["popc", "and", "or"]), m.last_type())
                else {
                    return self.unknown(m);
                };
                rest = middle;
                let (predicate, negated) = self.predicate(predicate)?;
                match (operation, ty) {
                    ("popc", Type::U32) => {
                        BarrierKind::Count { result: self.result(result, Class::Word)?, predicate, negated }
                    }
                    ("and", Type::Pred) => BarrierKind::All {
                        result: self.result(result, Class::Predicate)?,
                        predicate,
                        negated,
                    },
                    ("or", Type::Pred) => BarrierKind::Any {
                        result: self.result(result, Class::Predicate)?,
                        predicate,
                        negated,
                    },
                    _ => return self.unknown(m),
                }
            }
        };
        let (id, threads) = match rest {
            [id] => (self.source(id, Class::Word)?, None),
            [id, threads] => (self.source(id, Class::Word)?, Some(self.source(threads, Class::Word)?)),
            [] => (self.allocator.constant(Class::Word, Value::Bits(0)), None),
            _ => return self.error("a barrier takes its number and a thread count"),
        };
        if kind == BarrierKind::Arrive && threads.is_none() {
            return self.error("`arrive` needs a thread count");
        }
        self.emit(Op::Barrier(Box::new(Barrier { kind, id, threads, aligned })))
    }

    /// `a|p`, or `a` alone.
    fn pair(&mut self, operand: &Operand<'a>, first: Class) -> Result<(u32, u32), PtxError> {
        let name = |name| Operand::Name(Symbol { name, offset: 0 });
        match operand {
            Operand::Pair(a, p) => {
                Ok((self.result(&name(a), first)?, self.result(&name(p), Class::Predicate)?))
            }
            operand => Ok((self.result(operand, first)?, SINK)),
        }
    }

    pub(super) fn collective(
        &mut self,
        m: &mut Modifiers<'a>,
        operands: &[Operand<'a>],
    ) -> Result<(), PtxError> {
        if m.opcode() == "activemask" {
            let ([result], Some(Type::B32)) = (operands, m.last_type()) else {
                return self.unknown(m);
            };
            let result = self.result(result, Class::Word)?;
            return self.emit(Op::ActiveMask(result));
        }
        if !m.take("sync") {
            return self.unknown(m);
        }
        match (m.opcode(), operands) {
            ("shfl", [to, value, lane, clamp, members]) => {
                let mode = match m.take_any(&["up", "down", "bfly", "idx"]) {
                    Some("up") => ShuffleMode::Up,
                    Some("down") => ShuffleMode::Down,
                    Some("bfly") => ShuffleMode::Butterfly,
                    Some(_) => ShuffleMode::Index,
                    None => return self.unknown(m),
                };
                if m.last_type().map(Type::size) != Some(4) {
                    return self.unknown(m);
                }
                let (result, in_range) = self.pair(to, Class::Word)?;
                let shuffle = Shuffle {
                    mode,
                    result,
                    in_range,
                    value: self.source(value, Class::Word)?,
                    lane: self.source(lane, Class::Word)?,
                    clamp: self.source(clamp, Class::Word)?,
                    members: self.source(members, Class::Word)?,
                };
                self.emit(Op::Shuffle(Box::new(shuffle)))
            }
            ("vote", [to, predicate, members]) => {
                let (mode, ty) = match m.take_any(&["all", "any", "uni", "ballot"]) {
                    Some("all") => (VoteMode::All, Type::Pred),
                    Some("any") => (VoteMode::Any, Type::Pred),
                    Some("uni") => (VoteMode::Uniform, Type::Pred),
                    Some(_) => (VoteMode::Ballot, Type::B32),
                    None => return self.unknown(m),
                };
                if m.last_type() != Some(ty) {
                    return self.unknown(m);
                }
                let class = if mode == VoteMode::Ballot { Class::Word } else { Class::Predicate };
                let result = self.result(to, class)?;
                let (predicate, negated) = self.predicate(predicate)?;
                let members = self.source(members, Class::Word)?;
                self.emit(Op::Vote(Box::new(Vote { mode, result, predicate, negated, members })))
            }
            ("match", [to, value, members]) => {
                let Some(mode) = m.take_any(&["any", "all"]) else {
                    return self.unknown(m);
                };
                let class = match m.last_type() {
                    Some(Type::B32) => Class::Word,
                    Some(Type::B64) => Class::Double,
                    _ => return self.unknown(m),
                };
                let (result, agreed) = self.pair(to, Class::Word)?;
                let value = (class, self.source(value, class)?);
                let members = self.source(members, Class::Word)?;
                self.emit(Op::Match(Box::new(Match { all: mode == "all", result, agreed, value, members })))
            }
            ("redux", [to, value, members]) => {
                let combine: fn(u32, u32) -> u32 =
                    match (m.take_any(&["add", "min", "max", "and", "or", "xor"]), m.last_type()) {
                        (Some("add"), Some(Type::U32 | Type::S32)) => |a, b| a.wrapping_add(b),
                        (Some("min"), Some(Type::U32)) => |a, b| a.min(b),
                        (Some("max"), Some(Type::U32)) => |a, b| a.max(b),
                        (Some("min"), Some(Type::S32)) => |a, b| (a as i32).min(b as i32) as u32,
                        (Some("max"), Some(Type::S32)) => |a, b| (a as i32).max(b as i32) as u32,
                        (Some("and"), Some(Type::B32)) => |a, b| a & b,
                        (Some("or"), Some(Type::B32)) => |a, b| a | b,
                        (Some("xor"), Some(Type::B32)) => |a, b| a ^ b,
                        _ => return self.unknown(m),
                    };
                let result = self.result(to, Class::Word)?;
                let value = self.source(value, Class::Word)?;
                let members = self.source(members, Class::Word)?;
                self.emit(Op::Reduce(Box::new(Reduce { combine, result, value, members })))
            }
            ("elect", [to, members]) => {
                let (result, leader) = self.pair(to, Class::Word)?;
                let members = self.source(members, Class::Word)?;
                self.emit(Op::Elect { result, leader, members })
            }
            _ => self.unknown(m),
        }
    }
}
