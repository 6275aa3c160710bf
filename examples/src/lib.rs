//! examples
// Denied rather than forbidden for the sake of `gguf::map`, the one exception.
#![deny(unsafe_code)]

pub mod gguf;
pub mod tokenizer;
