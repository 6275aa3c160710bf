//! Attention on the tensor cores, over KV caches in bf16 and e4m3.

mod cache;

pub use cache::{KvCache, KvFormat, KvLayout, KvStorage};
