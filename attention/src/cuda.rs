//! The same problems on a GPU: from [`crate::AttentionParams`] to the kernels of [`halfbyte_cuda_kernels::attention`].
//!
//! The kernels take heads of 64, 128 or 256 numbers, queries in bf16 and caches in bf16 or e4m3. They refuse anything else
//! with an error that names it, before any work. Sinks are device memory there, one f32 a query head, and their values are
//! not checked: the caller keeps NaN out of them.
//!
//! ```
//! use half::bf16;
//! use halfbyte_attention::cuda::{self, DeviceKvCache, KvLayout, KvStorage, Problem, prefill};
//! use halfbyte_cuda_driver::{Context, DeviceBuffer, Driver, Stream};
//! use halfbyte_cuda_kernels::Kernels;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let emulator = halfbyte_cuda_emulator::Emulator::install(Default::default())?;
//! let context = Context::primary(Driver::load()?.device(0)?)?;
//! let (kernels, stream) = (Kernels::new(&context)?, Stream::legacy_default(&context));
//!
//! // Two query heads on one key/value head of 64; all values are 0.5, so every weighted mean is.
//! let params = cuda::AttentionParams::from(halfbyte_attention::AttentionParams::new(2, 1, 64, 0.125)?);
//! let layout = KvLayout::new(halfbyte_attention::cuda::KvFormat::Bf16, 1, 64, 64)?;
//! let half = DeviceBuffer::from_slice(&context, &[bf16::from_f32(0.5); 64 * 64])?;
//! let keys = DeviceBuffer::from_slice(&context, &[bf16::ONE; 64 * 64])?;
//! let cache = DeviceKvCache::from_storage(layout, KvStorage::Bf16 { keys, values: half })?;
//! let q = DeviceBuffer::from_slice(&context, &[bf16::ONE; 3 * 2 * 64])?;
//! let mut out = DeviceBuffer::uninit(&context, 3 * 2 * 64)?;
//! let problem = Problem { params, sinks: None, cache: &cache, kv_len: 3, first: 0, rows: 3, q: q.as_slice() };
//! prefill(&kernels, &stream, &problem, &mut out.as_mut_slice(), None)?;
//! assert_eq!(out.to_vec()?, [bf16::from_f32(0.5); 3 * 2 * 64]);
//! # Ok(())
//! # }
//! ```

pub use halfbyte_cuda_kernels::attention::{
    AttentionParams, DecodeBuffers, DeviceKvCache, KvFormat, KvLayout, KvStorage, Problem, decode, prefill,
};

impl From<crate::AttentionParams> for AttentionParams {
    /// The same layer. A window of more than 2^32 - 1 positions is as good as none, and becomes that many.
    fn from(params: crate::AttentionParams) -> Self {
        Self {
            n_heads: params.n_heads(),
            n_kv_heads: params.n_kv_heads(),
            head_dim: params.head_dim(),
            scale: params.scale(),
            causal: params.causal(),
            window: params.window().map(|window| u32::try_from(window.get()).unwrap_or(u32::MAX)),
            soft_cap: params.soft_cap(),
        }
    }
}
