#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod architectures;
mod compute;
mod load;

#[cfg(feature = "quantize")]
pub mod calibrate;
pub mod evaluate;
pub mod generate;
#[cfg(feature = "hub")]
pub mod hub;
pub mod model;
#[cfg(feature = "quantize")]
pub mod requantize;
pub mod sampler;
pub mod source;
pub mod speculate;
pub mod weight_types;

pub use compute::Compute;
pub use halfbyte_tokenizer as tokenizer;
#[cfg(feature = "quantize")]
pub use load::load_as;
pub use load::{
    DEFAULT_CONTEXT, Device, Drafting, Engine, LoadError, LoadOptions, Model, PromptError, SequenceOptions,
    load_tokenizer,
};
pub use model::Error;
