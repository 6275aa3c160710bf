//! A matrix in every format, and its weights in f64.

use crate::gpu::bf16s;
use half::{bf16, f16};
use halfbyte_cuda_kernels::{Affine, DeviceWeights, Kernels};
use halfbyte_q4::BlockQ4_0;
use halfbyte_q4::affine::pack8;
use halfbyte_q8::BlockQ8_0;
use halfbyte_testing::Rng;

/// A matrix of random weights.
pub(crate) struct Matrix {
    pub(crate) weights: DeviceWeights,
    /// Codes times scales plus biases, in f64: exact.
    pub(crate) values: Vec<f64>,
    /// The largest magnitude that a sum of `code * x` and of `bias * x` is made of, for error bounds: per weight
    /// `|scale * code| + |bias|`, with the code as the kernel multiplies it.
    pub(crate) terms: Vec<f64>,
}

/// All formats that `k` inputs allow.
pub(crate) fn every_format(kernels: &Kernels, n: usize, k: usize, random: &mut Rng) -> Vec<Matrix> {
    let mut all = Vec::new();
    for group in [32, 64, 128].into_iter().filter(|&group| k.is_multiple_of(group)) {
        let codes: Vec<u8> = (0..n * k).map(|_| (random.bits() % 16) as u8).collect();
        let (scales, biases) = (bf16s(random, n * k / group, 0.02), bf16s(random, n * k / group, 0.1));
        let parts = |i: usize| (scales[i / group].to_f64() * f64::from(codes[i]), biases[i / group].to_f64());
        let words: Vec<u32> = codes.as_chunks::<8>().0.iter().map(pack8).collect();
        let affine = Affine { bits: 4, group, words: &words, scales: &scales, biases: &biases };
        all.push(Matrix {
            weights: DeviceWeights::from_affine(kernels, n, k, &affine).unwrap(),
            values: (0..n * k).map(|i| parts(i).0 + parts(i).1).collect(),
            terms: (0..n * k).map(|i| parts(i).0.abs() + parts(i).1.abs()).collect(),
        });
    }
    let mut plain = |weights: DeviceWeights, values: Vec<f64>| {
        let terms = values.iter().map(|w| w.abs()).collect();
        all.push(Matrix { weights, values, terms });
    };
    if k.is_multiple_of(32) {
        let q4_0: Vec<BlockQ4_0> = (0..n * k / 32)
            .map(|_| BlockQ4_0 {
                scale: f16::from_f32(random.f32() * 0.05),
                codes: std::array::from_fn(|_| random.bits() as u8),
            })
            .collect();
        let values = q4_0.iter().flat_map(|b| b.dequantize()).map(f64::from).collect();
        plain(DeviceWeights::from_q4_0(kernels, n, k, &q4_0).unwrap(), values);
        let q8_0: Vec<BlockQ8_0> = (0..n * k / 32)
            .map(|_| BlockQ8_0 {
                scale: f16::from_f32(random.f32() * 0.005),
                codes: std::array::from_fn(|_| random.bits() as i8),
            })
            .collect();
        let values = q8_0.iter().flat_map(|b| b.dequantize()).map(f64::from).collect();
        plain(DeviceWeights::from_q8_0(kernels, n, k, &q8_0).unwrap(), values);
    }
    let numbers = bf16s(random, n * k, 0.1);
    let values = numbers.iter().map(|w| bf16::to_f64(*w)).collect();
    plain(DeviceWeights::from_bf16(kernels, n, k, &numbers).unwrap(), values);
    all
}
