//! examples
// Denied rather than forbidden for the sake of `gguf::map`, the one exception.
#![deny(unsafe_code)]

pub mod embedded;
pub mod generate;
pub mod gguf;
pub mod tokenizer;
pub mod model;
pub mod chat;
pub mod sampler;
