//! The types that a tensor can be given, and how a row becomes one.

use bytemuck::Pod;
use half::f16;
use halfbyte_cpu_kernels::{Context, quantize_q4_0_fit};
use halfbyte_q4::{BlockQ4_0, dequantize_row_q4_0, dequantize_row_q4_1, q4_1_row};

use super::EncodeError;
use crate::gguf::TensorType;

/// How the scale of a Q4_0 group is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Method {
    /// `max|w| / 7`, symmetric: [`halfbyte_q4::q4_row`].
    Max7,
    /// The biggest weight becomes -8, as in other GGUF writers: [`halfbyte_q4::q4_row_max`].
    Max,
    /// The best of twenty fitted scales, no group worse than by [`Method::Max`]: [`quantize_q4_0_fit`].
    Fit,
}

impl Method {
    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Max7 => "max7",
            Self::Max => "max",
            Self::Fit => "fit",
        }
    }

    fn quantize(
        self,
        ctx: Context<'_>,
        x: &[f32],
        blocks: &mut [BlockQ4_0],
    ) -> Result<(), halfbyte_q4::Error> {
        match self {
            Self::Max7 => halfbyte_q4::q4_row(x, blocks),
            Self::Max => halfbyte_q4::q4_row_max(x, blocks),
            Self::Fit => quantize_q4_0_fit(ctx, x, blocks),
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
    /// 8 bits in groups of 32: [`halfbyte_q8::quantize_row`].
    Q8_0,
    /// 4 bits in groups of 32.
    Q4_0(Method),
    /// 4 bits in groups of 32 with a minimum: [`halfbyte_q4::q4_1_row`].
    Q4_1,
}

impl Format {
    /// The type in the file.
    pub const fn tensor_type(self) -> TensorType {
        match self {
            Self::F32 => TensorType::F32,
            Self::F16 => TensorType::F16,
            Self::Q8_0 => TensorType::Q8_0,
            Self::Q4_0(_) => TensorType::Q4_0,
            Self::Q4_1 => TensorType::Q4_1,
        }
    }

    /// llama.cpp's number for a file that is mostly of this type (`general.file_type`).
    pub const fn file_type(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0(_) => 2,
            Self::Q4_1 => 3,
            Self::Q8_0 => 7,
        }
    }

    /// Appends the row `x`, whole groups of finite weights, to `bytes` and writes what it decodes to into `decoded`,
    /// as long as `x`. After an error neither means anything.
    pub(super) fn encode(
        self,
        ctx: Context<'_>,
        x: &[f32],
        bytes: &mut Vec<u8>,
        decoded: &mut [f32],
    ) -> Result<(), EncodeError> {
        match self {
            Self::F32 => {
                decoded.copy_from_slice(x);
                bytes.extend_from_slice(bytemuck::cast_slice(x));
            }
            Self::F16 => {
                for (index, (&value, decoded)) in x.iter().zip(decoded).enumerate() {
                    let half = f16::from_f32(value);
                    if !half.is_finite() {
                        return Err(EncodeError::F16 { index, value });
                    }
                    *decoded = half.to_f32();
                    bytes.extend_from_slice(&half.to_le_bytes());
                }
            }
            Self::Q8_0 => {
                encode_blocks(x, bytes, decoded, halfbyte_q8::quantize_row, halfbyte_q8::dequantize_row)?;
            }
            Self::Q4_0(method) => {
                encode_blocks(x, bytes, decoded, |x, b| method.quantize(ctx, x, b), dequantize_row_q4_0)?;
            }
            Self::Q4_1 => encode_blocks(x, bytes, decoded, q4_1_row, dequantize_row_q4_1)?,
        }
        Ok(())
    }
}

/// [`Format::encode`] for a type of groups of 32 in blocks `B`.
fn encode_blocks<B: Pod, E>(
    x: &[f32],
    bytes: &mut Vec<u8>,
    decoded: &mut [f32],
    quantize: impl Fn(&[f32], &mut [B]) -> Result<(), E>,
    dequantize: impl Fn(&[B], &mut [f32]) -> Result<(), E>,
) -> Result<(), E> {
    let mut blocks = vec![B::zeroed(); x.len() / 32];
    quantize(x, &mut blocks)?;
    dequantize(&blocks, decoded)?;
    bytes.extend_from_slice(bytemuck::cast_slice(&blocks));
    Ok(())
}
