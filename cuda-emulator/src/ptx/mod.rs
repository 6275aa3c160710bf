//! From PTX text to its syntax: tokens, declarations, statements. What the words mean is decided in `decode`.

mod body;
mod lexer;
mod parser;
mod syntax;

pub(crate) use parser::parse;
pub(crate) use syntax::{
    Declaration, Function, Immediate, Initial, Instruction, Operand, Source, Statement, Symbol, Type,
};
