#![doc = include_str!("../README.md")]
// Denied rather than forbidden for the sake of `gguf::map`, the one exception.
#![deny(unsafe_code)]

#[cfg(feature = "calibrate")]
pub mod calibrate;
pub mod chat;
pub mod embedded;
pub mod evaluate;
pub mod generate;
pub mod gguf;
#[cfg(feature = "hub")]
pub mod hub;
pub mod imatrix;
pub mod model;
pub mod requantize;
pub mod requests;
pub mod sampler;
#[cfg(feature = "serve")]
pub mod serve;
pub mod source;
pub mod speculate;
pub mod tokenizer;
