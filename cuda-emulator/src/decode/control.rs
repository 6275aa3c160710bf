//! Which family decodes an opcode; control flow; and arithmetic that takes more than one step.

use super::Modifiers;
use super::function::Lowering;
use super::program::{Op, Value};
use crate::alu::{self, Alu, Operands};
use crate::exec::registers::{CARRY, Class, SINK};
use crate::exec::windows;
use crate::module::PtxError;
use crate::ptx::{Operand, Symbol, Type};

impl<'a> Lowering<'_, 'a> {
    /// Decodes one instruction into its steps.
    pub(super) fn decode(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Result<(), PtxError> {
        match m.opcode() {
            "bra" => {
                m.take("uni");
                let [Operand::Name(Symbol { name, offset: 0 })] = operands else {
                    return self.error("`bra` takes one label");
                };
                self.emit_branch(name)
            }
            "brx" if m.take("idx") => {
                m.take("uni");
                let [index, Operand::Name(table)] = operands else {
                    return self.error("`brx.idx` takes an index and a table");
                };
                let index = self.source(index, Class::Word)?;
                self.emit_table(index, table.name)
            }
            "call" => {
                m.take("uni");
                self.emit_call(operands)
            }
            "ret" => {
                m.take("uni");
                self.emit_return()
            }
            "exit" => self.emit(Op::Exit),
            "trap" => self.emit(Op::Trap),
            // Hints about timing, caches and debuggers.
            // `griddepcontrol`: a launch begins when the one before it has ended.
            "nanosleep" | "prefetch" | "prefetchu" | "applypriority" | "discard" | "pmevent" | "brkpt"
            | "griddepcontrol" => {
                while let Some(part) = m.take_prefixed("") {
                    if part == "bulk" || part == "tensor" {
                        return self.error(format!("unknown opcode `{}.{part}`", m.opcode()));
                    }
                }
                self.emit(Op::Nop)
            }
            // A cache policy is a number that nothing reads.
            "createpolicy" => {
                while m.take_prefixed("").is_some() {}
                let Some(to) = operands.first() else {
                    return self.error("`createpolicy` takes a result");
                };
                let to = self.result(to, Class::Double)?;
                let none = self.constant(Class::Double, 0);
                self.step(alu::lanes!(|a: u64| -> u64 { a }), &[to, none])
            }
            "ld" | "ldu" | "st" => self.load_store(m, operands),
            "atom" | "red" => self.atomic(m, operands),
            "cvta" => self.convert_address(m, operands),
            "isspacep" => self.is_space(m, operands),
            "bar" | "barrier" | "membar" | "fence" => self.barrier(m, operands),
            "shfl" | "vote" | "match" | "redux" | "elect" | "activemask" => self.collective(m, operands),
            "ldmatrix" | "stmatrix" | "movmatrix" | "mma" => self.matrix(m, operands),
            "cp" => self.copy_async(m, operands),
            "mov" => self.mov(m, operands),
            "setp" => self.set_predicate(m, operands),
            "set" => self.set_value(m, operands),
            "cvt" => self.convert(m, operands),
            _ => {
                let Some(alu) = alu::decode(m) else {
                    return self.unknown(m);
                };
                self.arithmetic(alu, operands)
            }
        }
    }

    /// The error for an opcode, or a combination of modifiers, that nothing here executes.
    pub(super) fn unknown<T>(&self, m: &Modifiers<'a>) -> Result<T, PtxError> {
        self.error(format!("unknown opcode or modifiers: `{}`", m.text()))
    }

    /// One lane-by-lane step with operands as PTX writes them.
    pub(super) fn arithmetic(&mut self, alu: Alu, operands: &[Operand<'a>]) -> Result<(), PtxError> {
        let results = alu.results.len() - usize::from(alu.carry_out || alu.carry_in);
        let sources = alu.sources.len() - usize::from(alu.carry_in);
        if operands.len() != results + sources {
            return self.error(format!("expected {} operands, got {}", results + sources, operands.len()));
        }
        let mut indices = Vec::with_capacity(8);
        for (operand, &class) in operands.iter().zip(&alu.results[..results]) {
            indices.push(self.result(operand, class)?);
        }
        if alu.carry_out || alu.carry_in {
            indices.push(if alu.carry_out { CARRY } else { SINK });
        }
        for (operand, &class) in operands[results..].iter().zip(alu.sources) {
            indices.push(self.source(operand, class)?);
        }
        if alu.carry_in {
            indices.push(CARRY);
        }
        self.step(alu, &indices)
    }

    /// One lane-by-lane step on registers.
    pub(super) fn step(&mut self, alu: Alu, indices: &[u32]) -> Result<(), PtxError> {
        let mut operands: Operands = [0; 8];
        operands[..indices.len()].copy_from_slice(indices);
        self.emit_signed(Op::Alu { run: alu.run, operands }, Some((alu.results, alu.sources)))
    }

    /// A constant register.
    fn constant(&mut self, class: Class, bits: u64) -> u32 {
        self.allocator.constant(class, Value::Bits(bits))
    }

    fn mov(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Result<(), PtxError> {
        let [to, from] = operands else {
            return self.error("`mov` takes two operands");
        };
        let Some(ty) = m.last_type() else {
            return self.unknown(m);
        };
        match (to, from) {
            (Operand::Vector(parts), from) => {
                let Some(alu) = alu::unpack(ty.size(), parts.len()) else {
                    return self.unknown(m);
                };
                let mut all = parts.clone();
                all.push(from.clone());
                self.arithmetic(alu, &all)
            }
            (to, Operand::Vector(parts)) => {
                let Some(alu) = alu::pack(ty.size(), parts.len()) else {
                    return self.unknown(m);
                };
                let mut all = vec![to.clone()];
                all.extend(parts.iter().cloned());
                self.arithmetic(alu, &all)
            }
            (to, Operand::Name(Symbol { name: "%clock" | "%clock_hi", offset: 0 })) => {
                let result = self.result(to, Class::Word)?;
                self.emit(Op::Clock { result, class: Class::Word })
            }
            (to, Operand::Name(Symbol { name: "%clock64" | "%globaltimer", offset: 0 })) => {
                let result = self.result(to, Class::Double)?;
                self.emit(Op::Clock { result, class: Class::Double })
            }
            _ => match alu::decode(m) {
                Some(alu) => self.arithmetic(alu, operands),
                None => self.unknown(m),
            },
        }
    }

    /// `setp.cmp[.bool].type p[|q], a, b[, [!]c]`: `p = (a cmp b) bool c`, `q = !(a cmp b) bool c`.
    fn set_predicate(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Result<(), PtxError> {
        let combine = m.take_any(&["and", "or", "xor"]);
        let Some(alu) = alu::decode(m) else {
            return self.unknown(m);
        };
        let (Some(to), 3 | 4) = (operands.first(), operands.len()) else {
            return self.error("`setp` takes a result and two or three operands");
        };
        let (p, q) = match to {
            Operand::Pair(p, q) => {
                let name = |name| Operand::Name(Symbol { name, offset: 0 });
                let p = self.result(&name(p), Class::Predicate)?;
                (p, Some(self.result(&name(q), Class::Predicate)?))
            }
            to => (self.result(to, Class::Predicate)?, None),
        };
        let a = self.source(&operands[1], alu.sources[0])?;
        let b = self.source(&operands[2], alu.sources[1])?;
        let c = match (operands.get(3), combine) {
            (Some(operand), Some(_)) => Some(self.plain_predicate(operand)?),
            (None, None) => None,
            _ => {
                return self
                    .error("`setp` combines with a predicate exactly when it names `.and`, `.or` or `.xor`");
            }
        };
        if q.is_none() && c.is_none() {
            return self.step(alu, &[p, a, b]);
        }
        let compared = self.allocator.fresh(Class::Predicate);
        self.step(alu, &[compared, a, b])?;
        let one = match q {
            None => p,
            Some(_) => self.allocator.fresh(Class::Predicate),
        };
        self.combined(combine, one, compared, c)?;
        if let Some(q) = q {
            let opposite = self.allocator.fresh(Class::Predicate);
            self.step(alu::lanes!(|a: bool| -> bool { !a }), &[opposite, compared])?;
            self.combined(combine, q, opposite, c)?;
            self.step(alu::lanes!(|a: bool| -> bool { a }), &[p, one])?;
        }
        Ok(())
    }

    fn combined(
        &mut self,
        combine: Option<&str>,
        to: u32,
        compared: u32,
        c: Option<u32>,
    ) -> Result<(), PtxError> {
        let alu = match combine {
            None => alu::lanes!(|a: bool, _b: bool| -> bool { a }),
            Some("and") => alu::lanes!(|a: bool, b: bool| -> bool { a & b }),
            Some("or") => alu::lanes!(|a: bool, b: bool| -> bool { a | b }),
            Some(_) => alu::lanes!(|a: bool, b: bool| -> bool { a ^ b }),
        };
        self.step(alu, &[to, compared, c.unwrap_or(SINK)])
    }

    /// A predicate register with the negation of the operand already applied.
    fn plain_predicate(&mut self, operand: &Operand<'a>) -> Result<u32, PtxError> {
        let (predicate, negated) = self.predicate(operand)?;
        if !negated {
            return Ok(predicate);
        }
        let opposite = self.allocator.fresh(Class::Predicate);
        self.step(alu::lanes!(|a: bool| -> bool { !a }), &[opposite, predicate])?;
        Ok(opposite)
    }

    /// `set.cmp[.bool].to.from d, a, b[, c]`: all ones (1.0 as a float) or zero.
    fn set_value(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Result<(), PtxError> {
        let combine = m.take_any(&["and", "or", "xor"]);
        let Some(alu) = alu::decode(m) else {
            return self.unknown(m);
        };
        let (class, yes) = match m.take_type() {
            Some(Type::U32 | Type::S32) => (Class::Word, u64::from(u32::MAX)),
            Some(Type::U16 | Type::S16) => (Class::Half, u64::from(u16::MAX)),
            Some(Type::F32) => (Class::Word, u64::from(1f32.to_bits())),
            Some(Type::F16) => (Class::Half, 0x3c00),
            Some(Type::BF16) => (Class::Half, 0x3f80),
            Some(Type::F16x2) => (Class::Word, 0x3c00_3c00),
            Some(Type::BF16x2) => (Class::Word, 0x3f80_3f80),
            _ => return self.unknown(m),
        };
        let (Some(to), 3 | 4) = (operands.first(), operands.len()) else {
            return self.error("`set` takes a result and two or three operands");
        };
        let to = self.result(to, class)?;
        if alu.results[0] == Class::Word {
            // Pairs compare to a mask of each half.
            if combine.is_some() || operands.len() == 4 {
                return self.unknown(m);
            }
            let a = self.source(&operands[1], Class::Word)?;
            let b = self.source(&operands[2], Class::Word)?;
            let compared = self.allocator.fresh(Class::Word);
            self.step(alu, &[compared, a, b])?;
            let yes = self.constant(Class::Word, yes);
            return self.step(alu::lanes!(|a: u32, b: u32| -> u32 { a & b }), &[to, compared, yes]);
        }
        let a = self.source(&operands[1], alu.sources[0])?;
        let b = self.source(&operands[2], alu.sources[1])?;
        let c = match operands.get(3) {
            Some(operand) => Some(self.plain_predicate(operand)?),
            None => None,
        };
        let compared = self.allocator.fresh(Class::Predicate);
        self.step(alu, &[compared, a, b])?;
        let answer = self.allocator.fresh(Class::Predicate);
        self.combined(combine, answer, compared, c)?;
        let (yes, no) = (self.constant(class, yes), self.constant(class, 0));
        self.step(
            alu::lanes!(|a: u32, b: u32, p: bool| -> u32 { if p { a } else { b } }),
            &[to, yes, no, answer],
        )
    }

    /// `cvt`, whose registers may be wider than its types.
    fn convert(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Result<(), PtxError> {
        let signed = m.clone().take_type().is_some_and(Type::signed);
        let Some(alu) = alu::decode(m) else {
            return self.unknown(m);
        };
        if operands.len() != 1 + alu.sources.len() {
            return self.error(format!(
                "expected {} operands, got {}",
                1 + alu.sources.len(),
                operands.len()
            ));
        }
        let mut indices = vec![SINK];
        for (operand, &class) in operands[1..].iter().zip(alu.sources) {
            let index = match (self.any_register(operand)?, class) {
                (Some((Class::Double, wide)), Class::Half | Class::Word) => {
                    let narrow = self.allocator.fresh(class);
                    self.step(alu::lanes!(|a: u64| -> u32 { a as u32 }), &[narrow, wide])?;
                    narrow
                }
                // The low bits of a word are where a half lies.
                (Some((Class::Word, index)), Class::Half) => index,
                _ => self.source(operand, class)?,
            };
            indices.push(index);
        }
        let made = alu.results[0];
        let extend = match (self.any_register(&operands[0])?, made) {
            (Some((Class::Word, to)), Class::Half) if signed => {
                Some((alu::lanes!(|a: i16| -> i32 { a.into() }), to))
            }
            (Some((Class::Word, to)), Class::Half) => Some((alu::lanes!(|a: u16| -> u32 { a.into() }), to)),
            (Some((Class::Double, to)), Class::Half) if signed => {
                Some((alu::lanes!(|a: i16| -> i64 { a.into() }), to))
            }
            (Some((Class::Double, to)), Class::Half) => Some((alu::lanes!(|a: u16| -> u64 { a.into() }), to)),
            (Some((Class::Double, to)), Class::Word) if signed => {
                Some((alu::lanes!(|a: i32| -> i64 { a.into() }), to))
            }
            (Some((Class::Double, to)), Class::Word) => Some((alu::lanes!(|a: u32| -> u64 { a.into() }), to)),
            _ => None,
        };
        let Some((widen, to)) = extend else {
            indices[0] = self.result(&operands[0], made)?;
            return self.step(alu, &indices);
        };
        indices[0] = self.allocator.fresh(made);
        self.step(alu, &indices)?;
        self.step(widen, &[to, indices[0]])
    }

    /// `cvta[.to].space`: generic addresses of shared, local and parameter memory lie in windows of their own;
    /// those of global and constant memory are the addresses themselves.
    fn convert_address(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Result<(), PtxError> {
        let to_space = m.take("to");
        let Some(space) =
            m.take_any(&["global", "const", "shared", "shared::cta", "local", "param", "param::entry"])
        else {
            return self.unknown(m);
        };
        if m.last_type().map(Type::size) != Some(8) {
            return self.error("addresses are 64 bits wide here");
        }
        let window = match space {
            "shared" | "shared::cta" => windows::SHARED,
            "local" => windows::LOCAL,
            "param" | "param::entry" => windows::PARAM,
            _ => 0,
        };
        let amount = if to_space { window.wrapping_neg() } else { window };
        let [to, from] = operands else {
            return self.error("`cvta` takes two operands");
        };
        let to = self.result(to, Class::Double)?;
        let from = self.source(from, Class::Double)?;
        let amount = self.constant(Class::Double, amount);
        self.step(alu::lanes!(|a: u64, b: u64| -> u64 { a.wrapping_add(b) }), &[to, from, amount])
    }

    fn is_space(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Result<(), PtxError> {
        let alu =
            match m.take_any(&["global", "const", "shared", "shared::cta", "local", "param", "param::entry"])
            {
                Some("shared" | "shared::cta") => {
                    alu::lanes!(|a: u64| -> bool { a >> 32 == windows::SHARED >> 32 })
                }
                Some("local") => alu::lanes!(|a: u64| -> bool { a >> 32 == windows::LOCAL >> 32 }),
                Some("param" | "param::entry") => {
                    alu::lanes!(|a: u64| -> bool { a >> 32 == windows::PARAM >> 32 })
                }
                Some("global") => alu::lanes!(|a: u64| -> bool { a >> 34 != windows::SHARED >> 34 }),
                _ => return self.unknown(m),
            };
        self.arithmetic(alu, operands)
    }
}
