//! Gradients of a prompt's attention.

use crate::attention::{AttentionParams, KvFormat, Problem};
use crate::check::{at_most, length, place};
use crate::profiler::{Queue, Work};
use crate::{Error, Kernels};
use half::bf16;
use halfbyte_cuda_driver::{Argument, Context, DeviceBuffer, DeviceSlice, DeviceSliceMut};

/// Lines and positions of a block.
const BLOCK: usize = 64;

/// The results of [`prefill`](crate::attention::prefill), and the gradient of its output.
#[derive(Debug, Clone, Copy)]
pub struct Forward<'a> {
    /// The outputs, `[row][n_heads][head_dim]`.
    pub out: DeviceSlice<'a, bf16>,
    /// The log-sum-exp, `[n_heads][rows]`.
    pub lse: DeviceSlice<'a, f32>,
    /// The gradient of the outputs, laid out like them.
    pub dout: DeviceSlice<'a, bf16>,
}

/// The buffers that the gradients are written to.
#[derive(Debug)]
pub struct Gradients<'a> {
    /// The gradient of the queries, `[row][n_heads][head_dim]`.
    pub dq: DeviceSliceMut<'a, bf16>,
    /// The gradient of the keys, `[position][n_kv_heads][head_dim]`, of `kv_len` positions.
    pub dk: DeviceSliceMut<'a, bf16>,
    /// The gradient of the values, laid out like that of the keys.
    pub dv: DeviceSliceMut<'a, bf16>,
}

/// Room for a log-sum-exp and a sum for each query head of a row, for one call of [`backward`] at a time.
#[derive(Debug)]
pub struct BackwardBuffers {
    statistics: DeviceBuffer<f32>,
}

impl BackwardBuffers {
    /// Room for `rows` rows of layers of `params`.
    ///
    /// # Errors
    /// [`Error::HeadGroups`]; [`Error::Driver`], when the memory is not there.
    pub fn new(context: &Context, params: &AttentionParams, rows: usize) -> Result<Self, Error> {
        params.check()?;
        Ok(Self { statistics: DeviceBuffer::uninit(context, numbers(params, rows))? })
    }
}

/// The length of the statistics: two numbers for each line, with the lines of a kv head padded to an even number.
fn numbers(params: &AttentionParams, rows: usize) -> usize {
    let lines = rows.saturating_mul(params.group());
    lines.saturating_add(lines % 2).saturating_mul(params.n_kv_heads).saturating_mul(2)
}

