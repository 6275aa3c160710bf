//! The types that a tensor can be given, and how a row becomes one.

use bytemuck::Pod;
use half::{bf16, f16};
use halfbyte_cpu_kernels::{Context, quantize_q4_0_fit};
use halfbyte_q4::{
    BlockQ4_0, BlockQ4_1, dequantize_row_q4_0, dequantize_row_q4_1, q4_1_row, q4_1_row_weighted,
    q4_row_fit_weighted, q4_row_optimal, q4_row_optimal_weighted,
};
use halfbyte_q8::BlockQ8_0;

use super::EncodeError;
use halfbyte_gguf::TensorType;

/// How the parameters of a 4-bit group are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Method {
    /// `max|w| / 7`, symmetric: [`halfbyte_q4::q4_row`]. Q4_0 only.
    Max7,
    /// The extremes of the group at the ends of the range, as in other GGUF writers:
    /// [`halfbyte_q4::q4_row_max`], [`q4_1_row`].
    Max,
    /// The best of some twenty least-squares fits, no group worse than by [`Method::Max`]: [`quantize_q4_0_fit`],
    /// [`q4_1_row_weighted`].
    Fit,
    /// The best scale there is: [`q4_row_optimal`]. Q4_0 only.
    Optimal,
}

impl Method {
    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Max7 => "max7",
            Self::Max => "max",
            Self::Fit => "fit",
            Self::Optimal => "optimal",
        }
    }

    /// Whether it minimises an error, in which columns can have different importance.
    pub const fn takes_importance(self) -> bool {
        matches!(self, Self::Fit | Self::Optimal)
    }

    /// Q4_0 blocks, and how many groups had no importance.
    fn q4_0(
        self,
        ctx: Context<'_>,
        x: &[f32],
        importance: Option<&[f32]>,
        blocks: &mut [BlockQ4_0],
    ) -> Result<usize, halfbyte_q4::Error> {
        match (self, importance) {
            (Self::Fit, Some(importance)) => Ok(q4_row_fit_weighted(x, importance, blocks)?.uniform_groups),
            (Self::Optimal, Some(importance)) => {
                Ok(q4_row_optimal_weighted(x, importance, blocks)?.uniform_groups)
            }
            (Self::Max7, _) => halfbyte_q4::q4_row(x, blocks).map(|()| 0),
            (Self::Max, _) => halfbyte_q4::q4_row_max(x, blocks).map(|()| 0),
            (Self::Fit, None) => quantize_q4_0_fit(ctx, x, blocks).map(|()| 0),
            (Self::Optimal, None) => q4_row_optimal(x, blocks).map(|()| 0),
        }
    }

    /// Q4_1 blocks, and how many groups had no importance.
    fn q4_1(
        self,
        x: &[f32],
        importance: Option<&[f32]>,
        blocks: &mut [BlockQ4_1],
    ) -> Result<usize, halfbyte_q4::Error> {
        match (self, importance) {
            (Self::Max7 | Self::Max, _) => q4_1_row(x, blocks).map(|()| 0),
            (_, Some(importance)) => Ok(q4_1_row_weighted(x, importance, blocks)?.uniform_groups),
            (_, None) => q4_1_row_weighted(x, &vec![1.0; x.len()], blocks).map(|_| 0),
        }
    }
}

/// A type to write, with the rule where there is a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Single precision.
    F32,
    /// IEEE half precision, rounded to nearest even.
    F16,
    /// Single precision without its last 16 bits, rounded to nearest even.
    BF16,
    /// 8 bits in groups of 32: [`halfbyte_q8::quantize_row`].
    Q8_0,
    /// 4 bits in groups of 32.
    Q4_0(Method),
    /// 4 bits in groups of 32 with a minimum. [`Method::Max7`] stands for [`Method::Max`] and [`Method::Optimal`] for
    /// [`Method::Fit`] here: a minimum leaves nothing symmetric, and no enumeration finds the best pair.
    Q4_1(Method),
}

impl Format {
    /// The type in the file.
    pub const fn tensor_type(self) -> TensorType {
        match self {
            Self::F32 => TensorType::F32,
            Self::F16 => TensorType::F16,
            Self::BF16 => TensorType::BF16,
            Self::Q8_0 => TensorType::Q8_0,
            Self::Q4_0(_) => TensorType::Q4_0,
            Self::Q4_1(_) => TensorType::Q4_1,
        }
    }

