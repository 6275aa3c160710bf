//! Attention of a few rows: chunks of the positions side by side, then a merge.

use super::problem::{AttentionParams, Problem};
use crate::check::{at_most, length, place, same};
use crate::profiler::{Queue, Work};
use crate::{Error, Kernels};
use half::bf16;
use halfbyte_cuda_driver::{Argument, Context, DeviceBuffer, DeviceSliceMut};

/// Positions of a chunk; chunks begin at multiples of it.
pub const CHUNK: usize = 256;

/// Room for the sums over chunks, for one call of [`decode`] at a time; calls that follow one another on a stream share
/// it.
#[derive(Debug)]
pub struct DecodeBuffers {
    width: usize,
    n_heads: usize,
    /// `[row][head][chunk][head_dim]`.
    sums: DeviceBuffer<f32>,
    /// `[row][head][chunk]` of a maximum and a sum of weights.
    statistics: DeviceBuffer<f32>,
}

impl DecodeBuffers {
    /// Room for `rows` rows of layers of `params` over caches of `positions` positions.
    ///
    /// # Errors
    /// [`Error::Driver`], when the memory is not there.
    pub fn new(
        context: &Context,
        params: &AttentionParams,
        rows: usize,
        positions: usize,
    ) -> Result<Self, Error> {
        let chunks = positions.div_ceil(CHUNK);
        let lines = rows.saturating_mul(params.n_heads).saturating_mul(chunks);
        Ok(Self {
            width: params.head_dim,
            n_heads: params.n_heads,
            sums: DeviceBuffer::uninit(context, lines.saturating_mul(params.head_dim))?,
            statistics: DeviceBuffer::uninit(context, lines.saturating_mul(2))?,
        })
    }
}

/// Queues attention of `problem` into `out`, `[row][n_heads][head_dim]`, for a few rows over many positions: a decode
/// step, the rows of a verified window.
///
/// A block takes the query heads that share a key/value head, of up to 16 or 64 lines, over [`CHUNK`] positions; a second
/// kernel puts the chunks together in ascending order. A row's bits are the same alone and among other rows.
///
/// # Numerics
/// As for [`prefill`](super::prefill); the merge adds a few units of f32.
///
/// # Errors
/// As for [`prefill`](super::prefill), and for buffers that were made for less ([`Error::TooLarge`]) or for other heads
/// ([`Error::Mismatch`]).
#[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
pub fn decode<'q>(
    kernels: &Kernels,
    queue: impl Into<Queue<'q>>,
    problem: &Problem<'_>,
    buffers: &mut DecodeBuffers,
    out: &mut DeviceSliceMut<'_, bf16>,
) -> Result<(), Error> {
    let (queue, params, rows) = (queue.into(), problem.params, problem.rows);
    let a = problem.arguments(kernels)?;
    length("attention's output", rows * params.width(), out.len())?;
    place("attention's output", kernels.context(), out.context(), out.pointer(), 16)?;
    same("the head_dim of attention's buffers", params.head_dim, buffers.width)?;
    same("the query heads of attention's buffers", params.n_heads, buffers.n_heads)?;
    if rows == 0 {
        return Ok(());
    }
    let first_chunk = problem.seen(0).start / CHUNK;
    let chunks = problem.seen(rows - 1).end.div_ceil(CHUNK).saturating_sub(first_chunk);
    let room = buffers.statistics.len() / 2;
    let lines = rows.saturating_mul(params.n_heads).saturating_mul(chunks);
    at_most("rows, query heads and chunks in attention's buffers", room, lines)?;
    let context = kernels.context();
    place("attention's buffers", context, buffers.sums.context(), buffers.sums.pointer(), 16)?;
    let lines = rows * params.group();
    let narrow = lines <= 16;
    let line_blocks = lines.div_ceil(if narrow { 16 } else { 64 });
    at_most("the blocks of lines of attention", 65_535, line_blocks)?;
    let (merge, bf16, fp8) = match params.head_dim {
        64 => (
            "attention_merge_d64",
            ["attention_decode_bf16_d64_16", "attention_decode_bf16_d64_64"],
            ["attention_decode_fp8_d64_16", "attention_decode_fp8_d64_64"],
        ),
        128 => (
            "attention_merge_d128",
            ["attention_decode_bf16_d128_16", "attention_decode_bf16_d128_64"],
            ["attention_decode_fp8_d128_16", "attention_decode_fp8_d128_64"],
        ),
        _ => (
            "attention_merge_d256",
            ["attention_decode_bf16_d256_16", "attention_decode_bf16_d256_64"],
            ["attention_decode_fp8_d256_16", "attention_decode_fp8_d256_64"],
        ),
    };
    let partial = kernels.kernel(if a.scales.is_none() { bf16 } else { fp8 }[usize::from(!narrow)])?;
    let merge = kernels.kernel(merge)?;
    let (sums, statistics) = (buffers.sums.pointer(), buffers.statistics.pointer());
    let (chunk, first_chunk, chunks) = (CHUNK as u32, first_chunk as u32, chunks as u32);
    if chunks > 0 {
        let mut arguments = a.cache();
        arguments.extend([Argument::new(&sums), Argument::new(&statistics)]);
        arguments.extend(a.numbers());
        arguments.extend([Argument::new(&chunk), Argument::new(&first_chunk)]);
        let grid = [chunks, params.n_kv_heads as u32, line_blocks as u32];
        // SAFETY: queries, cache and buffers have the sizes of the problem, are aligned and of the kernels' context; the
        // positions in use lie in the cache.
        unsafe { partial.launch(queue, grid, &arguments, || problem.work())? };
    }
    let to = out.pointer();
    let arguments = [
        Argument::new(&sums),
        Argument::new(&statistics),
        Argument::new(&a.sinks),
        Argument::new(&to),
        Argument::new(&a.n_heads),
        Argument::new(&a.first),
        Argument::new(&a.kv_len),
        Argument::new(&a.causal),
        Argument::new(&a.window),
        Argument::new(&chunk),
        Argument::new(&first_chunk),
        Argument::new(&chunks),
    ];
    let describe = || {
        let bytes =
            rows * params.n_heads * (chunks as usize * (params.head_dim * 4 + 8) + params.head_dim * 2);
        (format!("{rows}x{chunks}"), Work { operations: 0, bytes: bytes as u64 })
    };
    // SAFETY: the buffers hold what the launch before has written of the chunks that a row sees; the output has the
    // problem's size.
    unsafe { merge.launch(queue, [rows as u32, a.n_heads, 1], &arguments, describe) }
}
