//! One kernel: its statements in order, with the functions it calls written out in place.
//!
//! A call becomes the callee's body with registers and labels of its own, its parameters bound to the caller's
//! `.param` variables, and `ret` a jump to the end. Recursion has no such form and is refused.

use std::collections::HashMap;

use super::Modifiers;
use super::compact::{Signature, compact};
use super::module::Context;
use super::operands::{Allocator, Binding, class_of};
use super::program::{Guard, Instruction, Op, Program};
use crate::exec::registers::Class;
use crate::module::PtxError;
use crate::ptx::{self, Declaration, Function, Operand, Statement};

/// Calls within calls.
const MAX_DEPTH: usize = 32;
/// Instructions of a kernel after its calls are written out.
const MAX_INSTRUCTIONS: usize = 1 << 22;
/// Bytes of local memory a thread.
const MAX_LOCAL: u64 = 1 << 20;

/// A kernel being decoded.
pub(super) struct Lowering<'m, 'a> {
    pub(super) module: &'m Context<'a>,
    pub(super) allocator: Allocator,
    pub(super) scopes: Vec<HashMap<&'a str, Binding>>,
    /// Offsets of the shared variables this kernel uses.
    pub(super) shared: HashMap<&'a str, u64>,
    labels: Vec<Labels<'a>>,
    frames: Vec<Frame<'a>>,
    instructions: Vec<Instruction>,
    signatures: Vec<Signature>,
    /// Which instructions are steps of a `mov`.
    moves: Vec<bool>,
    names: HashMap<&'a str, u32>,
    name_list: Vec<String>,
    local_bytes: u64,
    guard: Option<Guard>,
    /// The instruction being decoded is a `mov`.
    moving: bool,
    pub(super) line: u32,
    source: (u32, u32),
    /// The opcode of the instruction being decoded, until its first step takes it.
    pending_name: Option<u32>,
}

/// Labels of a scope, and jumps to labels not seen yet.
#[derive(Default)]
struct Labels<'a> {
    positions: HashMap<&'a str, u32>,
    tables: HashMap<&'a str, Vec<&'a str>>,
    /// The label before a `.branchtargets` is the table's name.
    last: &'a str,
    jumps: Vec<Jump<'a>>,
}

struct Jump<'a> {
    instruction: usize,
    /// Which target of a table; `None` for a plain branch.
    entry: Option<usize>,
    label: &'a str,
    line: u32,
}

/// A function being written out.
struct Frame<'a> {
    name: &'a str,
    /// Scopes outside its body.
    scope: usize,
    returns: Vec<usize>,
}

/// What a kernel was decoded to.
pub(super) struct Lowered {
    pub(super) program: Program,
    pub(super) local_bytes: u64,
}

