#![doc = include_str!("../README.md")]

mod arch;
mod context;
mod elementwise;
mod error;
mod fit;
mod float;
mod formats;
mod gated;
mod int8;
mod isa;
mod matrix;
mod mixture;
mod norm;
mod output;
mod packed;
mod panels;
mod quantize;
mod recurrent;
pub mod reference;
mod rope;
mod scratch;
pub mod simd;
mod weights;

// What this crate's functions take, so that one dependency is enough. The crates have more: other quantizers, for example.
pub use half::{bf16, f16};
pub use halfbyte_k_quants as k_quants;
pub use halfbyte_q4::{self as q4, BlockQ4_0, BlockQ4_1};
pub use halfbyte_q8::{self as q8, Activations, BlockQ8_0, Precision};
pub use halfbyte_threadpool::{self as threadpool, ThreadPool};

pub use context::Context;
pub use elementwise::{add_assign, multiply_assign, scale, soft_cap, softmax};
pub use error::Error;
pub use fit::quantize_q4_0_fit;
pub use float::{gemm_f32, gemm_f32_each, gemm_f32_grouped, matvec_f32};
pub use formats::{Affine, FormatInfo, Parameters};
pub use gated::{Activation, gated, gated_quantize};
pub use int8::{gemm_int8, gemm_int8_each, gemm_int8_grouped, matvec_int8};
pub use isa::{CpuVendor, ISA_VARIABLE, Isa};
pub use matrix::Matrix;
pub use mixture::{Chosen, add_chosen};
pub use norm::{rms_norm, rms_norm_quantize};
pub use packed::{PackedMatrix, Panels};
pub use quantize::quantize_activations;
pub use recurrent::{
    DeltaShape, HeadOrder, causal_convolution, causal_convolution_linear, delta_gates, gated_delta,
    normalize_keys, rms_norm_gated, sigmoid_gate, split_gated,
};
pub use rope::{RopeOrder, RopeTable, rope};
pub use weights::Weights;
