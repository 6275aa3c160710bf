//! Products of a few rows: a decoded token's, or those of a window of tokens that is verified.

use crate::check::{length, place};
use crate::profiler::{Queue, Work};
use crate::{DeviceWeights, Error, Kernels, WeightFormat};
use half::bf16;
use halfbyte_cuda_driver::{Argument, DevicePointer, DeviceSlice, DeviceSliceMut};
use halfbyte_q4::affine::GroupSize;

/// Rows of a window, at most.
pub const MAX_WINDOW: usize = 32;

/// Where a window's product goes.
#[derive(Debug)]
pub enum WindowOutput<'a> {
    /// Rounded to bf16 once.
    Bf16(DeviceSliceMut<'a, bf16>),
    /// As f32: logits.
    F32(DeviceSliceMut<'a, f32>),
    /// Added to the bf16 that are there, in f32, rounded once: the residual sum.
    AddBf16(DeviceSliceMut<'a, bf16>),
    /// The first half of the outputs are gates, the second ups: half as many bf16, with the bits that
    /// [`swiglu`](crate::swiglu) makes of [`Bf16`](Self::Bf16).
    Swiglu(DeviceSliceMut<'a, bf16>),
}

impl WindowOutput<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Bf16(y) | Self::AddBf16(y) | Self::Swiglu(y) => y.len(),
            Self::F32(y) => y.len(),
        }
    }

    /// Numbers that a row of `outputs` leaves.
    fn width(&self, outputs: usize) -> Result<usize, Error> {
        match self {
            // A block's 16 or 32 outputs are as many gates as ups.
            Self::Swiglu(_) if !outputs.is_multiple_of(32) => {
                Err(Error::Outputs { kernel: "a product with SwiGLU", multiple: 32, got: outputs })
            }
            Self::Swiglu(_) => Ok(outputs / 2),
            _ => Ok(outputs),
        }
    }

    /// Address, checked, and the number by which the kernel knows it.
    fn parts(&self, kernels: &Kernels) -> Result<(DevicePointer, u32), Error> {
        let (pointer, context, number) = match self {
            Self::Bf16(y) => (y.pointer(), y.context(), 0),
            Self::F32(y) => (y.pointer(), y.context(), 1),
            Self::AddBf16(y) => (y.pointer(), y.context(), 2),
            Self::Swiglu(y) => (y.pointer(), y.context(), 3),
        };
        place("a window's outputs", kernels.context(), context, pointer, 4)?;
        Ok((pointer, number))
    }
}

/// The entry points for up to 8, 16 and 32 rows.
fn entries(format: WeightFormat) -> [&'static str; 3] {
    macro_rules! rows {
        ($prefix:literal) => {
            [concat!($prefix, "8"), concat!($prefix, "16"), concat!($prefix, "32")]
        };
    }
    match format {
        WeightFormat::Affine4(GroupSize::G32) => rows!("affine4_matvec_g32_"),
        WeightFormat::Affine4(GroupSize::G64) => rows!("affine4_matvec_g64_"),
        WeightFormat::Affine4(GroupSize::G128) => rows!("affine4_matvec_g128_"),
        WeightFormat::Q4_0 => rows!("q4_0_matvec_"),
        WeightFormat::Q8_0 => rows!("q8_0_matvec_"),
        WeightFormat::Bf16 => rows!("bf16_matvec_"),
    }
}

/// Queues `y = x W^T` for `rows` rows of `weights.inputs()` numbers, 1 to [`MAX_WINDOW`]; `y` has as many rows of
/// `weights.outputs()`, or half as many with SwiGLU. All rows share one pass over the weights.
///
/// Inputs are taken as bf16, codes as they are, sums in f32. A row's bits depend on the row and the weights alone: not on
/// the number of rows, nor on what is in them. They are not the bits of [`Prepared::multiply`](crate::Prepared::multiply),
/// which sums in another order. A NaN or an infinity in a row leaves no finite number in its outputs.
///
/// # Errors
/// [`Error::WindowRows`], [`Error::Outputs`] for SwiGLU of a number that is no multiple of 32, [`Error::Length`],
/// [`Error::Alignment`] (16 bytes; `y` 4) or [`Error::OtherContext`], before anything is queued; [`Error::Driver`].
#[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
pub fn matvec<'q>(
    kernels: &Kernels,
    queue: impl Into<Queue<'q>>,
    rows: usize,
    x: DeviceSlice<'_, bf16>,
    weights: &DeviceWeights,
    y: &mut WindowOutput<'_>,
) -> Result<(), Error> {
    if rows == 0 || rows > MAX_WINDOW {
        return Err(Error::WindowRows { limit: MAX_WINDOW, got: rows });
    }
    let (outputs, inputs) = (weights.outputs(), weights.inputs());
    length("a window", rows * inputs, x.len())?;
    let width = y.width(outputs)?;
    length("a window's outputs", rows * width, y.len())?;
    let context = kernels.context();
    place("a window", context, x.context(), x.pointer(), 16)?;
    place("the weights", context, weights.codes.context(), weights.codes.pointer(), 16)?;
    let (out, written) = y.parts(kernels)?;
    if outputs == 0 {
        return Ok(());
    }
    let class = usize::from(rows > 8) + usize::from(rows > 16);
    let tile = if class == 0 || weights.format() == WeightFormat::Bf16 { 16 } else { 32 };
    let (m, n, k) = (rows as u32, outputs as u32, inputs as u32);
    let (codes, scales, biases) =
        (weights.codes.pointer(), weights.scales.pointer(), weights.biases.pointer());
    let x = x.pointer();
    let mut arguments = vec![Argument::new(&x), (&codes).into()];
    if weights.format() != WeightFormat::Bf16 {
        arguments.push((&scales).into());
    }
    if matches!(weights.format(), WeightFormat::Affine4(_)) {
        arguments.push((&biases).into());
    }
    arguments.extend([(&out).into(), Argument::new(&m), (&n).into(), (&k).into(), (&written).into()]);
    let describe = || {
        let element = if written == 1 { 4 } else { 2 };
        let bytes = weights.bytes() + rows * inputs * 2 + rows * width * element;
        let operations = 2 * u64::from(m) * u64::from(n) * u64::from(k);
        (format!("{m}x{n}x{k}"), Work { operations, bytes: bytes as u64 })
    };
    let kernel = kernels.kernel(entries(weights.format())[class])?;
    // SAFETY: the arguments are the entry point's, in its order; `x` and `y` have been checked against the weights, which
    // are whole by construction; all are aligned and of the kernels' context.
    unsafe { kernel.launch(queue.into(), [n.div_ceil(tile), 1, 1], &arguments, describe) }
}