/// Queues the gradients of `problem`'s queries, keys and values: causal attention over a bf16 cache, heads of 64 or 128
/// numbers, windows too.
///
/// ```text
/// P = e^(score - lse)      dS = P (dout . value - sum over d of dout out)
/// dq = scale sum over j of dS key        dk = scale sum over lines of dS q        dv = sum over lines of P dout
/// ```
///
/// The query heads that share a kv head are summed in its gradients. Nothing is added to what the buffers hold, and no
/// atomics are used: the same bits every time.
///
/// # Numerics
/// P and dS are computed in f32 and rounded to bf16 before they meet keys, queries and gradients; sums are f32, results
/// bf16. What is computed is the gradient at the outputs as they were rounded: `out`'s rounding makes an error of up to
/// `2^-8 sum over d of |dout out|` in each dS's second term.
///
/// # Errors
/// As for [`prefill`](crate::attention::prefill); [`Error::HeadDim`] for 256, [`Error::Parameter`] for attention that is not causal,
/// a soft-cap, sinks or an fp8 cache; before anything is queued. [`Error::Driver`].
#[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
pub fn backward<'q>(
    kernels: &Kernels,
    queue: impl Into<Queue<'q>>,
    problem: &Problem<'_>,
    buffers: &mut BackwardBuffers,
    forward: &Forward<'_>,
    gradients: &mut Gradients<'_>,
) -> Result<(), Error> {
    let (queue, params, rows, kv_len) = (queue.into(), problem.params, problem.rows, problem.kv_len);
    let a = problem.arguments(kernels)?;
    refuse(problem)?;
    let width = params.width();
    let kv_width = params.n_kv_heads * params.head_dim;
    at_most("positions times query heads of attention", i32::MAX as usize, kv_len * params.n_heads)?;
    let context = kernels.context();
    let Forward { out, lse, dout } = forward;
    length("attention's output", rows * width, out.len())?;
    length("the log-sum-exp", rows * params.n_heads, lse.len())?;
    length("the gradient of attention's output", rows * width, dout.len())?;
    place("attention's output", context, out.context(), out.pointer(), 16)?;
    place("the log-sum-exp", context, lse.context(), lse.pointer(), 4)?;
    place("the gradient of attention's output", context, dout.context(), dout.pointer(), 16)?;
    let Gradients { dq, dk, dv } = gradients;
    length("the gradient of the queries", rows * width, dq.len())?;
    length("the gradient of the keys", kv_len * kv_width, dk.len())?;
    length("the gradient of the values", kv_len * kv_width, dv.len())?;
    place("the gradient of the queries", context, dq.context(), dq.pointer(), 16)?;
    place("the gradient of the keys", context, dk.context(), dk.pointer(), 16)?;
    place("the gradient of the values", context, dv.context(), dv.pointer(), 16)?;
    let statistics = &buffers.statistics;
    at_most("rows and query heads in attention's buffers", statistics.len(), numbers(&params, rows))?;
    place("attention's buffers", context, statistics.context(), statistics.pointer(), 16)?;

    let [of_delta, of_dq, of_dkdv] = match params.head_dim {
        64 => ["attention_backward_delta_d64", "attention_backward_dq_d64", "attention_backward_dkdv_d64"],
        _ => ["attention_backward_delta_d128", "attention_backward_dq_d128", "attention_backward_dkdv_d128"],
    };
    let kernel = [kernels.kernel(of_delta)?, kernels.kernel(of_dq)?, kernels.kernel(of_dkdv)?];
    let (statistics, out, lse, dout) = (statistics.pointer(), out.pointer(), lse.pointer(), dout.pointer());
    let (dq, dk, dv) = (dq.pointer(), dk.pointer(), dv.pointer());
    let (lines, kv_heads) = (rows * params.group(), params.n_kv_heads as u32);
    let (shape, Work { operations, bytes }) = problem.work();
    // A pair takes two products in the forward pass.
    let work =
        |products: u64| (shape.clone(), Work { operations: operations / 2 * products, bytes: bytes * 2 });
    if rows > 0 {
        let arguments = [
            Argument::new(&out),
            Argument::new(&dout),
            Argument::new(&lse),
            Argument::new(&statistics),
            Argument::new(&a.rows),
            Argument::new(&a.n_heads),
            Argument::new(&a.group),
        ];
        let grid = [lines.div_ceil(1024 / params.head_dim) as u32, kv_heads, 1];
        let describe = || {
            (
                shape.clone(),
                Work { operations: 0, bytes: (rows * params.n_heads * (params.head_dim * 4 + 12)) as u64 },
            )
        };
        // SAFETY: outputs, their gradient, lse and statistics have the sizes of the problem, are aligned and of the
        // kernels' context.
        unsafe { kernel[0].launch(queue, grid, &arguments, describe)? };
    }
    let mut shared = a.cache();
    shared.extend([Argument::new(&dout), Argument::new(&statistics)]);
    let numbers = [
        Argument::new(&a.rows),
        Argument::new(&a.n_heads),
        Argument::new(&a.group),
        Argument::new(&a.capacity),
        Argument::new(&a.first),
        Argument::new(&a.kv_len),
        Argument::new(&a.window),
        Argument::new(&a.scale),
        Argument::new(&params.scale),
    ];
    if rows > 0 {
        let arguments = [&shared[..], &[Argument::new(&dq)], &numbers].concat();
        let grid = [lines.div_ceil(BLOCK) as u32, kv_heads, 1];
        // SAFETY: as above; the gradient has the queries' size, and the positions in use lie in the cache.
        unsafe { kernel[1].launch(queue, grid, &arguments, || work(3))? };
    }
    if kv_len > 0 {
        let arguments = [&shared[..], &[Argument::new(&dk), Argument::new(&dv)], &numbers].concat();
        let grid = [kv_len.div_ceil(BLOCK) as u32, kv_heads, 1];
        // SAFETY: as above; the gradients hold the positions in use.
        unsafe { kernel[2].launch(queue, grid, &arguments, || work(4))? };
    }
    Ok(())
}

/// Refuses the problems that the forward kernels take and the backward kernels don't.
fn refuse(problem: &Problem<'_>) -> Result<(), Error> {
    let AttentionParams { head_dim, causal, soft_cap, .. } = problem.params;
    if head_dim > 128 {
        return Err(Error::HeadDim { expected: "64 or 128 in the backward pass", got: head_dim });
    }
    let wrong = |what, expected, got: String| Err(Error::Parameter { what, expected, got });
    if !causal {
        return wrong("mask", "causal in the backward pass", "none".into());
    }
    if let Some(cap) = soft_cap {
        return wrong("soft-cap", "none in the backward pass", cap.to_string());
    }
    if let Some(sinks) = problem.sinks {
        return wrong("sinks", "none in the backward pass", sinks.len().to_string());
    }
    match problem.cache.layout().format() {
        KvFormat::Bf16 => Ok(()),
        format @ KvFormat::Fp8 => wrong("KV cache", "bf16 in the backward pass", format.to_string()),
    }
}
