//! The steps between the projections and attention: bias, norm of each head, rotary position, and the writing of keys and
//! values to the cache.

use crate::attention::{DeviceKvCache, KvFormat, KvStorage};
use crate::check::{at_most, length, place, positions, same};
use crate::profiler::{Queue, Work};
use crate::{Error, Kernels};
use half::bf16;
use halfbyte_cuda_driver::{Argument, DeviceBuffer, DevicePointer, DeviceSlice, DeviceSliceMut};

/// Which two numbers of a head are rotated together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RopeOrder {
    /// `i` and `i + head_dim / 2`: the GPT-NeoX order, Qwen's, and that of Llama's original files' conversions to it.
    Halves,
    /// `2 i` and `2 i + 1`: the order of Llama models in GGUF files.
    Adjacent,
}

/// Cosines and sines of every position and pair, on the device.
///
/// Made on the host in f64 and rounded to f32: half a unit. An angle computed in f32 would be off by 2^-24 of itself, which
/// at position 100,000 is 0.006 for the fastest pair, and more than bf16 loses.
#[derive(Debug)]
pub struct DeviceRopeTable {
    head_dim: usize,
    positions: usize,
    angles: DeviceBuffer<f32>,
}

impl DeviceRopeTable {
    /// A table for positions below `positions`: pair `i` of position `p` turns by `p * frequencies[i]`, and is stretched by
    /// `magnitude` (1 for plain rotary positions; YaRN scales attention by it).
    ///
    /// # Errors
    /// [`Error::TooLarge`] for more than 2^31 angles, [`Error::HeadDim`] unless there are 8, 16, 32, 64, 128 or 256
    /// frequencies; [`Error::Driver`].
    pub fn new(
        kernels: &Kernels,
        frequencies: &[f64],
        magnitude: f64,
        positions: usize,
    ) -> Result<Self, Error> {
        let head_dim = check_head_dim(frequencies.len() * 2)?;
        at_most("the positions of a rotary table", (1 << 31) / frequencies.len(), positions)?;
        let angle = |position: usize, frequency: &f64| {
            let (sine, cosine) = (position as f64 * frequency).sin_cos();
            [(cosine * magnitude) as f32, (sine * magnitude) as f32]
        };
        let row = |position| frequencies.iter().flat_map(move |f| angle(position, f));
        let angles: Vec<f32> = (0..positions).flat_map(row).collect();
        Ok(Self { head_dim, positions, angles: DeviceBuffer::from_slice(kernels.context(), &angles)? })
    }

    /// The frequencies of plain rotary positions: `base^(-2 i / head_dim)`.
    #[must_use]
    pub fn frequencies(head_dim: usize, base: f64) -> Vec<f64> {
        (0..head_dim / 2).map(|i| base.powf(-2.0 * i as f64 / head_dim as f64)).collect()
    }

    /// Numbers of a head.
    #[must_use]
    pub fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// The number of positions in the table.
    #[must_use]
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// (cosine, sine) by position, then pair.
    pub(crate) fn angles(&self) -> &DeviceBuffer<f32> {
        &self.angles
    }
}

/// 16 times a power of two, up to 512: a head is whole vectors of up to 32 lanes.
fn check_head_dim(head_dim: usize) -> Result<usize, Error> {
    let lanes = head_dim / 16;
    if head_dim.is_multiple_of(16) && lanes.is_power_of_two() && lanes <= 32 {
        return Ok(head_dim);
    }
    Err(Error::HeadDim { expected: "16, 32, 64, 128, 256 or 512", got: head_dim })
}

/// Queries, keys and values of a window's rows, as the projections leave them.
#[derive(Debug, Clone, Copy)]
pub enum Projections<'a> {
    /// One matrix's: each row has the query heads, the key heads, the value heads.
    Joined(DeviceSlice<'a, bf16>),
    /// Three matrices'.
    Separate {
        /// `heads * head_dim` numbers a row.
        queries: DeviceSlice<'a, bf16>,
        /// `kv_heads * head_dim` numbers a row.
        keys: DeviceSlice<'a, bf16>,
        /// As many.
        values: DeviceSlice<'a, bf16>,
    },
}

