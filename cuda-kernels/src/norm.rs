//! RMS norm of rows, optionally with the residual sum before it and the group sums after it.

use crate::check::{at_most, length, multiple_of, place};
use crate::profiler::{Queue, Work};
use crate::{Error, Kernels};
use half::bf16;
use halfbyte_cuda_driver::{Argument, Context, DevicePointer, DeviceSlice, DeviceSliceMut};
use halfbyte_q4::affine::GroupSize;

/// The buffer to which a kernel that computes a prompt's rows writes the sums of their groups as well.
///
/// [`Prepared::summed`](crate::Prepared::summed) takes these sums, so that no further kernel has to compute them.
#[derive(Debug)]
pub struct Sums<'a> {
    /// Numbers of a row that share a sum.
    pub group: GroupSize,
    /// [`Sums::elements`] numbers: by group, then row, rows padded to a multiple of 4. The padding is not written.
    pub to: DeviceSliceMut<'a, f32>,
}

impl Sums<'_> {
    /// Numbers of the buffer for `rows` rows of `width` numbers.
    #[must_use]
    pub fn elements(rows: usize, width: usize, group: GroupSize) -> usize {
        width / group.weights() * rows.next_multiple_of(4)
    }

    /// The kernel's two parameters, checked: address (or none), and group (or 0).
    pub(crate) fn parameters(
        sums: Option<&Self>,
        kernel: &'static str,
        context: &Context,
        [rows, width]: [usize; 2],
    ) -> Result<(DevicePointer, u32), Error> {
        let Some(sums) = sums else { return Ok((DevicePointer(0), 0)) };
        multiple_of(kernel, sums.group.weights(), width)?;
        length("the sums of groups", Sums::elements(rows, width, sums.group), sums.to.len())?;
        place("the sums of groups", context, sums.to.context(), sums.to.pointer(), 4)?;
        Ok((sums.to.pointer(), sums.group.weights() as u32))
    }

    /// Bytes that a kernel writes, by its second parameter.
    pub(crate) fn bytes(group: u32, [rows, width]: [usize; 2]) -> usize {
        width.checked_div(group as usize).unwrap_or(0) * rows * 4
    }
}

/// The shape of a norm's rows, and its epsilon.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RmsNorm {
    /// Rows.
    pub rows: usize,
    /// Numbers of a row: a multiple of 8, up to 16,384.
    pub width: usize,
    /// The number that is added to the mean of the squares; not negative.
    pub epsilon: f32,
}

/// Queues `y = x / sqrt(mean(x^2) + epsilon) * weights` for each row of `x`, and the sums of `y`'s groups if asked for.
///
/// In f32, rounded to bf16 once: within 48 f32 units and half a bf16 unit of the real number. A row's bits depend on the
/// row alone. A NaN or an infinity makes its own outputs NaN, and the rest of its row NaN or 0.
///
/// # Errors
/// [`Error::Inputs`] for a width that is no multiple of 8 or of the group, [`Error::Length`], [`Error::Alignment`] (16
/// bytes), [`Error::OtherContext`] or [`Error::TooLarge`], before anything is queued; [`Error::Driver`].
pub fn rms_norm<'q>(
    kernels: &Kernels,
    queue: impl Into<Queue<'q>>,
    norm: RmsNorm,
    x: DeviceSlice<'_, bf16>,
    weights: DeviceSlice<'_, f32>,
    y: &mut DeviceSliceMut<'_, bf16>,
    sums: Option<&mut Sums<'_>>,
) -> Result<(), Error> {
    launch(kernels, queue.into(), norm, x, None, weights, y, sums.as_deref())
}

/// Queues `x = x + delta`, rounded to bf16, and [`rms_norm`] of that: one pass instead of [`add`](crate::add)'s and its
/// own, and the same bits.
///
/// # Errors
/// As for [`rms_norm`].
#[allow(clippy::too_many_arguments, reason = "a kernel's operands, each of another kind")]
pub fn add_rms_norm<'q>(
    kernels: &Kernels,
    queue: impl Into<Queue<'q>>,
    norm: RmsNorm,
    x: &mut DeviceSliceMut<'_, bf16>,
    delta: DeviceSlice<'_, bf16>,
    weights: DeviceSlice<'_, f32>,
    y: &mut DeviceSliceMut<'_, bf16>,
    sums: Option<&mut Sums<'_>>,
) -> Result<(), Error> {
    launch(kernels, queue.into(), norm, x.as_slice(), Some(delta), weights, y, sums.as_deref())
}

/// With a delta, `x` is written, too.
#[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
#[allow(clippy::too_many_arguments, reason = "a kernel's operands, each of another kind")]
fn launch(
    kernels: &Kernels,
    queue: Queue<'_>,
    norm: RmsNorm,
    x: DeviceSlice<'_, bf16>,
    delta: Option<DeviceSlice<'_, bf16>>,
    weights: DeviceSlice<'_, f32>,
    y: &mut DeviceSliceMut<'_, bf16>,
    sums: Option<&Sums<'_>>,
) -> Result<(), Error> {
    let RmsNorm { rows, width, epsilon } = norm;
    multiple_of("rms_norm", 8, width)?;
    at_most("the width of a norm", 16_384, width)?;
    at_most("the rows of a norm", i32::MAX as usize, rows)?;
    length("a norm's input", rows * width, x.len())?;
    length("a norm's weights", width, weights.len())?;
    length("a norm's output", rows * width, y.len())?;
    let context = kernels.context();
    place("a norm's input", context, x.context(), x.pointer(), 16)?;
    place("a norm's weights", context, weights.context(), weights.pointer(), 16)?;
    place("a norm's output", context, y.context(), y.pointer(), 16)?;
    if let Some(delta) = delta {
        length("what a norm adds", rows * width, delta.len())?;
        place("what a norm adds", context, delta.context(), delta.pointer(), 16)?;
    }
    let (sums, group) = Sums::parameters(sums, "rms_norm", context, [rows, width])?;
    if rows == 0 {
        return Ok(());
    }
    let (entry, blocks) =
        if width <= 1024 { ("rms_norm_narrow", rows.div_ceil(4)) } else { ("rms_norm_wide", rows) };
    let (m, k) = (rows as u32, width as u32);
    let pointers = [
        x.pointer(),
        delta.map_or(DevicePointer(0), |delta| delta.pointer()),
        weights.pointer(),
        y.pointer(),
        sums,
    ];
    let [x, added, w, out, sums] = &pointers;
    let arguments = [
        x.into(),
        added.into(),
        w.into(),
        out.into(),
        sums.into(),
        Argument::new(&m),
        (&k).into(),
        (&group).into(),
        (&epsilon).into(),
    ];
    let bytes =
        rows * width * if delta.is_some() { 8 } else { 4 } + width * 4 + Sums::bytes(group, [rows, width]);
    let describe = || (format!("{rows}x{width}"), Work { operations: 0, bytes: bytes as u64 });
    let kernel = kernels.kernel(entry)?;
    // SAFETY: all rows are of `width` numbers and the sums have room for theirs; they are aligned and of the kernels'
    // context; `x` is the caller's to write when there is a delta.
    unsafe { kernel.launch(queue, [blocks as u32, 1, 1], &arguments, describe) }
}
