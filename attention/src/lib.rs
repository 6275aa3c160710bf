#![doc = include_str!("../README.md")]

mod attention;
mod cache;
#[cfg(feature = "cuda")]
pub mod cuda;
mod error;
mod params;
pub mod reference;
mod rows;
mod split;
mod tile;

pub use attention::{attention, attention_with_sinks};
pub use cache::{KvCache, SavedKv};
pub use error::Error;
pub use params::AttentionParams;
pub use rows::KvType;
