//! The prompt matrix kernels: which entry point, which tile, and the launch.

use crate::kernels::{Kernel, Kernels};
use crate::profiler::{Queue, Work};
use crate::tiles::{self, Tile, TileOption};
use crate::{DeviceWeights, Error, PromptPrecision, WeightFormat};
use half::bf16;
use halfbyte_cuda_driver::{Argument, DevicePointer, DeviceSliceMut};
use halfbyte_q4::affine::GroupSize;
use std::sync::Arc;

/// Columns of every tile.
const COLUMNS: u32 = 128;

/// `matmul_bf16`'s output as bf16.
const ROUNDED: u32 = 0;

/// What a matrix is multiplied with: int8 codes and scales, or bf16 without scales; and the groups' sums.
#[derive(Debug)]
pub(crate) struct Operands {
    pub(crate) inputs: DevicePointer,
    pub(crate) scales: DevicePointer,
    pub(crate) sums: DevicePointer,
    pub(crate) rows: usize,
}

/// An entry point, and the rows of its tile.
type Entry = (&'static str, u32);

/// The tiles that every kernel comes in.
macro_rules! tiles {
    ($prefix:literal) => {
        [
            (concat!($prefix, "128x128"), 128),
            (concat!($prefix, "64x128"), 64),
            (concat!($prefix, "32x128"), 32),
            (concat!($prefix, "16x128"), 16),
        ]
    };
}

/// The entry points for a format and a precision.
fn entries(format: WeightFormat, precision: PromptPrecision) -> [Entry; 4] {
    match (format, precision) {
        (WeightFormat::Affine4(GroupSize::G32), PromptPrecision::Int8) => tiles!("w4a8_prefill_g32_"),
        (WeightFormat::Affine4(GroupSize::G64), PromptPrecision::Int8) => tiles!("w4a8_prefill_g64_"),
        (WeightFormat::Affine4(GroupSize::G128), PromptPrecision::Int8) => tiles!("w4a8_prefill_g128_"),
        (WeightFormat::Affine4(GroupSize::G32), PromptPrecision::Bf16) => tiles!("affine4_prefill_g32_"),
        (WeightFormat::Affine4(GroupSize::G64), PromptPrecision::Bf16) => tiles!("affine4_prefill_g64_"),
        (WeightFormat::Affine4(GroupSize::G128), PromptPrecision::Bf16) => tiles!("affine4_prefill_g128_"),
        (WeightFormat::Q4_0, PromptPrecision::Int8) => tiles!("q4_0_prefill_int8_"),
        (WeightFormat::Q4_0, PromptPrecision::Bf16) => tiles!("q4_0_prefill_bf16_"),
        (WeightFormat::Q8_0, PromptPrecision::Int8) => tiles!("q8_0_prefill_int8_"),
        (WeightFormat::Q8_0, PromptPrecision::Bf16) => tiles!("q8_0_prefill_bf16_"),
        // One tile only.
        (WeightFormat::Bf16, _) => [("matmul_bf16_nt", 128); 4],
    }
}

/// The tile that counts the fewest waves on this device: its rows, and its kernel.
fn choose(
    kernels: &Kernels,
    entries: [Entry; 4],
    rows: u32,
    outputs: u32,
) -> Result<(u32, Arc<Kernel>), Error> {
    let mut options = [TileOption { tile: Tile { rows: 1, cols: COLUMNS }, blocks_per_sm: 1 }; 4];
    for (option, (name, tile_rows)) in options.iter_mut().zip(entries) {
        option.tile.rows = tile_rows;
        option.blocks_per_sm = kernels.kernel(name)?.blocks_per_sm();
    }
    let chosen = tiles::choose(rows, outputs, kernels.multiprocessors(), &options)?.tile.rows;
    let name = entries.into_iter().find_map(|(name, rows)| (rows == chosen).then_some(name));
    let name = name.ok_or(Error::NoTile { rows, cols: outputs })?;
    Ok((chosen, kernels.kernel(name)?))
}

/// Queues `y = x W^T`.
///
/// # Safety
/// The operands hold `operands.rows` rows of `weights.inputs()` inputs as `precision` has them, with scales and sums for
/// groups of the weights' size, in the kernels' context (bf16 weights: bf16 inputs, an even number of outputs); `y` has room for a row of `weights.outputs()` for each; `y`,
/// inputs and weights are aligned as the kernels need (16 bytes; `y` 4).
#[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
pub(crate) unsafe fn launch(
    kernels: &Kernels,
    queue: Queue<'_>,
    precision: PromptPrecision,
    operands: &Operands,
    weights: &DeviceWeights,
    y: &mut DeviceSliceMut<'_, bf16>,
) -> Result<(), Error> {
    let (m, n, k) = (operands.rows as u32, weights.outputs() as u32, weights.inputs() as u32);
    let (tile_rows, kernel) = choose(kernels, entries(weights.format(), precision), m, n)?;
    let blocks = m.div_ceil(tile_rows) * n.div_ceil(COLUMNS);

    let (codes, weight_scales, biases) =
        (weights.codes.pointer(), weights.scales.pointer(), weights.biases.pointer());
    let out = y.pointer();
    let mut arguments: Vec<Argument<'_>> = Vec::with_capacity(10);
    arguments.push((&operands.inputs).into());
    if precision == PromptPrecision::Int8 {
        arguments.push((&operands.scales).into());
    }
    let dense = weights.format() == WeightFormat::Bf16;
    if weights.format() != WeightFormat::Q8_0 && !dense {
        arguments.push((&operands.sums).into());
    }
    arguments.push((&codes).into());
    if !dense {
        arguments.push((&weight_scales).into());
    }
    if matches!(weights.format(), WeightFormat::Affine4(_)) {
        arguments.push((&biases).into());
    }
    arguments.extend([Argument::new(&out), Argument::new(&m), Argument::new(&n), Argument::new(&k)]);
    if dense {
        arguments.push((&ROUNDED).into());
    }

    let describe = || {
        let input_bytes = if precision == PromptPrecision::Int8 { 1 } else { 2 };
        let (m, n, k) = (u64::from(m), u64::from(n), u64::from(k));
        let bytes = m * k * input_bytes + weights.bytes() as u64 + m * n * 2;
        (format!("{m}x{n}x{k}"), Work { operations: 2 * m * n * k, bytes })
    };
    // SAFETY: the arguments are the entry point's, in its order, and the caller's promise for what they name.
    unsafe { kernel.launch(queue, [blocks, 1, 1], &arguments, describe) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx;

    #[test]
    fn every_entry_point_is_in_the_shipped_ptx() {
        let groups = [GroupSize::G32, GroupSize::G64, GroupSize::G128];
        let others = [WeightFormat::Q4_0, WeightFormat::Q8_0, WeightFormat::Bf16];
        for format in groups.map(WeightFormat::Affine4).into_iter().chain(others) {
            for precision in [PromptPrecision::Bf16, PromptPrecision::Int8] {
                for (name, _) in entries(format, precision) {
                    assert!(ptx::of_entry(name).is_some(), "{name}");
                }
            }
        }
    }
}
