//! What a training step needs beside the products: gradients of the small kernels, the loss, the optimizer.

use crate::check::{at_most, length, multiple_of, place};
use crate::profiler::{Queue, Work};
use crate::{DeviceRopeTable, Error, Kernels, RmsNorm, RopeOrder};
use half::bf16;
use halfbyte_cuda_driver::{Argument, DeviceSlice, DeviceSliceMut};

/// AdamW's settings and the step's number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// Learning rate of this step.
    pub rate: f64,
    /// Decay of the mean of the gradients.
    pub beta1: f64,
    /// Decay of the mean of their squares.
    pub beta2: f64,
    /// Added to the root of that mean.
    pub epsilon: f64,
    /// Decoupled weight decay: a weight loses `rate * decay` of itself a step.
    pub decay: f64,
    /// From 1: what the means' starts at zero are corrected by.
    pub step: u64,
}

/// The layout of `adamw.cu`'s `Step`.
#[derive(Debug, Clone, Copy, bytemuck::NoUninit)]
#[repr(C)]
struct Step {
    b1: f32,
    b2: f32,
    keep: f32,
    step: f32,
    root: f32,
    epsilon: f32,
}

/// What AdamW keeps of a tensor's `n` weights: all of the same length.
#[derive(Debug)]
pub struct AdamState<'a> {
    /// The weights in f32.
    pub weights: DeviceSliceMut<'a, f32>,
    /// Mean of the gradients; zeros before the first step.
    pub first: DeviceSliceMut<'a, f32>,
    /// Mean of their squares; zeros before the first step.
    pub second: DeviceSliceMut<'a, f32>,
    /// The weights rounded to bf16, which the next forward pass reads; only written.
    pub copy: DeviceSliceMut<'a, bf16>,
}

impl AdamW {
    /// Queues a step: moves `state` by the gradient.
    ///
    /// ```text
    /// m = beta1 m + (1 - beta1) g      v = beta2 v + (1 - beta2) g^2
    /// w = w - rate decay w - rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
    /// ```
    ///
    /// In f32; the corrections are made in f64 and rounded once. A gradient that is not finite spoils its own weight.
    ///
    /// # Errors
    /// [`Error::Mismatch`] for step 0, [`Error::Length`], [`Error::Alignment`] (16 bytes), [`Error::OtherContext`] or
    /// [`Error::TooLarge`], before anything is queued; [`Error::Driver`].
    #[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
    pub fn step<'q>(
        &self,
        kernels: &Kernels,
        queue: impl Into<Queue<'q>>,
        state: &mut AdamState<'_>,
        gradient: DeviceSlice<'_, f32>,
    ) -> Result<(), Error> {
        if self.step == 0 {
            return Err(Error::Mismatch { what: "AdamW's first step", expected: 1, got: 0 });
        }
        let n = state.weights.len();
        length("the means of the gradients", n, state.first.len())?;
        length("the means of the squares", n, state.second.len())?;
        length("the bf16 copy of the weights", n, state.copy.len())?;
        length("the gradient of the weights", n, gradient.len())?;
        let context = kernels.context();
        place("the weights", context, state.weights.context(), state.weights.pointer(), 16)?;
        place("the means of the gradients", context, state.first.context(), state.first.pointer(), 16)?;
        place("the means of the squares", context, state.second.context(), state.second.pointer(), 16)?;
        place("the bf16 copy of the weights", context, state.copy.context(), state.copy.pointer(), 16)?;
        place("the gradient of the weights", context, gradient.context(), gradient.pointer(), 16)?;
        let blocks = n.div_ceil(1024);
        at_most("the blocks of an optimizer's step", i32::MAX as usize, blocks)?;
        if n == 0 {
            return Ok(());
        }
        let steps = self.step as f64;
        let numbers = Step {
            b1: (1.0 - self.beta1) as f32,
            b2: (1.0 - self.beta2) as f32,
            keep: (1.0 - self.rate * self.decay) as f32,
            step: (self.rate / (1.0 - self.beta1.powf(steps))) as f32,
            root: (1.0 / (1.0 - self.beta2.powf(steps)).sqrt()) as f32,
            epsilon: self.epsilon as f32,
        };
        let pointers = [
            state.weights.pointer(),
            state.first.pointer(),
            state.second.pointer(),
            gradient.pointer(),
            state.copy.pointer(),
        ];
        let [weights, first, second, gradient, copy] = &pointers;
        let count = n as u64;
        let arguments = [
            weights.into(),
            first.into(),
            second.into(),
            gradient.into(),
            copy.into(),
            Argument::new(&count),
            Argument::new(&numbers),
        ];
        let kernel = kernels.kernel("adamw")?;
        let describe = || (format!("{n}"), Work { operations: 0, bytes: 30 * count });
        // SAFETY: all five have `count` numbers, are aligned and of the kernels' context.
        unsafe { kernel.launch(queue.into(), [blocks as u32, 1, 1], &arguments, describe) }
    }
}

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

/// Where the gradients of a norm go.
#[derive(Debug)]
pub struct NormGradients<'a> {
    /// Of its input, `rows * width`: replaced, or added to.
    pub input: DeviceSliceMut<'a, bf16>,
    /// Whether `input` holds a gradient that this one is added to, in f32, rounded once: the residual stream's own.
    pub add: bool,
    /// Of its weights, `width`: added to.
    pub weights: DeviceSliceMut<'a, f32>,
    /// `rows` numbers to work with.
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
    if start.checked_add(rows).is_none_or(|end| end > table.positions()) {
        let (what, end) = ("the rotary table", table.positions());
        return Err(Error::Position { what, end, start, rows });
    }
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
