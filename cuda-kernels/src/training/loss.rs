//! The loss.

use crate::check::{at_most, length, multiple_of, place};
use crate::profiler::{Queue, Work};
use crate::{Error, Kernels};
use half::bf16;
use halfbyte_cuda_driver::{Argument, DeviceSlice, DeviceSliceMut};

/// Queues the loss of each row of logits against its target, and the gradient of the logits.
///
/// ```text
/// loss[r] = -ln softmax(logits[r])[target]      gradient[r] = scale (softmax(logits[r]) - onehot(target))
/// ```
///
/// `scale` is 1 over the number of predicted tokens for the gradient of the mean. A target of `u32::MAX`, or another beyond
/// the row, asks for no prediction: loss and gradient 0. A NaN or a positive infinity in a row makes its loss and gradient
/// NaN. In f32, the gradient rounded to bf16; the same bits every time.
///
/// # Errors
/// [`Error::Inputs`] unless a row has a multiple of 4 logits, [`Error::Length`], [`Error::Alignment`] (16 bytes; targets
/// and losses 4), [`Error::OtherContext`] or [`Error::TooLarge`], before anything is queued; [`Error::Driver`].
#[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
#[allow(clippy::too_many_arguments, reason = "a kernel's operands, each of another kind")]
pub fn cross_entropy<'q>(
    kernels: &Kernels,
    queue: impl Into<Queue<'q>>,
    [rows, vocabulary]: [usize; 2],
    logits: DeviceSlice<'_, f32>,
    targets: DeviceSlice<'_, u32>,
    scale: f32,
    losses: &mut DeviceSliceMut<'_, f32>,
    gradient: &mut DeviceSliceMut<'_, bf16>,
) -> Result<(), Error> {
    multiple_of("cross_entropy", 4, vocabulary)?;
    at_most("the logits of a row", i32::MAX as usize, vocabulary)?;
    at_most("the rows of a loss", i32::MAX as usize, rows)?;
    length("the logits", rows * vocabulary, logits.len())?;
    length("the targets", rows, targets.len())?;
    length("the losses", rows, losses.len())?;
    length("the gradient of the logits", rows * vocabulary, gradient.len())?;
    let context = kernels.context();
    place("the logits", context, logits.context(), logits.pointer(), 16)?;
    place("the targets", context, targets.context(), targets.pointer(), 4)?;
    place("the losses", context, losses.context(), losses.pointer(), 4)?;
    place("the gradient of the logits", context, gradient.context(), gradient.pointer(), 16)?;
    if rows == 0 {
        return Ok(());
    }
    let pointers = [logits.pointer(), targets.pointer(), losses.pointer(), gradient.pointer()];
    let [x, target, loss, d] = &pointers;
    let n = vocabulary as u32;
    let arguments =
        [x.into(), target.into(), loss.into(), d.into(), Argument::new(&n), Argument::new(&scale)];
    let kernel = kernels.kernel("cross_entropy")?;
    let describe =
        || (format!("{rows}x{vocabulary}"), Work { operations: 0, bytes: (rows * vocabulary * 6) as u64 });
    // SAFETY: all have the sizes of `rows` and `n`, are aligned and of the kernels' context; a target is compared with `n`
    // before it is used.
    unsafe { kernel.launch(queue.into(), [rows as u32, 1, 1], &arguments, describe) }
}
