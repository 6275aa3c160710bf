//! Matrix fragments: `mma`, `ldmatrix`, `stmatrix`, `movmatrix`.

use super::Modifiers;
use super::function::Lowering;
use super::program::{Element, LoadMatrix, Mma, Op};
use crate::exec::registers::Class;
use crate::module::PtxError;
use crate::ptx::{Operand, Type};

impl<'a> Lowering<'_, 'a> {
    pub(super) fn matrix(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Result<(), PtxError> {
        if !m.take("sync") || !m.take("aligned") {
            return self.unknown(m);
        }
        match m.opcode() {
            "mma" => self.mma(m, operands),
            "movmatrix" => {
                let ([to, from], true, true, Some(Type::B16)) =
                    (operands, m.take("m8n8"), m.take("trans"), m.last_type())
                else {
                    return self.unknown(m);
                };
                let result = self.result(to, Class::Word)?;
                let source = self.source(from, Class::Word)?;
                self.emit(Op::TransposeMatrix { result, source })
            }
            opcode => {
                let store = opcode == "stmatrix";
                let count = match (m.take("m8n8"), m.take_any(&["x1", "x2", "x4"])) {
                    (true, Some("x1")) => 1,
                    (true, Some("x2")) => 2,
                    (true, Some(_)) => 4,
                    _ => return self.unknown(m),
                };
                let transposed = m.take("trans");
                let ([first, second], Some(Type::B16)) = (operands, m.last_type()) else {
                    return self.unknown(m);
                };
                let (memory, data) = if store { (first, second) } else { (second, first) };
                let (address, generic) = self.shared_address(m, memory)?;
                let registers = self.fragment(data, store)?;
                if registers.len() != count {
                    return self.error(format!("expected {count} registers, got {}", registers.len()));
                }
                let access = Box::new(LoadMatrix { address, generic, transposed, registers });
                self.emit(if store { Op::StoreMatrix(access) } else { Op::LoadMatrix(access) })
            }
        }
    }

    fn mma(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Result<(), PtxError> {
        let k = match m.take_prefixed("m16n8k") {
            Some("m16n8k4") => 4,
            Some("m16n8k8") => 8,
            Some("m16n8k16") => 16,
            Some("m16n8k32") => 32,
            Some("m16n8k64") => 64,
            _ => return self.unknown(m),
        };
        if !m.take("row") || !m.take("col") {
            return self.unknown(m);
        }
        let saturate = m.take("satfinite");
        let types = (m.take_type(), m.take_type(), m.take_type(), m.take_type());
        let (Some(d), Some(a), Some(b), Some(c)) = types else {
            return self.unknown(m);
        };
        let (Some(a_type), Some(b_type)) = (element(a), element(b)) else {
            return self.unknown(m);
        };
        use Element::{Bf16, F16, S4, S8, Tf32, U4, U8};
        let half_sum = d == Type::F16;
        let known = match (a_type, b_type) {
            (F16, F16) => matches!(k, 8 | 16) && d == c && matches!(d, Type::F16 | Type::F32),
            (Bf16, Bf16) => matches!(k, 8 | 16) && (d, c) == (Type::F32, Type::F32),
            (Tf32, Tf32) => matches!(k, 4 | 8) && (d, c) == (Type::F32, Type::F32),
            (S8 | U8, S8 | U8) => matches!(k, 16 | 32) && (d, c) == (Type::S32, Type::S32),
            (S4 | U4, S4 | U4) => matches!(k, 32 | 64) && (d, c) == (Type::S32, Type::S32),
            _ => false,
        };
        let integer = d == Type::S32;
        let ([to, x, y, z], true, true) = (operands, known, integer || !saturate) else {
            return self.unknown(m);
        };
        let bits = match a_type {
            Tf32 => 32,
            F16 | Bf16 => 16,
            S8 | U8 => 8,
            S4 | U4 => 4,
        };
        let mma = Mma {
            k,
            a_type,
            b_type,
            half_sum,
            saturate,
            result: self.fragment(to, false)?,
            a: self.fragment(x, true)?,
            b: self.fragment(y, true)?,
            c: self.fragment(z, true)?,
        };
        let sums = if half_sum { 2 } else { 4 };
        let lengths =
            [(&mma.result, sums), (&mma.a, k * bits / 64), (&mma.b, k * bits / 128), (&mma.c, sums)];
        for (registers, expected) in lengths {
            if registers.len() != expected {
                return self
                    .error(format!("expected a fragment of {expected} registers, got {}", registers.len()));
            }
        }
        self.emit(Op::Mma(Box::new(mma)))
    }

    /// The word registers of a fragment.
    fn fragment(&mut self, operand: &Operand<'a>, read: bool) -> Result<Vec<u32>, PtxError> {
        let parts = match operand {
            Operand::Vector(parts) => parts.as_slice(),
            single => std::slice::from_ref(single),
        };
        parts
            .iter()
            .map(|part| if read { self.source(part, Class::Word) } else { self.result(part, Class::Word) })
            .collect()
    }
}

fn element(ty: Type) -> Option<Element> {
    Some(match ty {
        Type::F16 => Element::F16,
        Type::BF16 => Element::Bf16,
        Type::TF32 => Element::Tf32,
        Type::S8 => Element::S8,
        Type::U8 => Element::U8,
        Type::S4 => Element::S4,
        Type::U4 => Element::U4,
        _ => return None,
    })
}
