//! Prompt products through the public launchers: which path a chunk takes, what it gives, what is refused.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod gpu;

use gpu::{bf16s, on_gpu};
use half::{bf16, f16};
use halfbyte_cuda_driver::{Context, DeviceBuffer, Stream};
use halfbyte_cuda_emulator::EmulatorConfig;
use halfbyte_cuda_kernels::{Affine, DeviceWeights, Error, Kernels, MAX_ROWS, PromptInputs, PromptPrecision};
use halfbyte_q4::BlockQ4_0;
use halfbyte_q4::affine::{GroupSize, pack8};
use halfbyte_q8::BlockQ8_0;
use halfbyte_testing::Rng;

use PromptPrecision::{Bf16, Int8};

/// Outputs and inputs.
const N: usize = 40;
const K: usize = 256;

/// An affine matrix, and each weight in float64.
struct Matrix {
    words: Vec<u32>,
    scales: Vec<bf16>,
    biases: Vec<bf16>,
    group: usize,
    weights: Vec<f64>,
}

fn matrix(random: &mut Rng, group: usize) -> Matrix {
    let codes: Vec<u8> = (0..N * K).map(|_| (random.bits() % 16) as u8).collect();
    let scales = bf16s(random, N * K / group, 0.02);
    let biases = bf16s(random, N * K / group, 0.1);
    let weights = (0..N * K)
        .map(|i| scales[i / group].to_f64() * f64::from(codes[i]) + biases[i / group].to_f64())
        .collect();
    let words = codes.as_chunks::<8>().0.iter().map(pack8).collect();
    Matrix { words, scales, biases, group, weights }
}

impl Matrix {
    fn load(&self, kernels: &Kernels) -> DeviceWeights {
        let Self { words, scales, biases, group, .. } = self;
        DeviceWeights::from_affine(kernels, N, K, &Affine { bits: 4, group: *group, words, scales, biases })
            .unwrap()
    }
}

/// The product of `x` in chunks of `chunk` rows, the bits of its outputs, and what each chunk was computed in.
fn product(
    context: &Context,
    kernels: &Kernels,
    precision: PromptPrecision,
    x: &[bf16],
    chunk: usize,
    weights: &DeviceWeights,
) -> (Vec<bf16>, Vec<PromptPrecision>) {
    let stream = Stream::legacy_default(context);
    let mut inputs = PromptInputs::new(kernels, K);
    let (mut y, mut taken) = (Vec::new(), Vec::new());
    for x in x.chunks(chunk * K) {
        let rows = x.len() / K;
        let x = DeviceBuffer::from_slice(context, x).unwrap();
        let mut out = DeviceBuffer::uninit(context, rows * weights.outputs()).unwrap();
        let group = weights.format().group();
        let prepared = inputs.prepare(&stream, precision, x.as_slice(), rows, K, group).unwrap();
        prepared.multiply(&stream, weights, &mut out.as_mut_slice()).unwrap();
        taken.push(prepared.precision());
        y.extend(out.to_vec().unwrap());
    }
    (y, taken)
}

fn bits(numbers: &[bf16]) -> Vec<u16> {
    numbers.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn a_rows_bits_do_not_depend_on_the_chunk_it_is_in() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let mut random = Rng(1);
        let matrix = matrix(&mut random, 64);
        let weights = matrix.load(&kernels);
        let x = bf16s(&mut random, 70 * K, 1.0);
        for precision in [Bf16, Int8] {
            let (whole, _) = product(context, &kernels, precision, &x, 70, &weights);
            for chunk in [1, 7, 33] {
                let (cut, taken) = product(context, &kernels, precision, &x, chunk, &weights);
                assert_eq!(bits(&cut), bits(&whole), "{precision}, chunks of {chunk}");
                // The request's choice, not the chunk's size, decides.
                assert!(taken.iter().all(|t| *t == precision), "{precision}, chunks of {chunk}");
            }
        }
    });
}

