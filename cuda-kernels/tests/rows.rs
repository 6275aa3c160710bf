//! Norms, SwiGLU with its sums, and embeddings, through the public launchers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod gpu;
#[path = "common/matrices.rs"]
mod matrices;

use common::prefill::exact_sum;
use common::{Activations as _, half_bf16_unit};
use gpu::{bf16s, on_gpu};
use half::bf16;
use halfbyte_cuda_driver::{Context, DeviceBuffer, Stream};
use halfbyte_cuda_emulator::EmulatorConfig;
use halfbyte_cuda_kernels::{
    DeviceWeights, Error, Kernels, Prepared, PromptInputs, PromptPrecision, RmsNorm, Sums, WeightFormat, add,
    add_rms_norm, embed, reference, rms_norm, swiglu,
};
use halfbyte_q4::affine::GroupSize;
use halfbyte_testing::Rng;
use matrices::every_format;

const U: f64 = 1.0 / (1 << 24) as f64;
const GROUPS: [GroupSize; 3] = [GroupSize::G32, GroupSize::G64, GroupSize::G128];

/// The norm of `x` (plus `delta`), the sum as written back, and the sums of the groups.
struct Normed {
    x: Vec<bf16>,
    y: Vec<bf16>,
    sums: Vec<f32>,
}

fn normed(
    context: &Context,
    kernels: &Kernels,
    norm: RmsNorm,
    x: &[bf16],
    delta: Option<&[bf16]>,
    weights: &[f32],
    group: Option<GroupSize>,
) -> Normed {
    let stream = Stream::legacy_default(context);
    let mut x = DeviceBuffer::from_slice(context, x).unwrap();
    let weights = DeviceBuffer::from_slice(context, weights).unwrap();
    let mut y = DeviceBuffer::<bf16>::uninit(context, x.len()).unwrap();
    // Zeroed for the padding, which nobody writes.
    let elements = group.map_or(0, |group| Sums::elements(norm.rows, norm.width, group));
    let mut sums = DeviceBuffer::<f32>::zeroed(context, elements).unwrap();
    let mut to = group.map(|group| Sums { group, to: sums.as_mut_slice() });
    let (w, out) = (weights.as_slice(), &mut y.as_mut_slice());
    match delta {
        None => rms_norm(kernels, &stream, norm, x.as_slice(), w, out, to.as_mut()).unwrap(),
        Some(delta) => {
            let delta = DeviceBuffer::from_slice(context, delta).unwrap();
            let x = &mut x.as_mut_slice();
            add_rms_norm(kernels, &stream, norm, x, delta.as_slice(), w, out, to.as_mut()).unwrap();
        }
    }
    Normed { x: x.to_vec().unwrap(), y: y.to_vec().unwrap(), sums: sums.to_vec().unwrap() }
}

fn weights(random: &mut Rng, width: usize) -> Vec<f32> {
    (0..width).map(|_| 1.0 + random.f32()).collect()
}

fn assert_sums(sums: &[f32], y: &[bf16], [rows, width]: [usize; 2], group: GroupSize) {
    let group = group.weights();
    for (i, numbers) in y.chunks(group).enumerate() {
        let (r, g) = (i / (width / group), i % (width / group));
        let got = sums[g * rows.next_multiple_of(4) + r];
        assert_eq!(got.to_bits(), exact_sum(numbers).to_bits(), "row {r}, group {g} of {group}");
    }
}

