//! A training step's small kernels through the public launchers, against f64.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod gpu;

use common::half_bf16_unit;
use gpu::{bf16s, on_gpu};
use half::bf16;
use halfbyte_cuda_driver::{Context, DeviceBuffer, Stream};
use halfbyte_cuda_emulator::EmulatorConfig;
use halfbyte_cuda_kernels::training::{
    AdamState, AdamW, NormGradients, cross_entropy, embed_backward, rms_norm_backward, rope_backward,
};
use halfbyte_cuda_kernels::{DeviceRopeTable, Error, Kernels, RmsNorm, RopeOrder, reference};
use halfbyte_testing::Rng;

const U: f64 = 1.0 / (1 << 24) as f64;

fn wide(numbers: &[bf16]) -> Vec<f64> {
    numbers.iter().map(|v| v.to_f64()).collect()
}

fn upload<T: bytemuck::Pod>(context: &Context, numbers: &[T]) -> DeviceBuffer<T> {
    DeviceBuffer::from_slice(context, numbers).unwrap()
}

#[test]
fn adamw_follows_f64_over_steps_and_keeps_a_spoilt_gradient_to_its_weight() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let stream = Stream::legacy_default(context);
        let mut random = Rng(71);
        for n in [1030, 4, 3] {
            let start: Vec<f32> = (0..n).map(|_| random.f32()).collect();
            let mut weights = upload(context, &start);
            let (mut first, mut second) =
                (DeviceBuffer::zeroed(context, n).unwrap(), DeviceBuffer::zeroed(context, n).unwrap());
            let mut copy = DeviceBuffer::<bf16>::uninit(context, n).unwrap();
            let mut twin: Vec<[f64; 3]> = start.iter().map(|&w| [f64::from(w), 0.0, 0.0]).collect();
            for step in 1..=5 {
                let settings = AdamW { rate: 0.01, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, decay: 0.1, step };
                // Gradients of many sizes; one that is not a number at the last step.
                let scale = |random: &mut Rng| 2f32.powi(random.below(20) as i32 - 14);
                let mut g: Vec<f32> = (0..n).map(|_| random.f32() * scale(&mut random)).collect();
                if step == 5 {
                    g[1] = f32::NAN;
                }
                let gradient = upload(context, &g);
                let state = &mut AdamState {
                    weights: weights.as_mut_slice(),
                    first: first.as_mut_slice(),
                    second: second.as_mut_slice(),
                    copy: copy.as_mut_slice(),
                };
                settings.step(&kernels, &stream, state, gradient.as_slice()).unwrap();
                for (w, g) in twin.iter_mut().zip(&g) {
                    *w = reference::adamw(&settings, *w, f64::from(*g));
                }
            }
            let (weights, copy) = (weights.to_vec().unwrap(), copy.to_vec().unwrap());
            for i in 0..n {
                assert_eq!(copy[i].to_bits(), bf16::from_f32(weights[i]).to_bits());
                let [w, ..] = twin[i];
                if i == 1 {
                    assert!(weights[i].is_nan() && w.is_nan());
                    continue;
                }
                // A step of 0.01 is right to a few units even where the means cancel a little, and w to one each step.
                let bound = 5.0 * (0.01 * 64.0 * U + 2.0 * U * w.abs());
                assert!((f64::from(weights[i]) - w).abs() <= bound, "{i}: {} {w}", weights[i]);
            }
        }
    });
}

