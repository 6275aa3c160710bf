//! Attention of a prompt chunk.

use super::problem::Problem;
use crate::check::{at_most, length, place};
use crate::profiler::Queue;
use crate::{Error, Kernels};
use half::bf16;
use halfbyte_cuda_driver::{Argument, DevicePointer, DeviceSliceMut};

/// Lines of a block, a query head of a row each: of the kernels for any GPU, and of the wide ones, which load a tile of keys
/// and values half as often.
const LINES: [usize; 2] = [64, 128];
/// Warps of a multiprocessor that hide each other's waits well enough; the wide kernels are for GPUs that hold as many.
const WARPS: u32 = 8;

/// Queues attention of `problem` into `out`, `[row][n_heads][head_dim]`: flash attention, a block over all positions that
/// its rows see. `lse`, if asked for, becomes `[n_heads][rows]`: ln of the sum of the weights `e^score`, the sink's
/// included.
///
/// A block has 64 lines (a query head of a row each), or 128 where these fill the GPU and leave it warps enough.
///
/// A row's output bits depend on its query, on what it sees and on `problem.params` alone, not on the block: a prompt cut
/// into chunks gives the same. A prompt's rows are to come here even if a chunk has only one: [`decode`](super::decode) sums in another
/// order.
///
/// # Numerics
/// Scores are summed and the softmax is taken in f32; weights (in fp8: times the values' scales) are rounded to bf16
/// before they meet the values, outputs once more. With `u = 2^-24`, n positions seen, `A` the largest
/// `|scale| * sum of |q[d] * key[d]|`, `C` the cap or 0, and `W` the weighted mean of the values' magnitudes, an output is
/// within
///
/// ```text
/// 2^-8 |out| + W (2^-8 + 2 u ((head_dim + 8) A + 8 C + n + 64))
/// ```
///
/// of the exact one for the numbers in the cache, while none of them overflows. 2^-8 is bf16's rounding: of the output,
/// and of the weights. `A` comes from the scores' sums and products, and from the subtraction of the maximum; `C` from
/// the soft-cap; `n + 64` from the sums of weights and values, and the two units of `ex2.approx` in a weight and in
/// each tile's correction.
/// Hardware that sums a tensor-core product with less than f32's care needs a larger factor of A and n.
///
/// A NaN or an infinity in a query, or in a key that a row sees, stays in the rows concerned, as NaN. One in a value
/// makes NaN of every row of a call that is in a block with a row that sees it.
///
/// # Errors
/// [`Error::HeadDim`], [`Error::HeadGroups`], [`Error::Parameter`], [`Error::Mismatch`] with the cache's shape,
/// [`Error::TooLarge`], [`Error::Length`], [`Error::Alignment`] (16 bytes) or [`Error::OtherContext`], before anything is
/// queued; [`Error::Driver`].
#[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
pub fn prefill<'q>(
    kernels: &Kernels,
    queue: impl Into<Queue<'q>>,
    problem: &Problem<'_>,
    out: &mut DeviceSliceMut<'_, bf16>,
    lse: Option<&mut DeviceSliceMut<'_, f32>>,
) -> Result<(), Error> {
    let params = problem.params;
    let a = problem.arguments(kernels)?;
    length("attention's output", problem.rows * params.width(), out.len())?;
    place("attention's output", kernels.context(), out.context(), out.pointer(), 16)?;
    let lse = match lse {
        None => DevicePointer(0),
        Some(lse) => {
            length("the log-sum-exp", problem.rows * params.n_heads, lse.len())?;
            place("the log-sum-exp", kernels.context(), lse.context(), lse.pointer(), 4)?;
            lse.pointer()
        }
    };
    if problem.rows == 0 {
        return Ok(());
    }
    let fp8 = a.scales.is_some();
    let kernel = kernels.kernel(match (fp8, params.head_dim) {
        (false, 64) => "attention_prefill_bf16_d64",
        (false, 128) => "attention_prefill_bf16_d128",
        (false, _) => "attention_prefill_bf16_d256",
        (true, 64) => "attention_prefill_fp8_d64",
        (true, 128) => "attention_prefill_fp8_d128",
        (true, _) => "attention_prefill_fp8_d256",
    })?;
    let [blocks, wide_blocks] = LINES.map(|lines| (problem.rows * params.group()).div_ceil(lines));
    at_most("the blocks of attention", i32::MAX as usize, blocks)?;
    let wide = match (fp8, params.head_dim) {
        (false, 64) => Some("attention_prefill_bf16_d64_wide"),
        (false, 128) => Some("attention_prefill_bf16_d128_wide"),
        (true, 64) => Some("attention_prefill_fp8_d64_wide"),
        (true, 128) => Some("attention_prefill_fp8_d128_wide"),
        _ => None,
    };
    let wide = wide.map(|entry| kernels.kernel(entry)).transpose()?.filter(|wide| {
        let held = wide.blocks_per_sm();
        let filled = u64::from(held) * u64::from(kernels.multiprocessors());
        held * wide.threads() / 32 >= WARPS && (wide_blocks * params.n_kv_heads) as u64 >= filled
    });
    let (kernel, blocks) = wide.map_or((kernel, blocks), |wide| (wide, wide_blocks));
    let out = out.pointer();
    let mut arguments = a.cache();
    arguments.extend([Argument::new(&a.sinks), Argument::new(&out), Argument::new(&lse)]);
    arguments.extend(a.numbers());
    let grid = [blocks as u32, params.n_kv_heads as u32, 1];
    // SAFETY: queries, cache, output and lse have the sizes of the problem, are aligned and of the kernels' context; the
    // positions in use lie in the cache.
    unsafe { kernel.launch(queue.into(), grid, &arguments, || problem.work()) }
}
