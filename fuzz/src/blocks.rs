//! Quantized blocks of any bits: `type u8`, `groups of a row u8`, the blocks.
//!
//! Every path of this machine decodes them to the same numbers, packed or not, as the plain decoders do, and multiplies
//! them to the same numbers. A NaN is a NaN, whatever its bits.

use std::sync::LazyLock;

use bytemuck::{AnyBitPattern, pod_collect_to_vec};
use half::{bf16, f16};
use halfbyte_cpu_kernels::{
    Affine, Context, Isa, Matrix, PackedMatrix, Parameters, Weights, matvec_f32, matvec_int8,
    quantize_activations,
};
use halfbyte_k_quants::*;
use halfbyte_q4::affine::{AffineScale, GroupSize};
use halfbyte_q4::{BlockQ4_0, BlockQ4_1, affine, dequantize_row_q4_0, dequantize_row_q4_1};
use halfbyte_q8::{Activations, BlockQ8_0};
use halfbyte_threadpool::ThreadPool;

use crate::{Seeds, take};

static POOL: LazyLock<ThreadPool> = LazyLock::new(|| ThreadPool::new(1).unwrap());

/// Two panels of sixteen and some: more rows are more of the same.
const MOST_ROWS: usize = 37;

/// The types in the order of their numbers.
const TYPES: u8 = 25 + 2 * 3 * 3;

/// Whatever the blocks, all paths agree.
///
/// # Panics
/// If they do not.
pub fn check(data: &[u8]) {
    let &[ty, groups, ref data @ ..] = data else { return };
    let groups = usize::from(groups % 8) + 1;
    match ty % TYPES {
        0 => blocks::<BlockQ4_0>(
            data,
            groups * 32,
            32,
            |b| Weights::Q4_0(b),
            |b, out| {
                dequantize_row_q4_0(b, out).unwrap();
            },
        ),
        1 => blocks::<BlockQ4_1>(
            data,
            groups * 32,
            32,
            |b| Weights::Q4_1(b),
            |b, out| {
                dequantize_row_q4_1(b, out).unwrap();
            },
        ),
        2 => blocks::<BlockQ8_0>(
            data,
            groups * 32,
            32,
            |b| Weights::Q8_0(b),
            |b, out| {
                halfbyte_q8::dequantize_row(b, out).unwrap();
            },
        ),
        3 => ggml::<BlockQ5_0>(data, groups, |b| Weights::Q5_0(b)),
        4 => ggml::<BlockQ5_1>(data, groups, |b| Weights::Q5_1(b)),
        5 => ggml::<BlockQ2K>(data, groups, |b| Weights::Q2K(b)),
        6 => ggml::<BlockQ3K>(data, groups, |b| Weights::Q3K(b)),
        7 => ggml::<BlockQ4K>(data, groups, |b| Weights::Q4K(b)),
        8 => ggml::<BlockQ5K>(data, groups, |b| Weights::Q5K(b)),
        9 => ggml::<BlockQ6K>(data, groups, |b| Weights::Q6K(b)),
        10 => ggml::<BlockIq4Nl>(data, groups, |b| Weights::Iq4Nl(b)),
        11 => ggml::<BlockIq4Xs>(data, groups, |b| Weights::Iq4Xs(b)),
        12 => ggml::<BlockMxfp4>(data, groups, |b| Weights::Mxfp4(b)),
        13 => ggml::<BlockNvfp4>(data, groups, |b| Weights::Nvfp4(b)),
        14 => ggml::<BlockIq1S>(data, groups, |b| Weights::Iq1S(b)),
        15 => ggml::<BlockIq1M>(data, groups, |b| Weights::Iq1M(b)),
        16 => ggml::<BlockIq2Xxs>(data, groups, |b| Weights::Iq2Xxs(b)),
        17 => ggml::<BlockIq2Xs>(data, groups, |b| Weights::Iq2Xs(b)),
        18 => ggml::<BlockIq2S>(data, groups, |b| Weights::Iq2S(b)),
        19 => ggml::<BlockIq3Xxs>(data, groups, |b| Weights::Iq3Xxs(b)),
        20 => ggml::<BlockIq3S>(data, groups, |b| Weights::Iq3S(b)),
        21 => ggml::<BlockTq1_0>(data, groups, |b| Weights::Tq1_0(b)),
        22 => ggml::<BlockTq2_0>(data, groups, |b| Weights::Tq2_0(b)),
        23 => ggml::<BlockQ1_0>(data, groups, |b| Weights::Q1_0(b)),
        24 => ggml::<BlockQ2_0>(data, groups, |b| Weights::Q2_0(b)),
        ty => {
            let (bits, ty) = (4 + 4 * usize::from(ty - 25 >= 9), (ty - 25) % 9);
            let group = 32 << (ty % 3);
            match ty / 3 {
                0 => affine::<f16>(data, groups * group, group, bits, |p| Parameters::F16(p)),
                1 => affine::<bf16>(data, groups * group, group, bits, |p| Parameters::Bf16(p)),
                _ => affine::<f32>(data, groups * group, group, bits, |p| Parameters::F32(p)),
            }
        }
    }
}

