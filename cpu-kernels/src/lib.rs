#![doc = include_str!("../README.md")]

mod arch;
mod context;
mod elementwise;
mod error;
mod fit;
mod float;
mod int8;
mod isa;
mod matrix;
mod norm;
mod output;
mod packed;
mod quantize;
pub mod reference;
mod rope;
mod scratch;
pub mod simd;

pub use context::Context;
pub use elementwise::{add_assign, softmax, swiglu, swiglu_quantize};
pub use error::Error;
pub use fit::quantize_q4_0_fit;
pub use float::{gemm_f32, gemm_f32_each, matvec_f32};
pub use int8::{gemm_int8, gemm_int8_each, matvec_int8};
pub use isa::{CpuVendor, ISA_VARIABLE, Isa};
pub use matrix::{Affine4, Affine8, Matrix, Parameters, Weights};
pub use norm::{rms_norm, rms_norm_quantize};
pub use packed::{PackedMatrix, Panels};
pub use quantize::quantize_activations;
pub use rope::{RopeOrder, RopeTable, rope};
