#![doc = include_str!("../README.md")]

mod attention;
mod cache;
#[cfg(feature = "cuda")]
pub mod cuda;
mod element;
mod error;
mod output;
mod params;
pub mod reference;
mod split;
mod tile;

pub use attention::attention;
pub use cache::{KvCache, KvType};
pub use error::Error;
pub use params::AttentionParams;
