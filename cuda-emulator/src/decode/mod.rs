//! From syntax to a program: registers become indices, labels become positions, opcodes become functions.

mod collective;
mod compact;
mod control;
mod copy;
mod function;
mod load_store;
mod matrix;
mod modifiers;
mod module;
mod operands;
pub(crate) mod program;

pub(crate) use modifiers::Modifiers;
pub(crate) use module::decode;