#[test]
fn norms_are_within_their_bound_of_f64_and_their_sums_exact() {
    let config = EmulatorConfig { seed: 41, ..EmulatorConfig::default() };
    on_gpu(config, |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let mut random = Rng(41);
        let mut worst = 0f64;
        for (rows, width) in
            [(1, 8), (5, 64), (7, 576), (4, 1024), (3, 1032), (2, 2176), (1, 5120), (1, 16_384)]
        {
            for (with_delta, epsilon) in [(false, 1e-5), (true, 1e-6), (true, 0.5)] {
                let (x, delta) = (random.activations(rows * width), random.activations(rows * width));
                let w = weights(&mut random, width);
                let norm = RmsNorm { rows, width, epsilon };
                let group = GROUPS[random.below(3)];
                let group = width.is_multiple_of(group.weights()).then_some(group);
                let delta = with_delta.then_some(&*delta);
                let got = normed(context, &kernels, norm, &x, delta, &w, group);
                let sum = |i: usize| bf16::from_f32(x[i].to_f32() + delta.map_or(0.0, |d| d[i].to_f32()));
                let want: Vec<bf16> = (0..x.len()).map(sum).collect();
                assert_eq!(got.x, want, "the residual sum");
                let wide: Vec<f64> = w.iter().map(|&w| f64::from(w)).collect();
                for (row, y) in want.chunks(width).zip(got.y.chunks(width)) {
                    let row: Vec<f64> = row.iter().map(|v| v.to_f64()).collect();
                    for (want, got) in reference::rms_norm(&row, &wide, f64::from(epsilon)).iter().zip(y) {
                        let bound = 48.0 * U * want.abs() + half_bf16_unit(*want) * (1.0 + 96.0 * U);
                        let error = (got.to_f64() - want).abs();
                        worst = worst.max(error / bound);
                        assert!(error <= bound, "{rows}x{width}: {got} {want}");
                    }
                }
                if let Some(group) = group {
                    assert_sums(&got.sums, &got.y, [rows, width], group);
                }
            }
        }
        eprintln!("largest share of the bound: {worst:.3}");
    });
}

#[test]
fn the_sum_and_the_norm_in_one_have_the_bits_of_both() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let stream = Stream::legacy_default(context);
        let mut random = Rng(42);
        for width in [320, 1280] {
            let rows = 3;
            let norm = RmsNorm { rows, width, epsilon: 1e-5 };
            let (x, delta) = (bf16s(&mut random, rows * width, 1.0), bf16s(&mut random, rows * width, 1.0));
            let w = weights(&mut random, width);
            let at_once = normed(context, &kernels, norm, &x, Some(&delta), &w, Some(GroupSize::G64));
            let mut sum = DeviceBuffer::<bf16>::uninit(context, rows * width).unwrap();
            let (a, b) = (
                DeviceBuffer::from_slice(context, &x).unwrap(),
                DeviceBuffer::from_slice(context, &delta).unwrap(),
            );
            add(&kernels, &stream, a.as_slice(), b.as_slice(), &mut sum.as_mut_slice()).unwrap();
            let sum = sum.to_vec().unwrap();
            let apart = normed(context, &kernels, norm, &sum, None, &w, Some(GroupSize::G64));
            assert_eq!((at_once.x, at_once.y, at_once.sums), (sum, apart.y, apart.sums));

            // And a row alone has the bits that it has among others.
            let alone = RmsNorm { rows: 1, ..norm };
            let last = normed(context, &kernels, alone, &apart.x[2 * width..], None, &w, None);
            let all = normed(context, &kernels, norm, &apart.x, None, &w, None);
            assert_eq!(last.y, all.y[2 * width..]);
        }
    });
}

#[test]
fn numbers_that_are_not_finite_stay_in_their_row() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let mut random = Rng(43);
        for width in [96, 1056] {
            let norm = RmsNorm { rows: 4, width, epsilon: 1e-5 };
            let mut x = bf16s(&mut random, 4 * width, 1.0);
            x[5] = bf16::NAN;
            x[2 * width + 40] = bf16::NEG_INFINITY;
            let w = weights(&mut random, width);
            let got = normed(context, &kernels, norm, &x, None, &w, Some(GroupSize::G32));
            let row = |r: usize| &got.y[r * width..][..width];
            assert!(row(0).iter().all(|v| v.is_nan()));
            assert!(row(2).iter().enumerate().all(|(i, v)| if i == 40 {
                v.is_nan()
            } else {
                *v == bf16::ZERO
            }));
            assert!([1, 3].into_iter().all(|r| row(r).iter().all(|v| v.is_finite())));
            // Sums: NaN in row 0, and in row 2 for the second group only.
            assert!(got.sums[0].is_nan() && got.sums[4].is_nan() && got.sums[4 + 2].is_nan());
            assert!([1, 2, 3].into_iter().all(|i| got.sums[i].is_finite()));
        }
    });
}