    /// llama.cpp's number for a file that is mostly of this type (`general.file_type`).
    pub const fn file_type(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0(_) => 2,
            Self::Q4_1(_) => 3,
            Self::Q8_0 => 7,
            Self::BF16 => 32,
        }
    }

    /// Whether it minimises an error, in which columns can have different importance.
    pub(super) const fn takes_importance(self) -> bool {
        matches!(self, Self::Q4_0(method) | Self::Q4_1(method) if method.takes_importance())
    }

    /// The magnitude up to which it can hold any weight.
    pub(super) const fn limit(self) -> f32 {
        const F16_MAX: f32 = f16::MAX.to_f32_const();
        match self {
            Self::F32 => f32::MAX,
            Self::BF16 => bf16::MAX.to_f32_const(),
            Self::F16 | Self::Q4_1(_) => F16_MAX,
            Self::Q8_0 => 127.0 * F16_MAX,
            Self::Q4_0(Method::Max7) => 7.0 * F16_MAX,
            Self::Q4_0(_) => 8.0 * F16_MAX,
        }
    }

    /// Appends the row `x`, whole groups of finite weights, to `bytes` and writes what it decodes to into `decoded`,
    /// as long as `x`. `importance` is one number a column, for methods that take it. Returns how many groups had no
    /// importance and were quantized with equal ones. After an error nothing written means anything.
    pub(crate) fn encode(
        self,
        ctx: Context<'_>,
        x: &[f32],
        importance: Option<&[f32]>,
        bytes: &mut Vec<u8>,
        decoded: &mut [f32],
    ) -> Result<usize, EncodeError> {
        let start = bytes.len();
        let mut uniform_groups = 0;
        match self {
            Self::F32 => bytes.extend_from_slice(bytemuck::cast_slice(x)),
            Self::F16 => {
                for (index, &value) in x.iter().enumerate() {
                    let half = f16::from_f32(value);
                    if !half.is_finite() {
                        return Err(EncodeError::F16 { index, value });
                    }
                    bytes.extend_from_slice(&half.to_le_bytes());
                }
            }
            Self::BF16 => {
                for (index, &value) in x.iter().enumerate() {
                    let brief = bf16::from_f32(value);
                    if !brief.is_finite() {
                        return Err(EncodeError::BF16 { index, value });
                    }
                    bytes.extend_from_slice(&brief.to_le_bytes());
                }
            }
            Self::Q8_0 => append_blocks(bytes, x.len(), |b| halfbyte_q8::quantize_row(x, b))?,
            Self::Q4_0(method) => append_blocks(bytes, x.len(), |b| {
                method.q4_0(ctx, x, importance, b).map(|n| uniform_groups = n)
            })?,
            Self::Q4_1(method) => {
                append_blocks(bytes, x.len(), |b| method.q4_1(x, importance, b).map(|n| uniform_groups = n))?
            }
        }
        self.decode(&bytes[start..], decoded)?;
        Ok(uniform_groups)
    }

    /// What the bytes of a row of this type stand for.
    pub(crate) fn decode(self, bytes: &[u8], x: &mut [f32]) -> Result<(), EncodeError> {
        // Copied block by block: the bytes may lie anywhere.
        let blocks = || bytes.len() / self.tensor_type().block_bytes();
        match self {
            Self::F32 => x.copy_from_slice(&bytemuck::pod_collect_to_vec::<u8, f32>(bytes)),
            Self::F16 => {
                for (x, half) in x.iter_mut().zip(bytes.as_chunks().0) {
                    *x = f16::from_le_bytes(*half).to_f32();
                }
            }
            Self::BF16 => {
                for (x, brief) in x.iter_mut().zip(bytes.as_chunks().0) {
                    *x = bf16::from_le_bytes(*brief).to_f32();
                }
            }
            Self::Q8_0 => halfbyte_q8::dequantize_row(&copied::<BlockQ8_0>(bytes, blocks()), x)?,
            Self::Q4_0(_) => dequantize_row_q4_0(&copied(bytes, blocks()), x)?,
            Self::Q4_1(_) => dequantize_row_q4_1(&copied(bytes, blocks()), x)?,
        }
        Ok(())
    }
}

/// `n` blocks from their bytes.
fn copied<B: Pod>(bytes: &[u8], n: usize) -> Vec<B> {
    let mut blocks = vec![B::zeroed(); n];
    bytemuck::cast_slice_mut(&mut blocks).copy_from_slice(bytes);
    blocks
}

/// Appends what `quantize` makes of the blocks `B` of a row of `weights`.
fn append_blocks<B: Pod, E>(
    bytes: &mut Vec<u8>,
    weights: usize,
    quantize: impl FnOnce(&mut [B]) -> Result<(), E>,
) -> Result<(), E> {
    let mut blocks = vec![B::zeroed(); weights / 32];
    quantize(&mut blocks)?;
    bytes.extend_from_slice(bytemuck::cast_slice(&blocks));
    Ok(())
}
