//! bf16 products with either operand transposed: the forward and backward matrices of a training step.

use crate::check::{at_most, length, place};
use crate::profiler::{Queue, Work};
use crate::{Error, Kernels};
use half::bf16;
use halfbyte_cuda_driver::{Argument, DevicePointer, DeviceSlice, DeviceSliceMut};

/// Which operand lies transposed in memory; all are row-major.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// `A` m x k, `B` k x n: the gradient of a layer's inputs, `dx = dy W`.
    Nn,
    /// `A` m x k, `B` n x k: a layer, `y = x W^T`.
    Nt,
    /// `A` k x m, `B` k x n: the gradient of its weights, `dW = dy^T x`.
    Tn,
}

/// Where a product goes.
#[derive(Debug)]
pub enum MatmulOutput<'a> {
    /// Rounded to bf16 once.
    Bf16(DeviceSliceMut<'a, bf16>),
    /// As f32.
    F32(DeviceSliceMut<'a, f32>),
    /// Added to what is there, one f32 addition an element.
    AddF32(DeviceSliceMut<'a, f32>),
}

impl MatmulOutput<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Bf16(out) => out.len(),
            Self::F32(out) | Self::AddF32(out) => out.len(),
        }
    }

    /// Address, context's check, and the number by which the kernel knows it.
    fn parts(&self, kernels: &Kernels) -> Result<(DevicePointer, u32), Error> {
        let (pointer, context, number) = match self {
            Self::Bf16(out) => (out.pointer(), out.context(), 0),
            Self::F32(out) => (out.pointer(), out.context(), 1),
            Self::AddF32(out) => (out.pointer(), out.context(), 2),
        };
        place("a product's output", kernels.context(), context, pointer, 16)?;
        Ok((pointer, number))
    }
}

/// Queues `C = A B` of m x k and k x n bf16 numbers, summed in f32 along k, ascending: the same bits every time.
///
/// # Errors
/// [`Error::Inputs`] unless k is a multiple of 8, n too (for [`Layout::Nt`] of 2), and m for [`Layout::Tn`];
/// [`Error::Length`], [`Error::Alignment`] (16 bytes),
/// [`Error::OtherContext`] or [`Error::TooLarge`], before anything is queued; [`Error::Driver`].
#[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
pub fn matmul<'q>(
    kernels: &Kernels,
    queue: impl Into<Queue<'q>>,
    layout: Layout,
    [m, n, k]: [usize; 3],
    a: DeviceSlice<'_, bf16>,
    b: DeviceSlice<'_, bf16>,
    output: &mut MatmulOutput<'_>,
) -> Result<(), Error> {
    let entry = match layout {
        Layout::Nn => "matmul_bf16_nn",
        Layout::Nt => "matmul_bf16_nt",
        Layout::Tn => "matmul_bf16_tn",
    };
    // What lies along a stored row is copied in pieces of 8; C is written in pairs.
    let (of_m, of_n) = match layout {
        Layout::Nn => (1, 8),
        Layout::Nt => (1, 2),
        Layout::Tn => (8, 8),
    };
    for (extent, multiple) in [(m, of_m), (n, of_n), (k, 8)] {
        at_most("an extent of a product", i32::MAX as usize, extent)?;
        if !extent.is_multiple_of(multiple) {
            return Err(Error::Inputs { kernel: entry, multiple, got: extent });
        }
    }
    length("a product's first operand", m * k, a.len())?;
    length("a product's second operand", k * n, b.len())?;
    length("a product's output", m * n, output.len())?;
    place("a product's first operand", kernels.context(), a.context(), a.pointer(), 16)?;
    place("a product's second operand", kernels.context(), b.context(), b.pointer(), 16)?;
    let (c, kind) = output.parts(kernels)?;
    if m * n == 0 {
        return Ok(());
    }
    let blocks = m.div_ceil(128) * n.div_ceil(128);
    at_most("the blocks of a product", i32::MAX as usize, blocks)?;
    let (a, b, extents) = (a.pointer(), b.pointer(), [m as u32, n as u32, k as u32]);
    let [em, en, ek] = &extents;
    let arguments = [
        Argument::new(&a),
        Argument::new(&b),
        Argument::new(&c),
        em.into(),
        en.into(),
        ek.into(),
        (&kind).into(),
    ];
    let describe = || {
        let (m, n, k) = (m as u64, n as u64, k as u64);
        let element = if kind == 0 { 2 } else { 4 };
        (
            format!("{m}x{n}x{k}"),
            Work { operations: 2 * m * n * k, bytes: (m * k + k * n) * 2 + m * n * element },
        )
    };
    let kernel = kernels.kernel(entry)?;
    // SAFETY: operands and output have the extents' sizes, are aligned and of the kernels' context.
    unsafe { kernel.launch(queue.into(), [blocks as u32, 1, 1], &arguments, describe) }
}