#[test]
fn the_loss_and_its_gradient_are_within_their_bounds_of_f64() {
    let config = EmulatorConfig { seed: 72, ..EmulatorConfig::default() };
    on_gpu(config, |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let stream = Stream::legacy_default(context);
        let mut random = Rng(72);
        for (rows, n) in [(3, 4), (4, 1000), (2, 5000)] {
            let mut logits: Vec<f32> = (0..rows * n).map(|_| random.f32() * 20.0).collect();
            logits[2] = f32::NEG_INFINITY;
            let mut targets: Vec<u32> = (0..rows).map(|_| random.below(n) as u32).collect();
            targets[0] = 1;
            targets[1] = u32::MAX;
            let scale = 1.0 / (rows - 1) as f32;
            let (mut losses, mut gradient) = (
                DeviceBuffer::<f32>::uninit(context, rows).unwrap(),
                DeviceBuffer::<bf16>::uninit(context, rows * n).unwrap(),
            );
            let (x, t) = (upload(context, &logits), upload(context, &targets));
            let (l, d) = (&mut losses.as_mut_slice(), &mut gradient.as_mut_slice());
            cross_entropy(&kernels, &stream, [rows, n], x.as_slice(), t.as_slice(), scale, l, d).unwrap();
            let (losses, gradient) = (losses.to_vec().unwrap(), gradient.to_vec().unwrap());
            for (r, row) in logits.chunks(n).enumerate() {
                let got = &gradient[r * n..][..n];
                if targets[r] == u32::MAX {
                    assert!(losses[r] == 0.0 && got.iter().all(|d| *d == bf16::ZERO));
                    continue;
                }
                let row: Vec<f64> = row.iter().map(|&x| f64::from(x)).collect();
                let target = targets[r] as usize;
                let (loss, softmax) = reference::cross_entropy(&row, target);
                // Distances to the largest are at most 40.
                let sum = (n as f64 / 1024.0 + 24.0 + 4.0 * 40.0) * U;
                assert!((f64::from(losses[r]) - loss).abs() <= sum + 4.0 * U * loss, "{} {loss}", losses[r]);
                for (i, (got, p)) in got.iter().zip(&softmax).enumerate() {
                    let want = f64::from(scale) * (p - f64::from(u8::from(i == target)));
                    let bound = f64::from(scale) * (sum * p + 2.0 * U) + half_bf16_unit(want) * 1.001;
                    assert!((got.to_f64() - want).abs() <= bound, "row {r}, {i}: {got} {want}");
                }
            }
        }
        // A NaN and an infinity spoil their rows alone.
        let mut logits = vec![1.0f32; 3 * 1028];
        logits[7] = f32::NAN;
        logits[2 * 1028 + 1027] = f32::INFINITY;
        let (x, t) = (upload(context, &logits), upload(context, &[0u32; 3]));
        let (mut losses, mut gradient) = (
            DeviceBuffer::<f32>::uninit(context, 3).unwrap(),
            DeviceBuffer::<bf16>::uninit(context, 3 * 1028).unwrap(),
        );
        let (l, d) = (&mut losses.as_mut_slice(), &mut gradient.as_mut_slice());
        cross_entropy(&kernels, &stream, [3, 1028], x.as_slice(), t.as_slice(), 1.0, l, d).unwrap();
        let losses = losses.to_vec().unwrap();
        assert!(losses[0].is_nan() && losses[2].is_nan());
        assert!((losses[1] - 1028f32.ln()).abs() < 1e-5, "{losses:?}");
    });
}

#[test]
fn the_norms_gradients_are_within_their_bounds_of_f64() {
    let config = EmulatorConfig { seed: 73, ..EmulatorConfig::default() };
    on_gpu(config, |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let stream = Stream::legacy_default(context);
        let mut random = Rng(73);
        for (rows, width, add) in [(5, 72, false), (37, 200, true), (2, 2056, true)] {
            let norm = RmsNorm { rows, width, epsilon: 1e-5 };
            let (x, dy) = (bf16s(&mut random, rows * width, 1.0), bf16s(&mut random, rows * width, 1.0));
            let w: Vec<f32> = (0..width).map(|_| 1.0 + random.f32()).collect();
            let (old, old_weights) = (bf16s(&mut random, rows * width, 1.0), vec![3.0f32; width]);
            let (mut dx, mut dw) = (upload(context, &old), upload(context, &old_weights));
            let mut inverses = DeviceBuffer::<f32>::uninit(context, rows).unwrap();
            let (dx_, dy_, w_) = (upload(context, &x), upload(context, &dy), upload(context, &w));
            let to = &mut NormGradients {
                input: dx.as_mut_slice(),
                add,
                weights: dw.as_mut_slice(),
                inverses: inverses.as_mut_slice(),
            };
            rms_norm_backward(&kernels, &stream, norm, dx_.as_slice(), w_.as_slice(), dy_.as_slice(), to)
                .unwrap();
            let (dx, dw) = (dx.to_vec().unwrap(), dw.to_vec().unwrap());
            let w: Vec<f64> = w.iter().map(|&w| f64::from(w)).collect();
            let (mut sums, mut sizes) = (vec![3.0; width], vec![3.0; width]);
            for r in 0..rows {
                let at = r * width..(r + 1) * width;
                let (row, d) = (wide(&x[at.clone()]), wide(&dy[at.clone()]));
                let (input, weights) = reference::rms_norm_backward(&row, &w, &d, 1e-5);
                let inverse = 1.0 / (row.iter().map(|v| v * v).sum::<f64>() / width as f64).sqrt();
                // The size of the terms that the mean is made of.
                let mean: f64 =
                    (0..width).map(|i| (w[i] * d[i] * row[i]).abs() * inverse).sum::<f64>() / width as f64;
                for i in 0..width {
                    let before = if add { old[at.start + i].to_f64() } else { 0.0 };
                    let want = before + input[i];
                    let terms = inverse * ((w[i] * d[i]).abs() + (row[i] * inverse).abs() * mean);
                    let bound = half_bf16_unit(want) * 1.001 + 120.0 * U * (terms + before.abs());
                    let got = dx[at.start + i].to_f64();
                    assert!((got - want).abs() <= bound, "{rows}x{width} row {r}, {i}: {got} {want}");
                    sums[i] += weights[i];
                    sizes[i] += weights[i].abs();
                }
            }
            for i in 0..width {
                let bound = (rows as f64 / 32.0 + 34.0 + 60.0) * U * sizes[i];
                assert!((f64::from(dw[i]) - sums[i]).abs() <= bound, "weight {i}: {} {}", dw[i], sums[i]);
            }
        }
    });
}