/// Against float64 of unquantized inputs: int8 rounds an input by at most half a step, 1/254 of its group's largest.
#[test]
fn every_format_multiplies() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let mut random = Rng(2);
        let rows = 5;
        let x = bf16s(&mut random, rows * K, 1.0);
        let mut all: Vec<(String, DeviceWeights, Vec<f64>)> = Vec::new();
        for group in [32, 64, 128] {
            let matrix = matrix(&mut random, group);
            all.push((format!("affine {group}"), matrix.load(&kernels), matrix.weights));
        }
        let blocks: Vec<BlockQ4_0> = (0..N * K / 32)
            .map(|_| BlockQ4_0 {
                scale: f16::from_f32(random.f32() * 0.05),
                codes: std::array::from_fn(|_| random.bits() as u8),
            })
            .collect();
        let weights = blocks.iter().flat_map(|b| b.dequantize()).map(f64::from).collect();
        all.push(("Q4_0".into(), DeviceWeights::from_q4_0(&kernels, N, K, &blocks).unwrap(), weights));
        let blocks: Vec<BlockQ8_0> = (0..N * K / 32)
            .map(|_| BlockQ8_0 {
                scale: f16::from_f32(random.f32() * 0.005),
                codes: std::array::from_fn(|_| random.bits() as i8),
            })
            .collect();
        let weights = blocks.iter().flat_map(|b| b.dequantize()).map(f64::from).collect();
        all.push(("Q8_0".into(), DeviceWeights::from_q8_0(&kernels, N, K, &blocks).unwrap(), weights));

        for (name, loaded, weights) in &all {
            let group = loaded.format().group().weights();
            for precision in [Bf16, Int8] {
                let (y, taken) = product(context, &kernels, precision, &x, rows, loaded);
                assert_eq!(taken, [precision]);
                for (i, got) in y.iter().enumerate() {
                    let (row, w) = (&x[i / N * K..][..K], &weights[i % N * K..][..K]);
                    let expected: f64 = row.iter().zip(w).map(|(x, w)| x.to_f64() * w).sum();
                    let magnitude: f64 = row.iter().zip(w).map(|(x, w)| (x.to_f64() * w).abs()).sum();
                    let steps = row.chunks(group).zip(w.chunks(group));
                    let rounding: f64 = steps
                        .map(|(x, w)| {
                            let largest = x.iter().fold(0.0f64, |m, x| m.max(x.to_f64().abs()));
                            let range = w.iter().fold(f64::INFINITY, |m, w| m.min(*w)).abs()
                                + w.iter().fold(0.0f64, |m, w| m.max(w.abs()));
                            largest / 254.0 * range * group as f64
                        })
                        .sum();
                    let bound = expected.abs() * 2f64.powi(-8)
                        + magnitude * 2f64.powi(-16)
                        + if precision == Int8 { rounding } else { 0.0 };
                    let off = (got.to_f64() - expected).abs();
                    assert!(
                        off <= bound,
                        "{name}, {precision}, output {i}: {got} for {expected}, bound {bound}"
                    );
                }
            }
        }
    });
}

#[test]
fn an_exceptional_chunk_is_computed_in_bf16_and_the_others_in_int8() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let mut random = Rng(3);
        let weights = matrix(&mut random, 64).load(&kernels);
        let plain = bf16s(&mut random, 12 * K, 1.0);
        for (what, value) in [("NaN", bf16::NAN), ("infinity", bf16::NEG_INFINITY), ("overflow", bf16::MAX)] {
            // One input of row 5, in the second of three chunks of four rows.
            let mut x = plain.clone();
            x[5 * K + 77] = value;
            let (y, taken) = product(context, &kernels, Int8, &x, 4, &weights);
            assert_eq!(taken, [Int8, Bf16, Int8], "{what}");
            let (bf16_bits, _) = product(context, &kernels, Bf16, &x, 4, &weights);
            let (int8_bits, _) = product(context, &kernels, Int8, &plain, 4, &weights);
            assert_eq!(bits(&y[4 * N..8 * N]), bits(&bf16_bits[4 * N..8 * N]), "{what}: the chunk");
            assert_eq!(bits(&y[..4 * N]), bits(&int8_bits[..4 * N]), "{what}: before it");
            assert_eq!(bits(&y[8 * N..]), bits(&int8_bits[8 * N..]), "{what}: after it");
        }
    });
}

