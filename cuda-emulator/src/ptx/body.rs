//! A function's body: declarations, labels, instructions and their operands.

use super::parser::{Parser, number};
use super::syntax::{Immediate, Instruction, Operand, Statement, Symbol};
use crate::module::PtxError;

impl<'a> Parser<'a> {
    /// Statements up to the brace that closes the body; its opening one was read.
    pub(super) fn body(&mut self) -> Result<Vec<Statement<'a>>, PtxError> {
        let mut statements = Vec::new();
        let mut depth = 1;
        loop {
            match self.peek() {
                "{" => {
                    self.next()?;
                    depth += 1;
                    statements.push(Statement::Open);
                }
                "}" => {
                    self.next()?;
                    depth -= 1;
                    if depth == 0 {
                        return Ok(statements);
                    }
                    statements.push(Statement::Close);
                }
                ";" => {
                    self.next()?;
                }
                _ => self.statement(&mut statements)?,
            }
        }
    }

    fn statement(&mut self, statements: &mut Vec<Statement<'a>>) -> Result<(), PtxError> {
        let space = match self.peek() {
            ".reg" => "reg",
            ".shared" => "shared",
            ".local" => "local",
            ".param" => "param",
            ".loc" => return self.location(statements),
            ".pragma" => {
                while !self.eat(";") {
                    self.next()?;
                }
                return Ok(());
            }
            ".branchtargets" => {
                self.next()?;
                let mut targets = vec![self.name()?];
                while self.eat(",") {
                    targets.push(self.name()?);
                }
                self.expect(";")?;
                statements.push(Statement::Targets(targets));
                return Ok(());
            }
            word if word.starts_with('.') => return self.error(format!("unknown directive `{word}`")),
            _ => {
                if self.peek_at(1) == ":" {
                    statements.push(Statement::Label(self.name()?));
                    return self.expect(":");
                }
                let instruction = self.instruction()?;
                statements.push(Statement::Instruction(instruction));
                return Ok(());
            }
        };
        self.next()?;
        let mut declarations = Vec::new();
        self.variables(space, &mut declarations)?;
        statements.extend(declarations.into_iter().map(Statement::Declare));
        Ok(())
    }

    /// `.loc file line column[, function_name name[+n], inlined_at file line column]`.
    fn location(&mut self, statements: &mut Vec<Statement<'a>>) -> Result<(), PtxError> {
        self.next()?;
        let (file, line) = (self.integer()?, self.integer()?);
        self.integer()?;
        while self.eat(",") {
            match self.next()? {
                "function_name" => {
                    self.name()?;
                    self.offset()?;
                }
                "inlined_at" => {
                    for _ in 0..3 {
                        self.integer()?;
                    }
                }
                other => return self.error(format!("unknown attribute `{other}` of .loc")),
            }
        }
        // Line 0 marks code of the compiler's own: what stood before is the better answer.
        if line != 0 {
            statements.push(Statement::Location(file as u32, line as u32));
        }
        Ok(())
    }

    fn instruction(&mut self) -> Result<Instruction<'a>, PtxError> {
        let line = self.line();
        let mut guard = None;
        if self.eat("@") {
            let negated = self.eat("!");
            guard = Some((self.name()?, negated));
        }
        let opcode = self.name()?;
        let mut operands = Vec::new();
        while !self.eat(";") {
            let operand = self.operand().and_then(|operand| {
                if self.eat(",") || self.peek() == ";" {
                    Ok(operand)
                } else {
                    self.error("expected `,` or `;`")
                }
            });
            // An operand of a kind that no instruction here has: it is the instruction that is not known.
            operands.push(operand.map_err(|error| PtxError {
                message: format!("operands of `{opcode}`: {}", error.message),
                ..error
            })?);
        }
        Ok(Instruction { line, guard, opcode, operands })
    }

    fn operand(&mut self) -> Result<Operand<'a>, PtxError> {
        match self.peek() {
            "{" => {
                self.next()?;
                Ok(Operand::Vector(self.simple_operands("}")?))
            }
            "(" => {
                self.next()?;
                Ok(Operand::List(self.simple_operands(")")?))
            }
            "[" => {
                self.next()?;
                let operand = if number(self.peek()).is_some() {
                    Operand::Absolute(self.integer()?)
                } else {
                    let name = self.name()?;
                    Operand::Memory(Symbol { name, offset: self.offset()? })
                };
                self.expect("]")?;
                Ok(operand)
            }
            _ => self.simple_operand(),
        }
    }

    fn simple_operands(&mut self, close: &str) -> Result<Vec<Operand<'a>>, PtxError> {
        let mut operands = Vec::new();
        while !self.eat(close) {
            operands.push(self.simple_operand()?);
            if !self.eat(",") {
                self.expect(close)?;
                break;
            }
        }
        Ok(operands)
    }

    fn simple_operand(&mut self) -> Result<Operand<'a>, PtxError> {
        let text = self.peek();
        if text == "!" {
            self.next()?;
            return Ok(Operand::Not(self.name()?));
        }
        if text == "-" || number(text).is_some() {
            return Ok(Operand::Immediate(self.immediate()?));
        }
        if text == "WARP_SZ" {
            self.next()?;
            return Ok(Operand::Immediate(Immediate::Integer(32)));
        }
        let name = self.name()?;
        if self.eat("|") {
            return Ok(Operand::Pair(name, self.name()?));
        }
        if name == "_" {
            return Ok(Operand::Sink);
        }
        Ok(Operand::Name(Symbol { name, offset: self.offset()? }))
    }
}
