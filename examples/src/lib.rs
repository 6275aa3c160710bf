#![doc = include_str!("../README.md")]
// Denied rather than forbidden for the sake of `gguf::map`, the one exception.
#![deny(unsafe_code)]

pub mod calibrate;
pub mod chat;
pub mod embedded;
pub mod evaluate;
pub mod generate;
pub mod gguf;
pub mod imatrix;
pub mod model;
pub mod requantize;
pub mod sampler;
pub mod serve;
pub mod source;
pub mod speculate;
pub mod tokenizer;