/// Decodes a kernel. `shared` and `params` are where its variables lie.
pub(super) fn lower<'a>(
    module: &Context<'a>,
    function: &Function<'a>,
    shared: HashMap<&'a str, u64>,
    params: &[(&'a str, u64)],
) -> Result<Lowered, PtxError> {
    let mut lowering = Lowering {
        module,
        allocator: Allocator::new(),
        scopes: vec![HashMap::new()],
        shared,
        labels: Vec::new(),
        frames: Vec::new(),
        instructions: Vec::new(),
        signatures: Vec::new(),
        moves: Vec::new(),
        names: HashMap::new(),
        name_list: Vec::new(),
        local_bytes: 0,
        guard: None,
        moving: false,
        line: function.line,
        source: (0, 0),
        pending_name: None,
    };
    lowering.scopes[0].extend(params.iter().map(|&(name, offset)| (name, Binding::Param(offset))));
    lowering.write_out(function, HashMap::new())?;
    lowering.guard = None;
    lowering.emit(Op::Exit)?;
    let [words, doubles, predicates] = lowering.allocator.counts();
    let mut program = Program {
        instructions: lowering.instructions,
        words,
        doubles,
        predicates,
        constants: lowering.allocator.list,
        names: lowering.name_list,
        tracked: Vec::new(),
    };
    compact(&mut program, &lowering.signatures, &lowering.moves, &lowering.allocator.names);
    Ok(Lowered { program, local_bytes: lowering.local_bytes })
}

impl<'a> Lowering<'_, 'a> {
    /// Decodes the body of a function, whose parameters are bound by `bindings`.
    fn write_out(
        &mut self,
        function: &Function<'a>,
        bindings: HashMap<&'a str, Binding>,
    ) -> Result<(), PtxError> {
        let Some(body) = &function.body else {
            return self.error(format!("function `{}` has no body", function.name));
        };
        let body: &[Statement<'a>] = body;
        self.scopes.push(bindings);
        self.frames.push(Frame { name: function.name, scope: self.scopes.len(), returns: Vec::new() });
        self.open();
        for statement in body {
            self.statement(statement)?;
        }
        self.close()?;
        self.scopes.pop();
        let end = self.instructions.len() as u32;
        for at in self.frames.pop().map(|frame| frame.returns).unwrap_or_default() {
            self.instructions[at].op = Op::Branch(end);
        }
        Ok(())
    }

    fn open(&mut self) {
        self.scopes.push(HashMap::new());
        self.labels.push(Labels::default());
    }

    /// Ends a scope: jumps to its labels are resolved, the others are the outer scope's (but not the caller's).
    fn close(&mut self) -> Result<(), PtxError> {
        self.scopes.pop();
        let Some(labels) = self.labels.pop() else {
            return self.error("a closing brace too many");
        };
        let mut outer = Vec::new();
        for jump in labels.jumps {
            let Some(&position) = labels.positions.get(jump.label) else {
                outer.push(jump);
                continue;
            };
            match (&mut self.instructions[jump.instruction].op, jump.entry) {
                (Op::BranchTable(_, targets), Some(entry)) => targets[entry] = position,
                (op, _) => *op = Op::Branch(position),
            }
        }
        // A label can be defined in the function's outermost scope at the latest, whose depth is that of its frame.
        let functions_own = self.scopes.len() == self.scope_of_frame();
        match (outer.first(), self.labels.last_mut()) {
            (None, _) => Ok(()),
            (Some(_), Some(labels)) if !functions_own => {
                labels.jumps.append(&mut outer);
                Ok(())
            }
            (Some(jump), _) => Err(PtxError {
                line: jump.line,
                message: format!("`{}` is no label of this function", jump.label),
            }),
        }
    }

    fn scope_of_frame(&self) -> usize {
        self.frames.last().map_or(0, |frame| frame.scope)
    }

    fn statement(&mut self, statement: &Statement<'a>) -> Result<(), PtxError> {
        match statement {
            Statement::Open => self.open(),
            Statement::Close => return self.close(),
            Statement::Declare(declaration) => return self.declare(declaration),
            Statement::Label(name) => {
                let position = self.instructions.len() as u32;
                if let Some(labels) = self.labels.last_mut() {
                    labels.positions.insert(name, position);
                    labels.last = name;
                }
            }
            Statement::Targets(targets) => {
                if let Some(labels) = self.labels.last_mut() {
                    labels.tables.insert(labels.last, targets.clone());
                }
            }
            Statement::Location(file, line) => self.source = (*file, *line),
            Statement::Instruction(instruction) => return self.instruction(instruction),
        }
        Ok(())
    }

    fn declare(&mut self, declaration: &Declaration<'a>) -> Result<(), PtxError> {
        self.line = declaration.line;
        let binding = match declaration.space {
            "reg" => {
                let Some(class) = class_of(declaration.ty) else {
                    return self.error(format!("registers of type {:?} are not supported", declaration.ty));
                };
                let first = self.allocator.declare(declaration.count);
                Binding::Registers { class, first, count: declaration.count, numbered: declaration.numbered }
            }
            "shared" => match self.shared.get(declaration.name) {
                Some(&offset) => Binding::Shared(offset),
                None => return self.error(format!("`{}` has no place in shared memory", declaration.name)),
            },
            // `.param` in a body is storage for a call, which is the thread's own.
            _ => {
                let align = u64::from(declaration.align.max(1));
                let offset = self.local_bytes.next_multiple_of(align);
                self.local_bytes = offset + declaration.bytes();
                if self.local_bytes > MAX_LOCAL {
                    return self.error(format!("more than {MAX_LOCAL} bytes of local memory a thread"));
                }
                Binding::Local(offset)
            }
        };
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(declaration.name, binding);
        }
        Ok(())
    }

    fn instruction(&mut self, instruction: &ptx::Instruction<'a>) -> Result<(), PtxError> {
        self.line = instruction.line;
        self.guard = match instruction.guard {
            None => None,
            Some((name, negated)) => match self.register(name) {
                Some((Class::Predicate, predicate)) => Some(Guard { predicate, negated }),
                _ => return self.error(format!("guard `{name}` is not a predicate")),
            },
        };
        let next = self.name_list.len() as u32;
        let name = *self.names.entry(instruction.opcode).or_insert_with(|| {
            self.name_list.push(instruction.opcode.to_owned());
            next
        });
        self.pending_name = Some(name);
        let mut m = Modifiers::new(instruction.opcode);
        self.moving = m.opcode() == "mov";
        self.decode(&mut m, &instruction.operands)?;
        if let Some(unknown) = m.unknown() {
            return self.error(format!("unknown modifier `.{unknown}` of `{}`", instruction.opcode));
        }
        Ok(())
    }

    /// Appends a step of the current instruction.
    pub(super) fn emit(&mut self, op: Op) -> Result<(), PtxError> {
        self.emit_signed(op, None)
    }

    /// As [`Self::emit`], with the classes of an arithmetic step's registers.
    pub(super) fn emit_signed(&mut self, op: Op, signature: Signature) -> Result<(), PtxError> {
        if self.instructions.len() >= MAX_INSTRUCTIONS {
            return self.error(format!("a kernel of more than {MAX_INSTRUCTIONS} instructions"));
        }
        self.signatures.push(signature);
        self.moves.push(self.moving);
        self.instructions.push(Instruction {
            op,
            guard: self.guard,
            line: self.line,
            source: self.source,
            name: self.pending_name.take(),
            uses: None,
        });
        Ok(())
    }

    /// Appends a jump to a label.
    pub(super) fn emit_branch(&mut self, label: &'a str) -> Result<(), PtxError> {
        self.emit(Op::Branch(0))?;
        self.jump(label, None);
        Ok(())
    }

    /// Appends a jump to the label that `index` selects from a `.branchtargets` list.
    pub(super) fn emit_table(&mut self, index: u32, table: &'a str) -> Result<(), PtxError> {
        let Some(targets) = self.labels.iter().rev().find_map(|labels| labels.tables.get(table)).cloned()
        else {
            return self.error(format!("`{table}` is not a list of branch targets"));
        };
        self.emit(Op::BranchTable(index, vec![0; targets.len()].into()))?;
        for (entry, label) in targets.into_iter().enumerate() {
            self.jump(label, Some(entry));
        }
        Ok(())
    }

    fn jump(&mut self, label: &'a str, entry: Option<usize>) {
        let jump = Jump { instruction: self.instructions.len() - 1, entry, label, line: self.line };
        if let Some(labels) = self.labels.last_mut() {
            labels.jumps.push(jump);
        }
    }

    /// `ret`: the end of a kernel, or a jump to the end of a function that was written out.
    pub(super) fn emit_return(&mut self) -> Result<(), PtxError> {
        if self.frames.len() <= 1 {
            return self.emit(Op::Exit);
        }
        self.emit(Op::Branch(0))?;
        let at = self.instructions.len() - 1;
        if let Some(frame) = self.frames.last_mut() {
            frame.returns.push(at);
        }
        Ok(())
    }

    /// `call (results), function, (arguments)`.
    pub(super) fn emit_call(&mut self, operands: &[Operand<'a>]) -> Result<(), PtxError> {
        let (results, name, arguments): (&[Operand<'a>], _, &[Operand<'a>]) = match operands {
            [Operand::List(results), Operand::Name(name), Operand::List(arguments), ..] => {
                (results, name, arguments)
            }
            [Operand::List(results), Operand::Name(name)] => (results, name, &[]),
            [Operand::Name(name), Operand::List(arguments), ..] => (&[], name, arguments),
            [Operand::Name(name)] => (&[], name, &[]),
            _ => return self.error("operands of `call` are not results, a function and arguments"),
        };
        let module = self.module;
        let Some(&function) = module.functions.get(name.name) else {
            return self.error(format!("call of `{}`, which is no function of this text", name.name));
        };
        if function.body.is_none() {
            return self.emit(Op::Undefined(name.name.into()));
        }
        if self.frames.len() >= MAX_DEPTH || self.frames.iter().any(|frame| frame.name == function.name) {
            return self.error(format!("calls of `{}` nest too deep or are recursive", function.name));
        }
        let mut bindings = HashMap::new();
        for (formals, actuals) in [(&function.results, results), (&function.params, arguments)] {
            if formals.len() != actuals.len() {
                return self.error(format!(
                    "`{}` has {} parameters, got {}",
                    function.name,
                    formals.len(),
                    actuals.len()
                ));
            }
            for (formal, actual) in formals.iter().zip(actuals) {
                let bound = match actual {
                    Operand::Name(symbol) => self.lookup(symbol.name),
                    _ => None,
                };
                match bound {
                    Some(binding @ Binding::Local(_)) if formal.space == "param" => {
                        bindings.insert(formal.name, binding);
                    }
                    _ => return self.error(format!("argument {actual:?} is not a .param variable")),
                }
            }
        }
        // Lanes that do not call jump over the body.
        let guard = self.guard.take();
        let skip = self.instructions.len();
        if let Some(guard) = guard {
            self.guard = Some(Guard { negated: !guard.negated, ..guard });
            self.emit(Op::Branch(0))?;
            self.guard = None;
        } else {
            self.emit(Op::Nop)?;
        }
        let (line, source) = (self.line, self.source);
        self.write_out(function, bindings)?;
        (self.line, self.source) = (line, source);
        if guard.is_some() {
            let end = self.instructions.len() as u32;
            self.instructions[skip].op = Op::Branch(end);
        }
        Ok(())
    }
}
