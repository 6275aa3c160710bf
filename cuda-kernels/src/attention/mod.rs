//! Attention on the tensor cores, over KV caches in bf16 and e4m3.
//!
//! [`prefill`] serves prompts, [`decode`] a few rows over many positions. They share one definition, [`Problem`], and one
//! body of arithmetic (`kernels/common/attention.cuh`). The gradients are in [`training::attention`](crate::training::attention).

mod cache;
mod decode;
mod prefill;
mod problem;

pub use cache::{DeviceKvCache, KvFormat, KvLayout, KvStorage};
pub use decode::{CHUNK, DecodeBuffers, decode};
pub use prefill::prefill;
pub use problem::{AttentionParams, Problem};
