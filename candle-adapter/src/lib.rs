//! halfbyte's products with 4-bit and 8-bit weights, as an operation for candle's tensors on the CPU.
//!
//! [`Linear`] stands where `candle_core::quantized::QMatMul` would: it is made from the same `QTensor`, and takes and
//! gives the same shapes.
//!
//! ```
//! use candle_core::quantized::{GgmlDType, QTensor};
//! use candle_core::{Device, Module, Tensor};
//! use halfbyte_candle::{Activations, Kernels, Linear};
//! # fn main() -> candle_core::Result<()> {
//! let kernels = Kernels::new(2)?;
//! let weights = Tensor::randn(0f32, 1.0, (48, 64), &Device::Cpu)?;
//! let weights = QTensor::quantize(&weights, GgmlDType::Q4_0)?;
//! let linear = Linear::new(&weights, &kernels, Activations::Int8)?;
//!
//! let x = Tensor::randn(0f32, 1.0, (1, 3, 64), &Device::Cpu)?;
//! assert_eq!(linear.forward(&x)?.dims(), [1, 3, 48]);
//! # Ok(()) }
//! ```

#![forbid(unsafe_code)]

use bytemuck::Pod;
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{CpuStorage, CustomOp1, Error, Layout, Module, Result, Shape, Tensor, bail};
use halfbyte_cpu_kernels::{
    Context, Isa, Matrix, PackedMatrix, Weights, gemm_f32, gemm_int8, quantize_activations,
};
use halfbyte_q4::{BlockQ4_0, BlockQ4_1};
use halfbyte_q8::BlockQ8_0;
use halfbyte_threadpool::ThreadPool;
use std::sync::{Arc, Mutex};

/// What weights are multiplied by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activations {
    /// 8-bit codes with a scale for every 32 inputs, made on the way, as `QMatMul` does.
    #[default]
    Int8,
    /// Single precision: nothing is rounded but the weights.
    F32,
}

/// Threads, the instruction set found on this machine, and memory: shared by all matrices of a program.
#[derive(Debug)]
pub struct Kernels {
    pool: ThreadPool,
    isa: Isa,
    /// Kept from product to product.
    int8: Mutex<halfbyte_q8::Activations>,
}

impl Kernels {
    /// `threads` of them, the calling one included.
    ///
    /// # Errors
    /// If they can't be started, or `HALFBYTE_ISA` names an instruction set that is not there.
    pub fn new(threads: usize) -> Result<Arc<Self>> {
        let pool = ThreadPool::new(threads).map_err(Error::wrap)?;
        let isa = Isa::best().map_err(Error::wrap)?;
        Ok(Arc::new(Self { pool, isa, int8: Mutex::default() }))
    }

    fn context(&self) -> Context<'_> {
        Context { pool: &self.pool, isa: self.isa }
    }
}

/// A matrix of quantized weights that multiplies tensors: `[.., inputs]` in, `[.., outputs]` out.
#[derive(Clone, Debug)]
pub struct Linear {
    weights: PackedMatrix,
    kernels: Arc<Kernels>,
    activations: Activations,
}

impl Linear {
    /// `weights`, outputs by inputs, copied into the order in which the kernels read them. `weights` can be dropped.
    ///
    /// # Errors
    /// If `weights` are of another type than Q4_0, Q4_1 and Q8_0, or no matrix on the CPU.
    pub fn new(weights: &QTensor, kernels: &Arc<Kernels>, activations: Activations) -> Result<Self> {
        let (rows, cols) = weights.shape().dims2()?;
        let bytes = weights.data()?;
        let matrix = |weights: Weights<'_>| {
            let matrix = Matrix::new(weights, rows, cols).map_err(Error::wrap)?;
            PackedMatrix::new(kernels.context(), &matrix).map_err(Error::wrap)
        };
        let packed = match weights.dtype() {
            GgmlDType::Q4_0 => matrix(Weights::Q4_0(&blocks::<BlockQ4_0>(&bytes)))?,
            GgmlDType::Q4_1 => matrix(Weights::Q4_1(&blocks::<BlockQ4_1>(&bytes)))?,
            GgmlDType::Q8_0 => matrix(Weights::Q8_0(&blocks::<BlockQ8_0>(&bytes)))?,
            other => bail!("weights of type {other:?}: expected Q4_0, Q4_1 or Q8_0"),
        };
        Ok(Self { weights: packed, kernels: Arc::clone(kernels), activations })
    }

    /// The product for `rows` rows of inputs, into `y`.
    fn multiply(
        &self,
        x: &[f32],
        rows: usize,
        y: &mut [f32],
    ) -> std::result::Result<(), halfbyte_cpu_kernels::Error> {
        let (context, weights) = (self.kernels.context(), self.weights.as_matrix());
        if self.activations == Activations::F32 {
            return gemm_f32(context, &weights, x, rows, y);
        }
        // Taken out, so that products on several threads do not wait for each other.
        let lock = || self.kernels.int8.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut int8 = std::mem::take(&mut *lock());
        let done = quantize_activations(context, x, rows, weights.cols(), &mut int8)
            .and_then(|()| gemm_int8(context, &weights, &int8, y));
        *lock() = int8;
        done
    }
}

/// candle's blocks are GGUF's, as ours are; but their bytes may lie where ours must not.
fn blocks<B: Pod>(bytes: &[u8]) -> Vec<B> {
    let mut blocks = vec![B::zeroed(); bytes.len() / size_of::<B>()];
    bytemuck::cast_slice_mut(&mut blocks).copy_from_slice(bytes);
    blocks
}

impl CustomOp1 for Linear {
    fn name(&self) -> &'static str {
        "halfbyte-linear"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (outputs, inputs) = (self.weights.rows(), self.weights.cols());
        let Some((from, to)) = layout.contiguous_offsets() else {
            bail!("{}: {layout:?} is not contiguous: expected rows one after the other", self.name())
        };
        let x = &storage.as_slice::<f32>()?[from..to];
        let mut dims = layout.dims().to_vec();
        match dims.last_mut() {
            Some(last) if *last == inputs => *last = outputs,
            _ => bail!(
                "{}: inputs of shape {:?}: expected a last dimension of {inputs}",
                self.name(),
                layout.dims()
            ),
        }
        let rows = x.len() / inputs;
        let mut y = vec![0.0; rows * outputs];
        if rows > 0 {
            self.multiply(x, rows, &mut y).map_err(Error::wrap)?;
        }
        Ok((CpuStorage::F32(y), Shape::from(dims)))
    }
}

impl Module for Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.apply_op1_no_bwd(self)
    }
}