#[test]
fn int8_buffers_are_allocated_when_int8_is_asked_for() {
    on_gpu(EmulatorConfig::default(), |context, emulator| {
        let kernels = Kernels::new(context).unwrap();
        let stream = Stream::legacy_default(context);
        let x = DeviceBuffer::<bf16>::zeroed(context, 2 * K).unwrap();
        let mut inputs = PromptInputs::new(&kernels, K);
        assert_eq!(inputs.bytes(), 0);
        inputs.prepare(&stream, Bf16, x.as_slice(), 2, K, GroupSize::G64).unwrap();
        let sums = MAX_ROWS * K / 32 * 4;
        assert_eq!(inputs.bytes(), sums);
        inputs.prepare(&stream, Int8, x.as_slice(), 2, K, GroupSize::G64).unwrap();
        assert_eq!(inputs.bytes(), 2 * sums + MAX_ROWS * K + 4);
        if let Some(emulator) = emulator {
            let names: Vec<_> = emulator.launches().into_iter().map(|launch| launch.kernel).collect();
            assert_eq!(names, ["group_sums_g64", "w4a8_quantize_g64"]);
        }
    });
}

#[test]
fn what_does_not_fit_is_refused_by_name_and_nothing_is_queued() {
    on_gpu(EmulatorConfig::default(), |context, emulator| {
        let kernels = Kernels::new(context).unwrap();
        let stream = Stream::legacy_default(context);
        let matrix = matrix(&mut Rng(4), 64);
        let Matrix { words, scales, biases, group, .. } = &matrix;
        let affine = Affine { bits: 4, group: *group, words, scales, biases };
        let refused =
            |affine: &Affine<'_>| DeviceWeights::from_affine(&kernels, N, K, affine).unwrap_err().to_string();
        assert_eq!(
            refused(&Affine { bits: 8, ..affine }),
            "affine4_prefill takes weights of 4 bits, got 8 bits"
        );
        assert_eq!(
            refused(&Affine { group: 16, ..affine }),
            "affine4_prefill takes weights of groups of 32, 64 or 128, got groups of 16"
        );
        assert_eq!(
            refused(&Affine { scales: &scales[1..], ..affine }),
            "the scales of an affine matrix: expected 160 elements, got 159"
        );

        let weights = matrix.load(&kernels);
        let x = DeviceBuffer::<bf16>::zeroed(context, 2 * K + 1).unwrap();
        let mut inputs = PromptInputs::new(&kernels, K);
        let whole = x.slice(0..2 * K).unwrap();
        let mut refused =
            |x, rows, inputs_, group| inputs.prepare(&stream, Int8, x, rows, inputs_, group).unwrap_err();
        assert_eq!(
            refused(whole, 3, K, GroupSize::G64),
            Error::Length { what: "a prompt chunk", expected: 3 * K, got: 2 * K }
        );
        let group = refused(whole, 2, 96, GroupSize::G64);
        assert_eq!(group, Error::Inputs { kernel: "w4a8_quantize_g64", multiple: 64, got: 96 });
        let wide = refused(whole, 1, 2 * K, GroupSize::G64);
        assert_eq!(wide, Error::Mismatch { what: "the widest input", expected: K, got: 2 * K });
        let rows = refused(whole, MAX_ROWS + 1, K, GroupSize::G64);
        assert_eq!(rows, Error::ChunkRows { limit: MAX_ROWS, got: MAX_ROWS + 1 });
        let odd = refused(x.slice(1..2 * K + 1).unwrap(), 2, K, GroupSize::G64);
        assert_eq!(odd, Error::Alignment { what: "a prompt chunk", expected: 16, got: 2 });
        let launched = || emulator.map_or(0, |emulator| emulator.launches().len());
        assert_eq!(launched(), 0);

        let mut y = DeviceBuffer::<bf16>::zeroed(context, 2 * N).unwrap();
        let prepared = inputs.prepare(&stream, Bf16, whole, 2, K, GroupSize::G32).unwrap();
        let error = prepared.multiply(&stream, &weights, &mut y.as_mut_slice()).unwrap_err();
        assert_eq!(error, Error::Mismatch { what: "the group of a matrix", expected: 32, got: 64 });

        let prepared = inputs.prepare(&stream, Bf16, whole, 2, K, GroupSize::G64).unwrap();
        let error = prepared.multiply(&stream, &weights, &mut y.slice_mut(1..2 * N).unwrap()).unwrap_err();
        assert_eq!(
            error,
            Error::Length { what: "the outputs of a prompt chunk", expected: 2 * N, got: 2 * N - 1 }
        );
        stream.synchronize().unwrap();
        assert!(launched() <= 2, "the sums alone");
    });
}