#[test]
fn a_prompt_whose_sums_came_from_the_norm_or_swiglu_has_the_same_product() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let stream = Stream::legacy_default(context);
        let mut random = Rng(44);
        let (rows, k, n) = (6, 256, 24);
        let gate_up = DeviceBuffer::from_slice(context, &bf16s(&mut random, rows * 2 * k, 1.0)).unwrap();
        let w = DeviceBuffer::from_slice(context, &weights(&mut random, k)).unwrap();
        for matrix in every_format(&kernels, n, k, &mut random) {
            let group = matrix.weights.format().group();
            let elements = Sums::elements(rows, k, group);
            let mut x = DeviceBuffer::<bf16>::uninit(context, rows * k).unwrap();
            for from_norm in [false, true] {
                let mut sums = DeviceBuffer::<f32>::uninit(context, elements).unwrap();
                let to = &mut Sums { group, to: sums.as_mut_slice() };
                let out = &mut x.as_mut_slice();
                if from_norm {
                    let norm = RmsNorm { rows, width: k, epsilon: 1e-5 };
                    let rows = gate_up.slice(0..rows * k).unwrap();
                    rms_norm(&kernels, &stream, norm, rows, w.as_slice(), out, Some(to)).unwrap();
                } else {
                    swiglu(&kernels, &stream, [rows, k], gate_up.as_slice(), out, Some(to)).unwrap();
                }
                let product = |prepared: &Prepared<'_>| {
                    let mut y = DeviceBuffer::<bf16>::uninit(context, rows * n).unwrap();
                    prepared.multiply(&stream, &matrix.weights, &mut y.as_mut_slice()).unwrap();
                    y.to_vec().unwrap()
                };
                let given =
                    Prepared::summed(&kernels, x.as_slice(), rows, k, group, sums.as_slice()).unwrap();
                let mut inputs = PromptInputs::new(&kernels, k);
                let precision = PromptPrecision::Bf16;
                let made = inputs.prepare(&stream, precision, x.as_slice(), rows, k, group).unwrap();
                let (given, made) = (product(&given), product(&made));
                assert_eq!(given, made, "{}", matrix.weights.format());
                // Against f64: bf16's rounding, and f32's of a few hundred terms.
                let x = x.to_vec().unwrap();
                for (i, got) in given.iter().enumerate() {
                    let (row, o) = (&x[i / n * k..][..k], i % n * k);
                    let want: f64 = row.iter().zip(&matrix.values[o..]).map(|(x, w)| x.to_f64() * w).sum();
                    let terms: f64 =
                        row.iter().zip(&matrix.terms[o..]).map(|(x, t)| x.to_f64().abs() * t).sum();
                    let bound = half_bf16_unit(want) * 1.001 + 2.0 * k as f64 * U * terms;
                    assert!(
                        (got.to_f64() - want).abs() <= bound,
                        "{}: {got} {want}",
                        matrix.weights.format()
                    );
                }
            }
        }
    });
}

#[test]
fn swiglu_is_within_a_rounding_of_f64_and_its_sums_exact() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let stream = Stream::legacy_default(context);
        let mut random = Rng(45);
        for (rows, width) in [(3, 1152), (5, 96), (1, 40)] {
            let gate_up = random.activations(rows * 2 * width);
            let from = DeviceBuffer::from_slice(context, &gate_up).unwrap();
            let mut h = DeviceBuffer::<bf16>::uninit(context, rows * width).unwrap();
            let group = GROUPS.into_iter().rev().find(|g| width.is_multiple_of(g.weights()));
            let elements = group.map_or(0, |group| Sums::elements(rows, width, group));
            let mut sums = DeviceBuffer::<f32>::zeroed(context, elements).unwrap();
            let mut to = group.map(|group| Sums { group, to: sums.as_mut_slice() });
            let out = &mut h.as_mut_slice();
            swiglu(&kernels, &stream, [rows, width], from.as_slice(), out, to.as_mut()).unwrap();
            let h = h.to_vec().unwrap();
            for (i, got) in h.iter().enumerate() {
                let at = i / width * 2 * width + i % width;
                let want = reference::swiglu(gate_up[at].to_f64(), gate_up[at + width].to_f64());
                let bound = half_bf16_unit(want) * 1.001 + want.abs() * 12.0 * U;
                assert!((got.to_f64() - want).abs() <= bound, "{i}: {got} {want}");
            }
            if let Some(group) = group {
                assert_sums(&sums.to_vec().unwrap(), &h, [rows, width], group);
            }
        }
    });
}

