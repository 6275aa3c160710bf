//! Rows of a table of embeddings.

use crate::check::{at_most, length, place};
use crate::profiler::{Queue, Work};
use crate::{Error, Format, Kernels, Weights};
use half::bf16;
use halfbyte_cuda_driver::{Argument, DeviceSlice, DeviceSliceMut};
use halfbyte_q4::affine::GroupSize;

/// Queues `y[r] = table[tokens[r]]`: a row of `table.inputs()` numbers for each token, rounded to bf16 once.
///
/// Tokens are read on the device, so that the sampler's may go in without the host seeing them. One that the table does
/// not have gives a row of NaN.
///
/// # Errors
/// [`Error::Length`], [`Error::Alignment`] (16 bytes; tokens 4), [`Error::OtherContext`] or [`Error::TooLarge`], before
/// anything is queued; [`Error::Driver`].
#[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
pub fn embed<'q>(
    kernels: &Kernels,
    queue: impl Into<Queue<'q>>,
    table: &Weights,
    tokens: DeviceSlice<'_, u32>,
    y: &mut DeviceSliceMut<'_, bf16>,
) -> Result<(), Error> {
    let (rows, width) = (tokens.len(), table.inputs());
    let entry = match table.format() {
        Format::Affine4(GroupSize::G32) => "embedding_affine4_g32",
        Format::Affine4(GroupSize::G64) => "embedding_affine4_g64",
        Format::Affine4(GroupSize::G128) => "embedding_affine4_g128",
        Format::Q4_0 => "embedding_q4_0",
        Format::Q8_0 => "embedding_q8_0",
        Format::Bf16 => "embedding_bf16",
    };
    at_most("the tokens of an embedding", i32::MAX as usize, rows)?;
    // The grid's second extent ends at 65,535.
    at_most("the width of an embedding", 65_535 * 1024, width)?;
    length("the rows of an embedding", rows * width, y.len())?;
    let context = kernels.context();
    place("the tokens of an embedding", context, tokens.context(), tokens.pointer(), 4)?;
    place("the rows of an embedding", context, y.context(), y.pointer(), 16)?;
    place("the table of embeddings", context, table.codes.context(), table.codes.pointer(), 16)?;
    if y.is_empty() {
        return Ok(());
    }
    let pointers = [
        tokens.pointer(),
        table.codes.pointer(),
        table.scales.pointer(),
        table.biases.pointer(),
        y.pointer(),
    ];
    let [tokens, codes, scales, biases, out] = &pointers;
    let (n, k) = (table.outputs() as u32, width as u32);
    let mut arguments: Vec<Argument<'_>> = vec![tokens.into(), codes.into()];
    if table.format() != Format::Bf16 {
        arguments.push(scales.into());
    }
    if matches!(table.format(), Format::Affine4(_)) {
        arguments.push(biases.into());
    }
    arguments.extend([out.into(), Argument::new(&n), (&k).into()]);
    let row = table.bytes() / table.outputs().max(1) + 2 * width;
    let describe = || (format!("{rows}x{width}"), Work { operations: 0, bytes: (rows * row) as u64 });
    let kernel = kernels.kernel(entry)?;
    // SAFETY: the arguments are the entry point's; the table has `n` rows of `k` numbers, which the kernel compares tokens
    // with, and `y` a row for each token; all are aligned and of the kernels' context.
    unsafe { kernel.launch(queue.into(), [rows as u32, k.div_ceil(1024), 1], &arguments, describe) }
}
