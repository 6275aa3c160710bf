//! What our writers make of any numbers: `writer u8`, then f32s.
//!
//! A row is refused and nothing written, or its blocks decode to finite numbers, no farther off than the plainer writer's
//! where the documentation says so.

use std::sync::LazyLock;

use bytemuck::{Pod, pod_collect_to_vec};
use half::{bf16, f16};
use halfbyte_cpu_kernels::{Context, Isa, quantize_q4_0_fit};
use halfbyte_q4::affine::{AffineScale, GroupSize};
use halfbyte_q4::{BlockQ4_0, BlockQ4_1, affine};
use halfbyte_q8::BlockQ8_0;
use halfbyte_threadpool::ThreadPool;

use crate::Seeds;

static POOL: LazyLock<ThreadPool> = LazyLock::new(|| ThreadPool::new(1).unwrap());

/// Weights of a row at most: some writers take their time.
const MOST: usize = 256;

const WRITERS: u8 = 3 + 9;

/// Whatever the numbers, a writer keeps its word.
///
/// # Panics
/// If it does not.
pub fn check(data: &[u8]) {
    let Some((writer, data)) = data.split_first() else { return };
    let writer = writer % WRITERS;
    let group = if writer < 3 { 32 } else { 32 << (writer % 3) };
    let n = (data.len() / 4).min(MOST) / group * group;
    let x: Vec<f32> = pod_collect_to_vec(&data[..n * 4]);
    match writer {
        0 => q4_0(&x),
        1 => {
            let plain = write(&x, [0x55; size_of::<BlockQ4_1>()], halfbyte_q4::q4_1_row);
            if let Some(blocks) = plain {
                error(&x, &blocks.iter().flat_map(BlockQ4_1::dequantize).collect::<Vec<_>>(), 32);
            }
        }
        2 => q8_0(&x),
        _ => match writer / 3 {
            1 => affine::<f32>(&x, group),
            2 => affine::<f16>(&x, group),
            _ => affine::<bf16>(&x, group),
        },
    }
}

/// The blocks that `write` makes; `None` if it refuses, having written nothing.
fn write<T: Pod + PartialEq, const N: usize, E: std::error::Error>(
    x: &[f32],
    poison: [u8; N],
    write: impl FnOnce(&[f32], &mut [T]) -> Result<(), E>,
) -> Option<Vec<T>> {
    let poison: T = bytemuck::cast(poison);
    let mut blocks = vec![poison; x.len() / 32];
    match write(x, &mut blocks) {
        Ok(()) => Some(blocks),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(blocks.iter().all(|block| *block == poison), "{error}, but something was written");
            None
        }
    }
}

/// The squared error of each group.
fn error(x: &[f32], decoded: &[f32], group: usize) -> Vec<f64> {
    assert!(decoded.iter().all(|v| v.is_finite()), "{x:?} became {decoded:?}");
    let square = |(x, d): (&f32, &f32)| (f64::from(*x) - f64::from(*d)).powi(2);
    let groups = x.chunks_exact(group).zip(decoded.chunks_exact(group));
    groups.map(|(x, d)| x.iter().zip(d).map(square).sum()).collect()
}

/// No group of `better` is worse than that of `plain`, but for the rounding of sums.
fn no_worse(better: &[f64], plain: &[f64], what: &str) {
    for (i, (b, p)) in better.iter().zip(plain).enumerate() {
        assert!(*b <= p * (1.0 + 1e-9), "{what}: squared error {b:e} in group {i}, the plain writer's {p:e}");
    }
}

fn q4_0(x: &[f32]) {
    let poison = [0x55; size_of::<BlockQ4_0>()];
    let errors = |blocks: Vec<BlockQ4_0>| {
        error(x, &blocks.iter().flat_map(BlockQ4_0::dequantize).collect::<Vec<_>>(), 32)
    };
    let symmetric = write(x, poison, halfbyte_q4::q4_row).map(errors);
    let max = write(x, poison, halfbyte_q4::q4_row_max).map(errors);
    let fitted = write(x, poison, halfbyte_q4::q4_row_fit).map(errors);
    let best = write(x, poison, halfbyte_q4::q4_row_optimal).map(errors);
    let first = Isa::available().into_iter().map(|isa| {
        write(x, poison, |x, out: &mut [BlockQ4_0]| quantize_q4_0_fit(Context { pool: &POOL, isa }, x, out))
    });
    let simd: Vec<_> = first.collect();
    assert!(simd.iter().all(|blocks| *blocks == simd[0]), "quantize_q4_0_fit differs between the paths");
    let simd = simd.into_iter().next().flatten().map(errors);
    // They refuse the same rows.
    assert_eq!(max.is_some(), fitted.is_some());
    assert_eq!(max.is_some(), best.is_some());
    assert_eq!(max.is_some(), simd.is_some());
    if let (Some(max), Some(fitted), Some(best), Some(simd)) = (&max, &fitted, &best, &simd) {
        no_worse(fitted, max, "q4_row_fit");
        no_worse(simd, max, "quantize_q4_0_fit");
        no_worse(best, fitted, "q4_row_optimal");
        if let Some(symmetric) = &symmetric {
            no_worse(best, symmetric, "q4_row_optimal");
        }
    }
}

