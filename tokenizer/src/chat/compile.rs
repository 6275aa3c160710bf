//! Compiles a template so that every operation that makes something is charged first.
//!
//! minijinja compiles a template to instructions for a stack machine. The filters of [`operators`](super::operators)
//! check the operands of an instruction. Before an instruction that takes `n` operands from the stack, this puts
//!
//! ```text
//! ApplyFilter("!add", n)    takes the operands, charges, leaves them in a list
//! UnpackList(n)             puts them back on the stack
//! ```
//!
//! The names of these filters begin with `!`, which no name in a template can. Jumps are moved to where their targets
//! have gone. Text between statements becomes a value that is emitted, since only values pass through the formatter.
//!
//! minijinja computes constant expressions when it compiles, so `'a' * 100000000` takes memory before anything runs.
//! [`constants`](super::constants) refuses those that are large.

use std::collections::BTreeMap;

use minijinja::Error;
use minijinja::machinery::{CodeGenerator, Instruction, Instructions, WhitespaceConfig, parse};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;

use super::constants;

/// A template that is ready to run.
pub(super) struct Program<'a> {
    pub(super) main: Instructions<'a>,
    pub(super) blocks: BTreeMap<&'a str, Instructions<'a>>,
}

/// Compiles `source`, which messages call `name`.
///
/// # Errors
/// What is wrong with the template, with the line.
pub(super) fn compile<'a>(name: &'a str, source: &'a str) -> Result<Program<'a>, Error> {
    constants::check_nesting(source, name)?;
    let whitespace =
        WhitespaceConfig { keep_trailing_newline: false, lstrip_blocks: true, trim_blocks: true };
    let template = parse(source, name, SyntaxConfig, whitespace)?;
    constants::check(&template)?;
    let mut generator = CodeGenerator::new(name, source);
    generator.compile_stmt(&template);
    let (main, blocks) = generator.finish();
    let blocks = blocks.iter().map(|(name, block)| (*name, metered(block))).collect();
    Ok(Program { main: metered(&main), blocks })
}

/// The instructions with those that charge for them.
fn metered<'a>(old: &Instructions<'a>) -> Instructions<'a> {
    let all = (0..).map_while(|at| old.get(at));
    let mut moved = vec![0_u32];
    for instruction in all.clone() {
        let next = moved[moved.len() - 1] + expand(instruction).len() as u32;
        moved.push(next);
    }
    let mut new = Instructions::new(old.name(), old.source());
    for (at, instruction) in (0_u32..).zip(all) {
        let line = old.get_line(at).and_then(|line| u16::try_from(line).ok()).unwrap_or(0);
        for mut instruction in expand(instruction) {
            if let Some(target) = target(&mut instruction) {
                *target = moved[*target as usize];
            }
            new.add_with_line(instruction, line);
        }
    }
    new
}

/// Where an instruction may go instead of to the next.
fn target<'i>(instruction: &'i mut Instruction<'_>) -> Option<&'i mut u32> {
    match instruction {
        Instruction::Iterate(target)
        | Instruction::Jump(target)
        | Instruction::JumpIfFalse(target)
        | Instruction::JumpIfFalseOrPop(target)
        | Instruction::JumpIfTrueOrPop(target)
        | Instruction::BuildMacro(_, target, _) => Some(target),
        _ => None,
    }
}

/// An instruction with what goes before and after it.
fn expand<'a>(instruction: &Instruction<'a>) -> Vec<Instruction<'a>> {
    use Instruction as I;
    let before = |filter, operands: usize| checked(filter, operands, instruction.clone());
    match instruction {
        I::EmitRaw(text) => vec![I::LoadConst(Value::from(*text)), I::Emit],
        I::Add => with(before("!add", 2), apply("!materialize", 1)),
        I::Mul => with(before("!mul", 2), apply("!materialize", 1)),
        I::Slice => with(before("!slice", 4), apply("!materialize", 1)),
        I::StringConcat => before("!concat", 2),
        I::Eq | I::Ne | I::Gt | I::Gte | I::Lt | I::Lte | I::In | I::CompareAndPreserve(_) => {
            before("!compare", 2)
        }
        I::PerformTest(_, Some(2), _) => before("!compare", 2),
        I::SetAttr(_) => before("!store", 2),
        I::UnpackLists(n) | I::MergeKwargs(n) => before("!items", *n),
        I::BuildList(_) | I::BuildMap(_) => vec![instruction.clone(), apply("!built", 1)],
        I::PushLoop(_) => vec![apply("!loop", 1), instruction.clone()],
        _ => vec![instruction.clone()],
    }
}

/// `instruction` behind a check of its operands.
fn checked<'a>(filter: &'static str, operands: usize, instruction: Instruction<'a>) -> Vec<Instruction<'a>> {
    match u16::try_from(operands) {
        Ok(0) => vec![instruction],
        Ok(n) => vec![apply(filter, n), Instruction::UnpackList(operands), instruction],
        // No call of 256 KiB of template has so many.
        Err(_) => vec![apply("!refused", 1)],
    }
}

fn with<'a>(mut instructions: Vec<Instruction<'a>>, last: Instruction<'a>) -> Vec<Instruction<'a>> {
    instructions.push(last);
    instructions
}

/// Calls a filter that is looked up by name each time.
fn apply<'a>(filter: &'static str, operands: u16) -> Instruction<'a> {
    const NOT_CACHED: u8 = !0;
    Instruction::ApplyFilter(filter, Some(operands), NOT_CACHED)
}