#[test]
fn embeddings_are_the_tables_rows_rounded_once_and_nan_beyond_it() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let stream = Stream::legacy_default(context);
        let mut random = Rng(46);
        let tokens = [3u32, 0, 11, 12, u32::MAX, 3];
        let ids = DeviceBuffer::from_slice(context, &tokens).unwrap();
        for k in [256, 1152, 40] {
            for matrix in every_format(&kernels, 12, k, &mut random) {
                let mut y = DeviceBuffer::<bf16>::uninit(context, tokens.len() * k).unwrap();
                embed(&kernels, &stream, &matrix.weights, ids.as_slice(), &mut y.as_mut_slice()).unwrap();
                for (token, row) in tokens.iter().zip(y.to_vec().unwrap().chunks(k)) {
                    let Some(want) = matrix.values.chunks(k).nth(*token as usize) else {
                        assert!(row.iter().all(|v| v.is_nan()));
                        continue;
                    };
                    // The f32 value is the f64 one rounded: affine by a fused operation, the others exactly.
                    let want: Vec<bf16> = want.iter().map(|&w| bf16::from_f32(w as f32)).collect();
                    assert_eq!(row, want, "{}, token {token}", matrix.weights.format());
                }
            }
        }
    });
}

#[test]
fn wrong_arguments_are_refused_before_anything_is_queued() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let stream = Stream::legacy_default(context);
        let x = DeviceBuffer::from_slice(context, &[bf16::ONE; 128]).unwrap();
        let w = DeviceBuffer::from_slice(context, &[1.0f32; 64]).unwrap();
        let mut y = DeviceBuffer::from_slice(context, &[bf16::NAN; 128]).unwrap();
        let mut sums = DeviceBuffer::from_slice(context, &[-1.0f32; 8]).unwrap();
        let mut norm = |rows: usize, width: usize, weights: usize, group: GroupSize, elements: usize| {
            let norm = RmsNorm { rows, width, epsilon: 1e-5 };
            let x = x.slice(0..rows * width).unwrap();
            let y = &mut y.slice_mut(0..rows * width).unwrap();
            let sums = &mut Sums { group, to: sums.slice_mut(0..elements).unwrap() };
            rms_norm(&kernels, &stream, norm, x, w.slice(0..weights).unwrap(), y, Some(sums))
        };
        let multiple = |multiple, got| Err(Error::Inputs { kernel: "rms_norm", multiple, got });
        assert_eq!(norm(2, 60, 60, GroupSize::G32, 8), multiple(8, 60));
        assert_eq!(norm(2, 0, 0, GroupSize::G32, 8), multiple(8, 0));
        assert_eq!(norm(2, 64, 64, GroupSize::G128, 8), multiple(128, 64));
        let length = |what, expected, got| Err(Error::Length { what, expected, got });
        assert_eq!(norm(2, 64, 56, GroupSize::G32, 8), length("a norm's weights", 64, 56));
        assert_eq!(norm(2, 64, 64, GroupSize::G32, 7), length("the sums of groups", 8, 7));
        assert_eq!(norm(2, 64, 64, GroupSize::G64, 8), length("the sums of groups", 4, 8));
        assert_eq!(sums.to_vec().unwrap(), [-1.0; 8]);
        assert!(y.to_vec().unwrap().iter().all(|v| v.is_nan()));

        let table = DeviceWeights::from_bf16(&kernels, 4, 16, &[bf16::ONE; 64]).unwrap();
        assert_eq!(table.format(), WeightFormat::Bf16);
        let ids = DeviceBuffer::from_slice(context, &[0u32; 3]).unwrap();
        let got = embed(&kernels, &stream, &table, ids.as_slice(), &mut y.slice_mut(0..47).unwrap());
        assert_eq!(got, length("the rows of an embedding", 48, 47));
        let got = embed(&kernels, &stream, &table, ids.as_slice(), &mut y.slice_mut(4..52).unwrap());
        assert!(matches!(got, Err(Error::Alignment { expected: 16, got: 8, .. })));
    });
}