fn q8_0(x: &[f32]) {
    let poison = [0x55; size_of::<BlockQ8_0>()];
    let errors = |blocks: Vec<BlockQ8_0>| {
        error(x, &blocks.iter().flat_map(BlockQ8_0::dequantize).collect::<Vec<_>>(), 32)
    };
    let plain = write(x, poison, halfbyte_q8::quantize_row).map(errors);
    let fitted = write(x, poison, halfbyte_q8::quantize_row_fit).map(errors);
    assert_eq!(plain.is_some(), fitted.is_some());
    if let (Some(plain), Some(fitted)) = (plain, fitted) {
        no_worse(&fitted, &plain, "quantize_row_fit");
    }
}

fn affine<S: AffineScale>(x: &[f32], group: usize) {
    let size = GroupSize::try_from(group).unwrap();
    let errors = |write: AffineWriter<S>| {
        let mut packed = vec![0x5555_5555_u32; x.len() / 8];
        let poison = S::from_f32(7.0);
        let mut scales = vec![poison; x.len() / group];
        let mut biases = scales.clone();
        if let Err(error) = write(x, size, &mut packed, &mut scales, &mut biases) {
            assert!(!error.to_string().is_empty());
            assert!(packed.iter().all(|word| *word == 0x5555_5555), "{error}, but codes were written");
            assert!(
                scales.iter().chain(&biases).all(|v| v.to_f32() == 7.0),
                "{error}, but scales were written"
            );
            return None;
        }
        assert!(scales.iter().chain(&biases).all(|v| v.to_f32().is_finite()));
        // As the kernels decode, the product not rounded to the stored type.
        let decoded: Vec<f64> = packed
            .iter()
            .flat_map(|word| affine::unpack8(*word))
            .enumerate()
            .map(|(i, code)| {
                let [scale, bias] = [&scales, &biases].map(|v| f64::from(v[i / group].to_f32()));
                scale * f64::from(code) + bias
            })
            .collect();
        let square = |(x, d): (&f32, &f64)| (f64::from(*x) - d).powi(2);
        let groups = x.chunks_exact(group).zip(decoded.chunks_exact(group));
        Some(groups.map(|(x, d)| x.iter().zip(d).map(square).sum()).collect::<Vec<f64>>())
    };
    let (plain, fitted) = (errors(affine::quantize_row), errors(affine::quantize_row_fit));
    assert_eq!(plain.is_some(), fitted.is_some());
    if let (Some(plain), Some(fitted)) = (plain, fitted) {
        no_worse(&fitted, &plain, "affine::quantize_row_fit");
    }
}

/// A writer of affine rows.
type AffineWriter<S> =
    fn(&[f32], GroupSize, &mut [u32], &mut [S], &mut [S]) -> Result<(), halfbyte_q4::Error>;

/// The groups that other systems got wrong, and some waves.
pub fn seeds() -> Seeds {
    let wave: Vec<f32> = (0..128).map(|i| (i as f32 * 0.7).sin()).collect();
    let spike: Vec<f32> = (0..128).map(|i| if i % 32 == 0 { 1.0 } else { -0.95 }).collect();
    let ternary: Vec<f32> = (0..128).map(|i| [1.0, -1.0, 0.0, 0.0][i % 4]).collect();
    let rows = [
        wave.clone(),
        spike,
        ternary,
        vec![0.0; 128],
        vec![1e-30; 128],
        vec![1e-5; 128],
        wave.iter().map(|v| v * 8.0 * 65504.0).collect(),
        wave.iter().map(|v| v * f32::MAX).collect(),
        wave.iter().map(|v| if *v > 0.9 { f32::NAN } else { *v }).collect(),
    ];
    let mut seeds = Seeds::new();
    for writer in 0..WRITERS {
        for row in &rows {
            seeds.push(std::iter::once(writer).chain(row.iter().flat_map(|v| v.to_le_bytes())).collect());
        }
    }
    seeds
}
