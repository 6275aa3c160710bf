//! Gradients of the small kernels: norm, SwiGLU, embedding, rotary positions.

use crate::check::{at_most, length, multiple_of, place, positions};
use crate::elementwise::{grid, moved};
use crate::profiler::{Queue, Work};
use crate::{DeviceRopeTable, Error, Kernels, RmsNorm, RopeOrder};
use half::bf16;
use halfbyte_cuda_driver::{Argument, DeviceSlice, DeviceSliceMut};

/// The buffers that the gradients of a norm are written to.
#[derive(Debug)]
pub struct NormGradients<'a> {
    /// The gradient of its input, `rows * width`: replaced, or added to.
    pub input: DeviceSliceMut<'a, bf16>,
    /// Whether `input` holds a gradient that this one is added to, in f32, rounded once: the residual stream's own.
    pub add: bool,
    /// The gradient of its weights, `width`: added to.
    pub weights: DeviceSliceMut<'a, f32>,
    /// Scratch memory of `rows` numbers.
    pub inverses: DeviceSliceMut<'a, f32>,
}

/// Queues the gradients of [`rms_norm`](crate::rms_norm) whose output's gradient is `dy`.
///
/// ```text
/// h = x inverse      d_input = inverse (w dy - h mean(w dy h))      d_weights += sum over rows of dy h
/// ```
///
/// In f32, sums in one order: the same bits every time.
///
/// # Errors
/// As for [`rms_norm`](crate::rms_norm).
#[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
pub fn rms_norm_backward<'q>(
    kernels: &Kernels,
    queue: impl Into<Queue<'q>>,
    norm: RmsNorm,
    x: DeviceSlice<'_, bf16>,
    weights: DeviceSlice<'_, f32>,
    dy: DeviceSlice<'_, bf16>,
    to: &mut NormGradients<'_>,
) -> Result<(), Error> {
    let RmsNorm { rows, width, epsilon } = norm;
    multiple_of("rms_norm_backward", 8, width)?;
    at_most("the width of a norm", 16_384, width)?;
    at_most("the rows of a norm", i32::MAX as usize, rows)?;
    let context = kernels.context();
    for (what, numbers) in [("a norm's input", x), ("the gradient of a norm's output", dy)] {
        length(what, rows * width, numbers.len())?;
        place(what, context, numbers.context(), numbers.pointer(), 16)?;
    }
    length("a norm's weights", width, weights.len())?;
    place("a norm's weights", context, weights.context(), weights.pointer(), 16)?;
    length("the gradient of a norm's input", rows * width, to.input.len())?;
    place("the gradient of a norm's input", context, to.input.context(), to.input.pointer(), 16)?;
    for (what, expected, numbers) in [
        ("the gradient of a norm's weights", width, &to.weights),
        ("the inverses of a norm's rows", rows, &to.inverses),
    ] {
        length(what, expected, numbers.len())?;
        place(what, context, numbers.context(), numbers.pointer(), 4)?;
    }
    if rows == 0 {
        return Ok(());
    }
    let queue = queue.into();
    let pointers = [x, dy].map(|numbers| numbers.pointer());
    let [x, dy] = &pointers;
    let (w, dx) = (weights.pointer(), to.input.pointer());
    let (dw, inverses) = (to.weights.pointer(), to.inverses.pointer());
    let (m, k, add) = (rows as u32, width as u32, u32::from(to.add));
    let describe = |passes: usize| {
        move || (format!("{rows}x{width}"), Work { operations: 0, bytes: (rows * width * 2 * passes) as u64 })
    };
    let by_row = [
        x.into(),
        dy.into(),
        Argument::new(&w),
        (&dx).into(),
        (&inverses).into(),
        Argument::new(&k),
        Argument::new(&epsilon),
        (&add).into(),
    ];
    let kernel = kernels.kernel("rms_norm_backward_rows")?;
    let passes = describe(3 + usize::from(to.add));
    // SAFETY: all have the sizes of `rows` and `width`, are aligned and of the kernels' context.
    unsafe { kernel.launch(queue, [m, 1, 1], &by_row, passes)? };
    let by_column =
        [x.into(), dy.into(), Argument::new(&inverses), (&dw).into(), Argument::new(&m), (&k).into()];
    let kernel = kernels.kernel("rms_norm_backward_weights")?;
    // SAFETY: as above; the launch before has written the inverses.
    unsafe { kernel.launch(queue, [k.div_ceil(64), 1, 1], &by_column, describe(2)) }
}