/// The steps that are applied to the heads. Each is optional; [`Default`] applies none.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeadSteps<'a> {
    /// The biases, which are added first (Qwen2): `heads * head_dim`, `kv_heads * head_dim` and `kv_heads * head_dim` numbers.
    pub biases: Option<[DeviceSlice<'a, f32>; 3]>,
    /// Weights of the norms of each query head and each key head (Qwen3): `head_dim` numbers each.
    pub norms: Option<[DeviceSlice<'a, f32>; 2]>,
    /// The number that the norms add to the mean of the squares.
    pub epsilon: f32,
    /// The rotation of queries and keys, which is the last step. Without it positions have no effect (every fourth layer of
    /// SmolLM3).
    pub rope: Option<(&'a DeviceRopeTable, RopeOrder)>,
}

/// The kernel's one argument; the layout of `rope_kv.cu`'s `Arguments`.
#[derive(Debug, Clone, Copy, bytemuck::NoUninit)]
#[repr(C)]
struct Arguments {
    /// q, k, v; their biases; the norms; the table; queries; keys, values, and their scales.
    pointers: [u64; 14],
    rows: [u32; 3],
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    capacity: u32,
    start: u32,
    order: u32,
    epsilon: f32,
}

/// Queues the steps between the projections and attention for the rows of a window: those of `steps`, then the writing of
/// queries as bf16 to `queries` (`heads * head_dim` a row), and of keys and values to the cache, at positions `start`,
/// `start + 1`, ...
///
/// Everything is in f32 and rounded once, to bf16 or e4m3, at the end. A row with a NaN or an infinity in a head gets NaN
/// as its scale in an fp8 cache.
///
/// # Errors
/// [`Error::HeadDim`] when the cache's heads and the table's differ, [`Error::Position`] when cache or table end before
/// the last row's position, [`Error::Mismatch`], [`Error::Length`], [`Error::Alignment`] (16 bytes),
/// [`Error::OtherContext`] or [`Error::TooLarge`], before anything is queued; [`Error::Driver`].
#[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
#[allow(clippy::too_many_arguments, reason = "a kernel's operands, each of another kind")]
pub fn rope_kv<'q>(
    kernels: &Kernels,
    queue: impl Into<Queue<'q>>,
    [rows, heads]: [usize; 2],
    start: usize,
    projections: Projections<'_>,
    steps: &HeadSteps<'_>,
    queries: &mut DeviceSliceMut<'_, bf16>,
    cache: &mut DeviceKvCache,
) -> Result<(), Error> {
    let (context, layout) = (kernels.context(), *cache.layout());
    let (kv_heads, head_dim) = (layout.n_kv_heads(), check_head_dim(layout.head_dim())?);
    at_most("the rows of a window", i32::MAX as usize, rows)?;
    at_most("the query heads", 65_535, heads)?;
    let (q_width, kv_width) = (heads * head_dim, kv_heads * head_dim);
    // The grid's second extent ends at 65,535.
    at_most("the numbers of a row's heads", 65_535 * 2048, q_width + 2 * kv_width)?;
    positions("the cache", layout.capacity(), rows, start)?;
    length("the queries", rows * q_width, queries.len())?;
    place("the queries", context, queries.context(), queries.pointer(), 16)?;

    let (projected, strides) = match projections {
        Projections::Joined(all) => {
            let width = q_width + 2 * kv_width;
            length("the projections", rows * width, all.len())?;
            place("the projections", context, all.context(), all.pointer(), 16)?;
            let at = |numbers: usize| all.pointer().byte_add(numbers * 2);
            ([at(0), at(q_width), at(q_width + kv_width)], [width; 3])
        }
        Projections::Separate { queries, keys, values } => {
            let parts = [
                ("the query projection", queries, q_width),
                ("the key projection", keys, kv_width),
                ("the value projection", values, kv_width),
            ];
            for (what, part, width) in parts {
                length(what, rows * width, part.len())?;
                place(what, context, part.context(), part.pointer(), 16)?;
            }
            (parts.map(|(_, part, _)| part.pointer()), [q_width, kv_width, kv_width])
        }
    };
    const NONE: DevicePointer = DevicePointer(0);
    let (mut biases, mut norms, mut table, mut order) = ([NONE; 3], [NONE; 2], NONE, RopeOrder::Halves);
    if let Some(given) = steps.biases {
        for (pointer, (bias, width)) in
            biases.iter_mut().zip(given.into_iter().zip([q_width, kv_width, kv_width]))
        {
            length("a bias", width, bias.len())?;
            place("a bias", context, bias.context(), bias.pointer(), 16)?;
            *pointer = bias.pointer();
        }
    }
    if let Some(given) = steps.norms {
        for (pointer, norm) in norms.iter_mut().zip(given) {
            length("the weights of a head's norm", head_dim, norm.len())?;
            place("the weights of a head's norm", context, norm.context(), norm.pointer(), 16)?;
            *pointer = norm.pointer();
        }
    }
    if let Some((rope, pairs)) = steps.rope {
        same("the head_dim of a rotary table", head_dim, rope.head_dim())?;
        positions("the rotary table", rope.positions(), rows, start)?;
        place("the rotary table", context, rope.angles().context(), rope.angles().pointer(), 16)?;
        (table, order) = (rope.angles().pointer(), pairs);
    }
    let (entry, caches, cached) = match cache.storage() {
        KvStorage::Bf16 { keys, values } => {
            ("rope_kv_bf16", [keys.pointer(), values.pointer(), NONE, NONE], keys.context())
        }
        KvStorage::Fp8 { keys, values, key_scales, value_scales } => (
            "rope_kv_fp8",
            [keys.pointer(), values.pointer(), key_scales.pointer(), value_scales.pointer()],
            keys.context(),
        ),
    };
    place("the cache", context, cached, caches[0], 16)?;
    if rows == 0 {
        return Ok(());
    }
    let mut pointers = [0; 14];
    let all =
        projected.into_iter().chain(biases).chain(norms).chain([table, queries.pointer()]).chain(caches);
    for (to, pointer) in pointers.iter_mut().zip(all) {
        *to = pointer.0;
    }
    let arguments = Arguments {
        pointers,
        rows: strides.map(|stride| stride as u32),
        heads: heads as u32,
        kv_heads: kv_heads as u32,
        head_dim: head_dim as u32,
        capacity: layout.capacity() as u32,
        start: start as u32,
        order: u32::from(order == RopeOrder::Adjacent),
        epsilon: steps.epsilon,
    };
    let written = if layout.format() == KvFormat::Fp8 { 1 } else { 2 };
    let scales = if layout.format() == KvFormat::Fp8 { 2 * kv_heads * 4 } else { 0 };
    let angles = if steps.rope.is_some() { head_dim * 4 } else { 0 };
    let biases = if steps.biases.is_some() { (q_width + 2 * kv_width) * 4 } else { 0 };
    let norms = if steps.norms.is_some() { 2 * head_dim * 4 } else { 0 };
    let bytes = rows * (q_width * 4 + 2 * kv_width * (2 + written) + scales + angles) + biases + norms;
    let describe =
        || (format!("{rows}x{heads}+{kv_heads}x{head_dim}"), Work { operations: 0, bytes: bytes as u64 });
    let grid = [rows as u32, (q_width + 2 * kv_width).div_ceil(2048) as u32, 1];
    let kernel = kernels.kernel(entry)?;
    // SAFETY: the argument is the entry point's; projections, biases, norms, table and queries have been checked against
    // rows and heads, and the cache, which is the caller's alone, holds the rows' positions.
    unsafe { kernel.launch(queue.into(), grid, &[Argument::new(&arguments)], describe) }
}
