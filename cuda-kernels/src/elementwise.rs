//! The kernels between the products: the residual sum and SwiGLU, on bf16 numbers.

use crate::check::{at_most, length, place};
use crate::profiler::{Queue, Work};
use crate::{Error, Kernels, Sums};
use half::bf16;
use halfbyte_cuda_driver::{Argument, DeviceSlice, DeviceSliceMut};

/// Queues `out = a + b`, element by element, in f32, rounded to bf16.
///
/// # Errors
/// [`Error::Length`], [`Error::Alignment`] (16 bytes), [`Error::OtherContext`] or [`Error::TooLarge`], before anything is
/// queued; [`Error::Driver`].
pub fn add<'q>(
    kernels: &Kernels,
    queue: impl Into<Queue<'q>>,
    a: DeviceSlice<'_, bf16>,
    b: DeviceSlice<'_, bf16>,
    out: &mut DeviceSliceMut<'_, bf16>,
) -> Result<(), Error> {
    sum(kernels, queue.into(), a, b, out)
}

/// Queues `x = x + delta`, as [`add`].
///
/// # Errors
/// As for [`add`].
pub fn add_assign<'q>(
    kernels: &Kernels,
    queue: impl Into<Queue<'q>>,
    x: &mut DeviceSliceMut<'_, bf16>,
    delta: DeviceSlice<'_, bf16>,
) -> Result<(), Error> {
    sum(kernels, queue.into(), x.as_slice(), delta, x)
}

/// `out` is the caller's to write, and may be `a`.
#[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
fn sum(
    kernels: &Kernels,
    queue: Queue<'_>,
    a: DeviceSlice<'_, bf16>,
    b: DeviceSlice<'_, bf16>,
    out: &DeviceSliceMut<'_, bf16>,
) -> Result<(), Error> {
    let n = out.len();
    length("a sum's first operand", n, a.len())?;
    length("a sum's second operand", n, b.len())?;
    let blocks = n.div_ceil(2048);
    at_most("the blocks of a sum", i32::MAX as usize, blocks)?;
    place("a sum's first operand", kernels.context(), a.context(), a.pointer(), 16)?;
    place("a sum's second operand", kernels.context(), b.context(), b.pointer(), 16)?;
    place("a sum", kernels.context(), out.context(), out.pointer(), 16)?;
    if n == 0 {
        return Ok(());
    }
    let (a, b, out, count) = (a.pointer(), b.pointer(), out.pointer(), n as u64);
    let arguments = [Argument::new(&a), Argument::new(&b), Argument::new(&out), Argument::new(&count)];
    let kernel = kernels.kernel("add_bf16")?;
    // SAFETY: all three have `count` numbers, are aligned and of the kernels' context; the kernel may write its first
    // operand.
    unsafe { kernel.launch(queue, [blocks as u32, 1, 1], &arguments, || moved(1, n, 6)) }
}

/// Queues `h = silu(gate) * up`: `gate_up` has `rows` rows of `2 * width`, gate before up; `h` has `rows` of `width`.
///
/// In f32, one rounding to bf16. With `sums`, also the sums of the groups of `h`.
///
/// # Errors
/// [`Error::Inputs`] unless the width is a multiple of 8 (and of the group), [`Error::Length`], [`Error::Alignment`] (16
/// bytes), [`Error::OtherContext`] or [`Error::TooLarge`], before anything is queued; [`Error::Driver`].
#[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
pub fn swiglu<'q>(
    kernels: &Kernels,
    queue: impl Into<Queue<'q>>,
    [rows, width]: [usize; 2],
    gate_up: DeviceSlice<'_, bf16>,
    h: &mut DeviceSliceMut<'_, bf16>,
    sums: Option<&mut Sums<'_>>,
) -> Result<(), Error> {
    let grid = grid("swiglu", rows, width, 8)?;
    length("gate and up", rows * 2 * width, gate_up.len())?;
    length("swiglu's output", rows * width, h.len())?;
    place("gate and up", kernels.context(), gate_up.context(), gate_up.pointer(), 16)?;
    place("swiglu's output", kernels.context(), h.context(), h.pointer(), 16)?;
    let (sums, group) = Sums::parameters(sums.as_deref(), "swiglu", kernels.context(), [rows, width])?;
    if h.is_empty() {
        return Ok(());
    }
    let (from, to, m, f) = (gate_up.pointer(), h.pointer(), rows as u32, width as u32);
    let arguments = [
        Argument::new(&from),
        Argument::new(&to),
        Argument::new(&sums),
        Argument::new(&m),
        (&f).into(),
        (&group).into(),
    ];
    let kernel = kernels.kernel("swiglu")?;
    let describe = || {
        let (shape, Work { operations, bytes }) = moved(rows, width, 6);
        (shape, Work { operations, bytes: bytes + Sums::bytes(group, [rows, width]) as u64 })
    };
    // SAFETY: all have the sizes of `rows` and `width`, are aligned and of the kernels' context.
    unsafe { kernel.launch(queue.into(), grid, &arguments, describe) }
}

/// `columns` a thread, in blocks that take 128 threads' eight or 256 threads' two; a column of blocks a row.
pub(crate) fn grid(
    kernel: &'static str,
    rows: usize,
    width: usize,
    columns: usize,
) -> Result<[u32; 3], Error> {
    let block = if columns == 8 { 1024 } else { 512 };
    at_most("the rows of an activation", i32::MAX as usize, rows)?;
    // The grid's second extent ends at 65,535.
    at_most("the width of an activation", 65_535 * block, width)?;
    if !width.is_multiple_of(columns) {
        return Err(Error::Inputs { kernel, multiple: columns, got: width });
    }
    Ok([rows as u32, width.div_ceil(block) as u32, 1])
}

/// The shape and the work of a kernel that moves `bytes` bytes for each of `rows * width` numbers.
pub(crate) fn moved(rows: usize, width: usize, bytes: usize) -> (String, Work) {
    (format!("{rows}x{width}"), Work { operations: 0, bytes: (rows * width * bytes) as u64 })
}