/// Queues the gradient of a table of `dw.len() / width` embeddings: `dw[tokens[r]] += dy[r]`, rows in order.
///
/// No atomics: the same bits every time. Tokens beyond the table have no gradient.
///
/// # Errors
/// [`Error::Inputs`] unless the width is a multiple of 8, [`Error::Length`], [`Error::Alignment`] (16 bytes; tokens 4),
/// [`Error::OtherContext`] or [`Error::TooLarge`], before anything is queued; [`Error::Driver`].
#[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
pub fn embed_backward<'q>(
    kernels: &Kernels,
    queue: impl Into<Queue<'q>>,
    width: usize,
    tokens: DeviceSlice<'_, u32>,
    dy: DeviceSlice<'_, bf16>,
    dw: &mut DeviceSliceMut<'_, f32>,
) -> Result<(), Error> {
    let rows = tokens.len();
    multiple_of("embedding_backward", 8, width)?;
    at_most("the width of an embedding", i32::MAX as usize, width)?;
    at_most("the tokens of an embedding", i32::MAX as usize, rows)?;
    let table = dw.len() / width;
    at_most("the rows of a table of embeddings", u32::MAX as usize, table)?;
    length("the gradient of a table of embeddings", table * width, dw.len())?;
    length("the gradient of embeddings", rows * width, dy.len())?;
    let context = kernels.context();
    place("the tokens of an embedding", context, tokens.context(), tokens.pointer(), 4)?;
    place("the gradient of embeddings", context, dy.context(), dy.pointer(), 16)?;
    place("the gradient of a table of embeddings", context, dw.context(), dw.pointer(), 16)?;
    if rows == 0 {
        return Ok(());
    }
    let (ids, d, to) = (tokens.pointer(), dy.pointer(), dw.pointer());
    let (m, n, k) = (rows as u32, table as u32, width as u32);
    let arguments =
        [Argument::new(&ids), (&d).into(), (&to).into(), Argument::new(&m), (&n).into(), (&k).into()];
    let kernel = kernels.kernel("embedding_backward")?;
    let describe = || (format!("{rows}x{width}"), Work { operations: 0, bytes: (rows * width * 10) as u64 });
    // SAFETY: there are `m` tokens and rows of `dy`, and `n` rows of `dw`, with which tokens are compared; all are aligned
    // and of the kernels' context.
    unsafe { kernel.launch(queue.into(), [m, 1, 1], &arguments, describe) }
}

/// Queues the gradient of rotary positions, in place: `rows` rows of heads, at positions `start` and on, turned back.
///
/// # Errors
/// [`Error::Position`] when the table ends before the last row's position, [`Error::Length`], [`Error::Alignment`] (16 bytes), [`Error::OtherContext`] or [`Error::TooLarge`], before anything is queued;
/// [`Error::Driver`].
#[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
pub fn rope_backward<'q>(
    kernels: &Kernels,
    queue: impl Into<Queue<'q>>,
    [rows, heads]: [usize; 2],
    start: usize,
    (table, order): (&DeviceRopeTable, RopeOrder),
    gradient: &mut DeviceSliceMut<'_, bf16>,
) -> Result<(), Error> {
    let d = table.head_dim();
    at_most("the rows of a window", i32::MAX as usize, rows)?;
    at_most("the numbers of a row's heads", 65_535 * 2048, heads * d)?;
    length("the gradient of heads", rows * heads * d, gradient.len())?;
    let context = kernels.context();
    place("the gradient of heads", context, gradient.context(), gradient.pointer(), 16)?;
    let angles = table.angles();
    place("the rotary table", context, angles.context(), angles.pointer(), 16)?;
    positions("the rotary table", table.positions(), rows, start)?;
    if gradient.is_empty() {
        return Ok(());
    }
    let (to, from) = (gradient.pointer(), angles.pointer());
    let numbers = [heads, d, heads * d, start].map(|n| n as u32);
    let [count, head_dim, stride, first] = &numbers;
    let pairs = u32::from(order == RopeOrder::Adjacent);
    let arguments = [
        Argument::new(&to),
        (&from).into(),
        count.into(),
        head_dim.into(),
        stride.into(),
        first.into(),
        Argument::new(&pairs),
    ];
    let kernel = kernels.kernel("rope_backward")?;
    let describe =
        || (format!("{rows}x{heads}x{d}"), Work { operations: 0, bytes: (rows * heads * d * 4) as u64 });
    let grid = [rows as u32, (heads * d).div_ceil(2048) as u32, 1];
    // SAFETY: the gradient has `rows` rows of `heads` heads, and the table their positions; both are aligned and of the
    // kernels' context.
    unsafe { kernel.launch(queue.into(), grid, &arguments, describe) }
}

/// Queues the gradient of [`swiglu`](crate::swiglu)'s inputs, in place: `gate_up` becomes `d_gate_up`.
///
/// ```text
/// d_gate = dh up sigma (1 + gate (1 - sigma))      d_up = dh gate sigma      sigma = 1 / (1 + e^-gate)
/// ```
///
/// # Errors
/// As for [`swiglu`](crate::swiglu), but the width has to be even and the alignment is 4 bytes.
#[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
pub fn swiglu_backward<'q>(
    kernels: &Kernels,
    queue: impl Into<Queue<'q>>,
    [rows, width]: [usize; 2],
    gate_up: &mut DeviceSliceMut<'_, bf16>,
    dh: DeviceSlice<'_, bf16>,
) -> Result<(), Error> {
    let grid = grid("swiglu_backward", rows, width, 2)?;
    length("gate and up", rows * 2 * width, gate_up.len())?;
    length("the gradient of swiglu's output", rows * width, dh.len())?;
    place("gate and up", kernels.context(), gate_up.context(), gate_up.pointer(), 4)?;
    place("the gradient of swiglu's output", kernels.context(), dh.context(), dh.pointer(), 4)?;
    if dh.is_empty() {
        return Ok(());
    }
    let (both, d, m, f) = (gate_up.pointer(), dh.pointer(), rows as u32, width as u32);
    let arguments =
        [Argument::new(&both), Argument::new(&d), Argument::new(&both), Argument::new(&m), Argument::new(&f)];
    let kernel = kernels.kernel("swiglu_backward")?;
    // SAFETY: both have the sizes of `rows` and `width`, are aligned and of the kernels' context; the kernel may write
    // what it reads.
    unsafe { kernel.launch(queue.into(), grid, &arguments, || moved(rows, width, 10)) }
}