/// Blocks of `halfbyte-k-quants`, `groups` a row, or two where they are of 256 weights.
fn ggml<B: Block>(data: &[u8], groups: usize, weights: for<'a> fn(&'a [B]) -> Weights<'a>) {
    let row = if B::WEIGHTS == SUPER { groups.min(2) } else { groups };
    blocks::<B>(data, row * B::WEIGHTS, B::WEIGHTS, weights, |b, out| dequantize_row(b, out).unwrap());
}

fn blocks<T: AnyBitPattern + bytemuck::NoUninit>(
    data: &[u8],
    cols: usize,
    group: usize,
    weights: for<'a> fn(&'a [T]) -> Weights<'a>,
    decode: fn(&[T], &mut [f32]),
) {
    let row = cols / group;
    let rows = (data.len() / size_of::<T>() / row).min(MOST_ROWS);
    if rows == 0 {
        return;
    }
    let blocks: Vec<T> = pod_collect_to_vec(&data[..rows * row * size_of::<T>()]);
    let mut expected = vec![f32::NAN; rows * cols];
    decode(&blocks, &mut expected);
    let matrix = Matrix::new(weights(&blocks), rows, cols).unwrap();
    same_on_all_paths(&matrix, Some(&expected));
}

fn affine<S: AffineScale>(
    data: &[u8],
    cols: usize,
    group: usize,
    bits: usize,
    parameters: for<'a> fn(&'a [S]) -> Parameters<'a>,
) {
    let row_bytes = cols * bits / 8 + 2 * (cols / group) * size_of::<S>();
    let rows = (data.len() / row_bytes).min(MOST_ROWS);
    if rows == 0 {
        return;
    }
    let (codes, data) = take(data, rows * cols * bits / 8);
    let (scales, data) = take(data, rows * (cols / group) * size_of::<S>());
    let (biases, _) = take(data, scales.len());
    let codes: Vec<u32> = pod_collect_to_vec(codes);
    let [scales, biases] = [scales, biases].map(pod_collect_to_vec::<u8, S>);
    let (scales_in, biases_in) = (parameters(&scales), parameters(&biases));
    let weights =
        Weights::Affine(Affine { bits, group, codes: &codes, scales: scales_in, biases: biases_in });
    if bits == 4 {
        // As MLX rounds, which is not as the kernels do.
        let mut out = vec![f32::NAN; rows * cols];
        let size = GroupSize::try_from(group).unwrap();
        affine::dequantize_row(&codes, &scales, &biases, size, &mut out).unwrap();
    }
    same_on_all_paths(&Matrix::new(weights, rows, cols).unwrap(), None);
}

#[track_caller]
fn assert_same(got: &[f32], expected: &[f32], what: &str) {
    for (i, (g, e)) in got.iter().zip(expected).enumerate() {
        assert!(g.to_bits() == e.to_bits() || (g.is_nan() && e.is_nan()), "{what}: {g} at {i}, expected {e}");
    }
}

fn same_on_all_paths(matrix: &Matrix<'_>, expected: Option<&[f32]>) {
    let (rows, cols) = (matrix.rows(), matrix.cols());
    let context = |isa| Context { pool: &POOL, isa };
    let x: Vec<f32> = (0..cols).map(|i| (i as f32 * 0.37).sin()).collect();
    let packed =
        matrix.supports_packing().then(|| PackedMatrix::new(context(Isa::fastest()), matrix).unwrap());
    let mut first: Option<[Vec<f32>; 3]> = None;
    for isa in Isa::available() {
        let ctx = context(isa);
        let mut activations = Activations::new();
        quantize_activations(ctx, &x, 1, cols, &mut activations).unwrap();
        for matrix in [Some(*matrix), packed.as_ref().map(PackedMatrix::as_matrix)].into_iter().flatten() {
            let mut decoded = vec![f32::NAN; rows * cols];
            for (row, out) in decoded.chunks_exact_mut(cols).enumerate() {
                matrix.decode_row(isa, row, out).unwrap();
            }
            let (mut float, mut int8) = (vec![f32::NAN; rows], vec![f32::NAN; rows]);
            matvec_f32(ctx, &matrix, &x, &mut float).unwrap();
            if matrix.supports_int8() {
                matvec_int8(ctx, &matrix, &activations, &mut int8).unwrap();
            }
            let results = [decoded, float, int8];
            match &first {
                None => first = Some(results),
                Some(first) => {
                    for (what, (got, first)) in
                        ["decode_row", "matvec_f32", "matvec_int8"].iter().zip(results.iter().zip(first))
                    {
                        assert_same(got, first, &format!("{what} on {isa}"));
                    }
                }
            }
        }
    }
    if let (Some(expected), Some([decoded, ..])) = (expected, first) {
        assert_same(&decoded, expected, "decode_row");
    }
}

/// A row or two of each type: zeros, ones, and bytes of all kinds.
pub fn seeds() -> Seeds {
    let mut seeds = Seeds::new();
    for ty in 0..TYPES {
        for fill in [0_u8, 0x3c, 0xff] {
            let body = (0..600_usize).map(|i| if fill == 0xff { (i * 37 + i / 7) as u8 } else { fill });
            seeds.push([ty, 1].into_iter().chain(body).collect());
        }
    }
    seeds
}
