//! Attention on the tensor cores, over KV caches in bf16 and e4m3.
//!
//! [`prefill`] serves prompts, [`decode`] a few rows over many positions, [`backward`] a training step. They share one
//! definition, [`Problem`], and the first two one body of arithmetic (`kernels/common/attention.cuh`).

mod backward;
mod cache;
mod decode;
mod prefill;
mod problem;

pub use backward::{BackwardBuffers, Forward, Gradients, backward};
pub use cache::{DeviceKvCache, KvFormat, KvLayout, KvStorage};
pub use decode::{CHUNK, DecodeBuffers, decode};
pub use prefill::prefill;
pub use problem::{AttentionParams, Problem};
