//! Matrices in a device's memory, as the kernels read them.

use crate::check::{at_most, length, multiple_of};
use crate::profiler::Work;
use crate::{Error, Kernels};
use bytemuck::cast_slice;
use half::bf16;
use halfbyte_cuda_driver::{DeviceBuffer, Stream};
use halfbyte_q4::BlockQ4_0;
use halfbyte_q4::affine::GroupSize;
use halfbyte_q8::BlockQ8_0;
use std::fmt;

/// How a matrix's weights are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    /// MLX affine 4-bit, as stored: `w = scale * code + bias`, scale and bias bf16.
    Affine4(GroupSize),
    /// GGUF's Q4_0: `w = scale * (code - 8)`, scale f16, groups of 32.
    Q4_0,
    /// GGUF's Q8_0: `w = scale * code`, scale f16, groups of 32.
    Q8_0,
    /// bf16. They are multiplied with bf16 inputs, whatever a prompt's precision.
    Bf16,
}

impl WeightFormat {
    /// The number of weights of a row that share a scale. bf16 has no scales and takes inputs that were prepared for any
    /// group; this returns the smallest.
    #[must_use]
    pub fn group(self) -> GroupSize {
        match self {
            Self::Affine4(group) => group,
            Self::Q4_0 | Self::Q8_0 | Self::Bf16 => GroupSize::G32,
        }
    }
}

impl fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Affine4(group) => write!(f, "affine 4-bit in groups of {}", group.weights()),
            Self::Q4_0 => f.write_str("Q4_0"),
            Self::Q8_0 => f.write_str("Q8_0"),
            Self::Bf16 => f.write_str("bf16"),
        }
    }
}

/// A matrix of `outputs` rows of `inputs` weights: what `y = x W^T` multiplies a prompt's rows with.
#[derive(Debug)]
pub struct DeviceWeights {
    format: WeightFormat,
    outputs: usize,
    inputs: usize,
    /// Packed codes, or pairs of bf16.
    pub(crate) codes: DeviceBuffer<u32>,
    /// bf16 or f16 bits; empty for formats without.
    pub(crate) scales: DeviceBuffer<u16>,
    /// bf16 bits; empty for formats without.
    pub(crate) biases: DeviceBuffer<u16>,
}

/// The arrays of an MLX affine matrix, row-major, as its files have them.
#[derive(Debug, Clone, Copy)]
pub struct Affine<'a> {
    /// Bits of a code, as the model's configuration says.
    pub bits: u32,
    /// Weights in a group, as the model's configuration says.
    pub group: usize,
    /// Codes: `outputs * inputs / 8` words of eight, the first in the lowest nibble.
    pub words: &'a [u32],
    /// `outputs * inputs / group` scales.
    pub scales: &'a [bf16],
    /// As many biases.
    pub biases: &'a [bf16],
}

impl DeviceWeights {
    /// Copies an MLX matrix to the device, as it is.
    ///
    /// # Errors
    /// [`Error::Weights`] for codes that are not 4 bits and groups that are not of 32, 64 or 128, by name;
    /// [`Error::Inputs`], [`Error::Length`] or [`Error::TooLarge`] for a shape that does not fit; [`Error::Driver`].
    pub fn from_affine(
        kernels: &Kernels,
        outputs: usize,
        inputs: usize,
        affine: &Affine<'_>,
    ) -> Result<Self, Error> {
        let context = kernels.context();
        const KERNEL: &str = "affine4_prefill";
        if affine.bits != 4 {
            return Err(Error::Weights {
                kernel: KERNEL,
                expected: "4 bits",
                got: format!("{} bits", affine.bits),
            });
        }
        let group = GroupSize::try_from(affine.group).map_err(|_| Error::Weights {
            kernel: KERNEL,
            expected: "groups of 32, 64 or 128",
            got: format!("groups of {}", affine.group),
        })?;
        let groups = groups(KERNEL, outputs, inputs, group)?;
        length("the words of an affine matrix", outputs * inputs / 8, affine.words.len())?;
        length("the scales of an affine matrix", groups, affine.scales.len())?;
        length("the biases of an affine matrix", groups, affine.biases.len())?;
        Ok(Self {
            format: WeightFormat::Affine4(group),
            outputs,
            inputs,
            codes: DeviceBuffer::from_slice(context, affine.words)?,
            scales: DeviceBuffer::from_slice(context, cast_slice(affine.scales))?,
            biases: DeviceBuffer::from_slice(context, cast_slice(affine.biases))?,
        })
    }

    /// Copies a Q4_0 matrix to the device, and there puts its codes in MLX's order and its scales apart. Same weights,
    /// same size.
    ///
    /// # Errors
    /// [`Error::Inputs`], [`Error::Length`] or [`Error::TooLarge`] for a shape that does not fit; [`Error::Driver`].
    pub fn from_q4_0(
        kernels: &Kernels,
        outputs: usize,
        inputs: usize,
        blocks: &[BlockQ4_0],
    ) -> Result<Self, Error> {
        let groups = groups("q4_0_prefill", outputs, inputs, GroupSize::G32)?;
        length("the blocks of a Q4_0 matrix", groups, blocks.len())?;
        Self::split(kernels, WeightFormat::Q4_0, outputs, inputs, cast_slice(blocks))
    }

