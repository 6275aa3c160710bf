//! Rows of a table of embeddings.

use crate::check::{at_most, length, multiple_of, place};
use crate::profiler::{Queue, Work};
use crate::{DeviceWeights, Error, Kernels, WeightFormat};
use half::bf16;
use halfbyte_cuda_driver::{Argument, DevicePointer, DeviceSlice, DeviceSliceMut};
use halfbyte_q4::affine::GroupSize;

/// Queues `y[r] = table[tokens[r]]`: a row of `table.inputs()` numbers for each token, rounded to bf16 once.
///
/// Tokens are read on the device, so that the sampler's may go in without the host seeing them. One that the table does
/// not have gives a row of NaN.
///
/// # Errors
/// [`Error::Length`], [`Error::Alignment`] (16 bytes; tokens 4), [`Error::OtherContext`] or [`Error::TooLarge`], before
/// anything is queued; [`Error::Driver`].
pub fn embed<'q>(
    kernels: &Kernels,
    queue: impl Into<Queue<'q>>,
    table: &DeviceWeights,
    tokens: DeviceSlice<'_, u32>,
    y: &mut DeviceSliceMut<'_, bf16>,
) -> Result<(), Error> {
    let entry = match table.format() {
        WeightFormat::Affine4(GroupSize::G32) => "embedding_affine4_g32",
        WeightFormat::Affine4(GroupSize::G64) => "embedding_affine4_g64",
        WeightFormat::Affine4(GroupSize::G128) => "embedding_affine4_g128",
        WeightFormat::Q4_0 => "embedding_q4_0",
        WeightFormat::Q8_0 => "embedding_q8_0",
        WeightFormat::Bf16 => "embedding_bf16",
    };
    place("the table of embeddings", kernels.context(), table.codes.context(), table.codes.pointer(), 16)?;
    let mut arrays = vec![table.codes.pointer()];
    if table.format() != WeightFormat::Bf16 {
        arrays.push(table.scales.pointer());
    }
    if matches!(table.format(), WeightFormat::Affine4(_)) {
        arrays.push(table.biases.pointer());
    }
    let table =
        Table { entry, arrays: &arrays, rows: table.outputs(), width: table.inputs(), bytes: table.bytes() };
    launch(kernels, queue.into(), &table, tokens, y)
}

/// [`embed`] from a table of bf16 numbers that lies on the device: one that is trained.
///
/// # Errors
/// As for [`embed`], and [`Error::Inputs`] unless the width is a multiple of 8.
pub fn embed_bf16<'q>(
    kernels: &Kernels,
    queue: impl Into<Queue<'q>>,
    width: usize,
    table: DeviceSlice<'_, bf16>,
    tokens: DeviceSlice<'_, u32>,
    y: &mut DeviceSliceMut<'_, bf16>,
) -> Result<(), Error> {
    multiple_of("embedding_bf16", 8, width)?;
    let rows = table.len() / width;
    at_most("the rows of a table of embeddings", i32::MAX as usize, rows)?;
    length("the table of embeddings", rows * width, table.len())?;
    place("the table of embeddings", kernels.context(), table.context(), table.pointer(), 16)?;
    let (entry, bytes) = ("embedding_bf16", table.len() * 2);
    launch(kernels, queue.into(), &Table { entry, arrays: &[table.pointer()], rows, width, bytes }, tokens, y)
}

/// A table, and the entry point that takes its arrays.
struct Table<'a> {
    entry: &'static str,
    arrays: &'a [DevicePointer],
    rows: usize,
    width: usize,
    bytes: usize,
}

/// Checks tokens and rows, and launches. The arrays are the entry point's, of `rows` rows of `width` numbers.
#[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
fn launch(
    kernels: &Kernels,
    queue: Queue<'_>,
    table: &Table<'_>,
    tokens: DeviceSlice<'_, u32>,
    y: &mut DeviceSliceMut<'_, bf16>,
) -> Result<(), Error> {
    let (rows, width) = (tokens.len(), table.width);
    at_most("the tokens of an embedding", i32::MAX as usize, rows)?;
    // The grid's second extent ends at 65,535.
    at_most("the width of an embedding", 65_535 * 1024, width)?;
    length("the rows of an embedding", rows * width, y.len())?;
    let context = kernels.context();
    place("the tokens of an embedding", context, tokens.context(), tokens.pointer(), 4)?;
    place("the rows of an embedding", context, y.context(), y.pointer(), 16)?;
    if y.is_empty() {
        return Ok(());
    }
    let (ids, out) = (tokens.pointer(), y.pointer());
    let (n, k) = (table.rows as u32, width as u32);
    let mut arguments = vec![Argument::new(&ids)];
    arguments.extend(table.arrays.iter().map(Argument::new));
    arguments.extend([Argument::new(&out), Argument::new(&n), Argument::new(&k)]);
    let row = table.bytes / table.rows.max(1) + 2 * width;
    let describe = || (format!("{rows}x{width}"), Work { operations: 0, bytes: (rows * row) as u64 });
    let kernel = kernels.kernel(table.entry)?;
    // SAFETY: the arguments are the entry point's; the table has `n` rows of `k` numbers, which the kernel compares tokens
    // with, and `y` a row for each token; all are aligned and of the kernels' context.
    unsafe { kernel.launch(queue, [rows as u32, k.div_ceil(1024), 1], &arguments, describe) }
}
