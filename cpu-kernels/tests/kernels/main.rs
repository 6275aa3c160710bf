//! Every kernel on every path that this machine has: against its f64 twin in `reference`, bit for bit against the
//! scalar path, and at the edges that went wrong elsewhere.

#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

mod float;
mod formats;
mod ggml;
mod int8;
mod isa;
mod matrix;
mod mixture;
mod packed;
mod recurrent;
mod refusals;
mod rows;
mod support;