    /// Copies a Q8_0 matrix to the device, and there puts the even ones of each 32 codes first and its scales apart. Same
    /// weights, same size.
    ///
    /// # Errors
    /// As for [`from_q4_0`](Self::from_q4_0).
    pub fn from_q8_0(
        kernels: &Kernels,
        outputs: usize,
        inputs: usize,
        blocks: &[BlockQ8_0],
    ) -> Result<Self, Error> {
        let groups = groups("q8_0_prefill", outputs, inputs, GroupSize::G32)?;
        length("the blocks of a Q8_0 matrix", groups, blocks.len())?;
        Self::split(kernels, WeightFormat::Q8_0, outputs, inputs, cast_slice(blocks))
    }

    /// Copies a bf16 matrix to the device.
    ///
    /// # Errors
    /// [`Error::Inputs`] unless the inputs are a multiple of 8, [`Error::Length`] or [`Error::TooLarge`] for a shape that
    /// does not fit; [`Error::Driver`].
    pub fn from_bf16(
        kernels: &Kernels,
        outputs: usize,
        inputs: usize,
        weights: &[bf16],
    ) -> Result<Self, Error> {
        at_most("the outputs of a matrix", i32::MAX as usize, outputs)?;
        at_most("the inputs of a matrix", i32::MAX as usize, inputs)?;
        multiple_of("bf16_matvec", 8, inputs)?;
        length("the weights of a bf16 matrix", outputs * inputs, weights.len())?;
        let context = kernels.context();
        // An allocation is aligned for pairs, the host's slice need not be.
        let pairs =
            weights.chunks_exact(2).map(|p| u32::from(p[0].to_bits()) | u32::from(p[1].to_bits()) << 16);
        Ok(Self {
            format: WeightFormat::Bf16,
            outputs,
            inputs,
            codes: DeviceBuffer::from_slice(context, &pairs.collect::<Vec<_>>())?,
            scales: DeviceBuffer::uninit(context, 0)?,
            biases: DeviceBuffer::uninit(context, 0)?,
        })
    }

    /// Splits the blocks of a matrix into codes and scales on the device.
    #[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
    fn split(
        kernels: &Kernels,
        format: WeightFormat,
        outputs: usize,
        inputs: usize,
        blocks: &[u16],
    ) -> Result<Self, Error> {
        let context = kernels.context();
        let groups = outputs * (inputs / 32);
        let (entry, words) = if format == WeightFormat::Q8_0 { ("q8_0_split", 8) } else { ("q4_0_split", 4) };
        let stored = DeviceBuffer::from_slice(context, blocks)?;
        let weights = Self {
            format,
            outputs,
            inputs,
            codes: DeviceBuffer::uninit(context, groups * words)?,
            scales: DeviceBuffer::uninit(context, groups)?,
            biases: DeviceBuffer::uninit(context, 0)?,
        };
        if groups == 0 {
            return Ok(weights);
        }
        let (from, codes, scales) = (stored.pointer(), weights.codes.pointer(), weights.scales.pointer());
        let count = groups as u64;
        let arguments = [(&from).into(), (&codes).into(), (&scales).into(), (&count).into()];
        let blocks = u32::try_from(groups.div_ceil(256)).unwrap_or(u32::MAX);
        let stream = Stream::legacy_default(context);
        let moved = Work { operations: 0, bytes: (stored.bytes() + weights.bytes()) as u64 };
        let describe = || (format!("{outputs}x{inputs}"), moved);
        let kernel = kernels.kernel(entry)?;
        // SAFETY: there are `count` blocks, and as much room for their codes and scales; 256 threads take 256 blocks.
        unsafe { kernel.launch((&stream).into(), [blocks, 1, 1], &arguments, describe)? };
        stream.synchronize()?;
        Ok(weights)
    }

    /// How the weights are stored.
    #[must_use]
    pub fn format(&self) -> WeightFormat {
        self.format
    }

    /// Rows of the matrix.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Weights of a row.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Bytes on the device.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.codes.bytes() + self.scales.bytes() + self.biases.bytes()
    }
}

/// The groups of a matrix whose rows are whole groups.
fn groups(kernel: &'static str, outputs: usize, inputs: usize, group: GroupSize) -> Result<usize, Error> {
    at_most("the outputs of a matrix", i32::MAX as usize, outputs)?;
    at_most("the inputs of a matrix", i32::MAX as usize, inputs)?;
    multiple_of(kernel, group.weights(), inputs)?;
    Ok(outputs * (inputs / group.weights()))
}