#[test]
fn embeddings_gradients_are_summed_in_the_order_of_the_rows() {
    for seed in 74..76 {
        let config = EmulatorConfig { seed, ..EmulatorConfig::default() };
        on_gpu(config, |context, _| {
            let kernels = Kernels::new(context).unwrap();
            let stream = Stream::legacy_default(context);
            let mut random = Rng(seed);
            for (rows, table, width) in [(300, 7, 40), (5, 3, 2064), (1, 1, 8)] {
                let tokens: Vec<u32> = (0..rows).map(|_| random.below(table + 1) as u32).collect();
                let dy = bf16s(&mut random, rows * width, 1.0);
                let old: Vec<f32> = (0..table * width).map(|_| random.f32()).collect();
                let mut dw = upload(context, &old);
                let (ids, d) = (upload(context, &tokens), upload(context, &dy));
                let to = &mut dw.as_mut_slice();
                embed_backward(&kernels, &stream, width, ids.as_slice(), d.as_slice(), to).unwrap();
                let mut want = old;
                for (r, &token) in tokens.iter().enumerate().filter(|(_, t)| (**t as usize) < table) {
                    for i in 0..width {
                        want[token as usize * width + i] += dy[r * width + i].to_f32();
                    }
                }
                assert_eq!(dw.to_vec().unwrap(), want, "{rows} rows of {width}");
            }
        });
    }
}

#[test]
fn rotary_gradients_turn_back() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let stream = Stream::legacy_default(context);
        let mut random = Rng(77);
        for (order, d, heads) in [(RopeOrder::Halves, 64, 3), (RopeOrder::Adjacent, 128, 17)] {
            let (rows, start) = (2, 40);
            let frequencies = DeviceRopeTable::frequencies(d, 10_000.0);
            let table = DeviceRopeTable::new(&kernels, &frequencies, 1.0, 64).unwrap();
            let host = bf16s(&mut random, rows * heads * d, 1.0);
            let mut gradient = upload(context, &host);
            let to = &mut gradient.as_mut_slice();
            rope_backward(&kernels, &stream, [rows, heads], start, (&table, order), to).unwrap();
            let got = gradient.to_vec().unwrap();
            for (i, head) in host.chunks(d).enumerate() {
                // The transposed rotation: turned by the opposite frequencies.
                let mut want = wide(head);
                let back: Vec<f64> = frequencies.iter().map(|f| -f).collect();
                reference::rotate(&mut want, &back, start + i / heads, order);
                for (got, want) in got[i * d..].iter().zip(&want) {
                    let bound = half_bf16_unit(*want) * 1.001 + 4.0 * U * 6.0;
                    assert!((got.to_f64() - want).abs() <= bound, "{order:?}, head {i}: {got} {want}");
                }
            }
        }
    });
}

#[test]
fn wrong_arguments_are_refused() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let stream = Stream::legacy_default(context);
        let f = upload(context, &[0.0f32; 64]);
        let ids = upload(context, &[0u32; 4]);
        let b = upload(context, &[bf16::ONE; 64]);
        let (mut losses, mut gradient) = (upload(context, &[7.0f32; 4]), upload(context, &[bf16::ONE; 64]));
        let mut loss = |rows: usize, n: usize| {
            let (l, d) = (&mut losses.as_mut_slice(), &mut gradient.as_mut_slice());
            cross_entropy(&kernels, &stream, [rows, n], f.as_slice(), ids.as_slice(), 1.0, l, d)
        };
        assert!(matches!(loss(4, 18), Err(Error::Inputs { multiple: 4, got: 18, .. })));
        assert!(matches!(loss(2, 32), Err(Error::Length { what: "the targets", expected: 2, got: 4 })));
        assert!(matches!(loss(4, 12), Err(Error::Length { what: "the logits", expected: 48, got: 64 })));
        let mut dw = upload(context, &[0.0f32; 64]);
        let got = embed_backward(&kernels, &stream, 24, ids.as_slice(), b.as_slice(), &mut dw.as_mut_slice());
        assert!(matches!(got, Err(Error::Length { expected: 48, got: 64, .. })));
        let table = DeviceRopeTable::new(&kernels, &DeviceRopeTable::frequencies(16, 1e4), 1.0, 3).unwrap();
        let turn = (&table, RopeOrder::Halves);
        let got = rope_backward(&kernels, &stream, [4, 1], 0, turn, &mut gradient.as_mut_slice());
        assert_eq!(got, Err(Error::Position { what: "the rotary table", end: 3, start: 0, rows: 4 }));
        let settings = AdamW { rate: 0.1, beta1: 0.9, beta2: 0.9, epsilon: 1e-8, decay: 0.0, step: 0 };
        let (mut m, mut v, mut c) = (upload(context, &[0.0f32; 64]), upload(context, &[0.0f32; 64]), b);
        let state = &mut AdamState {
            weights: dw.as_mut_slice(),
            first: m.as_mut_slice(),
            second: v.as_mut_slice(),
            copy: c.as_mut_slice(),
        };
        let got = settings.step(&kernels, &stream, state, f.as_slice());
        assert!(matches!(got, Err(Error::Mismatch { expected: 1, got: 0, .. })));
        assert_eq!(losses.to_vec().unwrap(), [7.0; 4]);
    });
}
