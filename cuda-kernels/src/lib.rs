#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

pub mod attention;
mod check;
mod elementwise;
mod embedding;
mod error;
mod kernels;
mod matmul;
mod matvec;
mod norm;
mod precision;
mod products;
pub mod profiler;
mod prompt;
pub mod ptx;
pub mod reference;
mod rope;
mod sampler;
pub mod tiles;
pub mod training;
mod weights;

pub use elementwise::{add, add_assign, swiglu};
pub use embedding::{embed, embed_bf16};
pub use error::Error;
pub use kernels::Kernels;
pub use matmul::{Layout, MatmulOutput, matmul};
pub use matvec::{MAX_WINDOW, WindowOutput, matvec};
pub use norm::{RmsNorm, Sums, add_rms_norm, rms_norm};
pub use precision::PromptPrecision;
pub use profiler::{Profiler, Queue};
pub use prompt::{Exceptions, MAX_ROWS, Prepared, PromptInputs};
pub use rope::{DeviceRopeTable, HeadSteps, Projections, RopeOrder, rope_kv};
pub use sampler::{DeviceSampler, Draw};
pub use weights::{Affine, DeviceWeights, WeightFormat};
