//! The sampler through the public launcher: its twin's token, always, and draws as likely as the softmax says.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod gpu;

use gpu::on_gpu;
use halfbyte_cuda_driver::{Context, DeviceBuffer, Stream};
use halfbyte_cuda_emulator::EmulatorConfig;
use halfbyte_cuda_kernels::{DeviceSampler, Draw, Error, Kernels, reference};
use halfbyte_testing::Rng;

fn sample(
    context: &Context,
    kernels: &Kernels,
    vocabulary: usize,
    logits: &[f32],
    draws: &[Draw],
) -> Vec<u32> {
    let stream = Stream::legacy_default(context);
    let logits = DeviceBuffer::from_slice(context, logits).unwrap();
    let mut tokens = DeviceBuffer::<u32>::uninit(context, draws.len()).unwrap();
    let mut sampler = DeviceSampler::new(kernels, vocabulary).unwrap();
    sampler.sample(&stream, draws, logits.as_slice(), &mut tokens.as_mut_slice()).unwrap();
    tokens.to_vec().unwrap()
}

fn twin(vocabulary: usize, logits: &[f32], draws: &[Draw]) -> Vec<u32> {
    let rows = logits.chunks(vocabulary).zip(draws);
    rows.map(|(row, draw)| reference::sample(row, *draw).unwrap_or(u32::MAX)).collect()
}

/// Rules of every kind, at any seed and position.
fn draws(random: &mut Rng, rows: usize) -> Vec<Draw> {
    (0..rows)
        .map(|r| Draw {
            temperature: [0.0, 0.7, 1.0, 5.0][r % 4],
            top_k: [0, 1, 5, 32, 20][random.below(5)],
            seed: random.bits(),
            position: random.bits() >> random.below(64),
        })
        .collect()
}

#[test]
fn every_token_is_the_twins() {
    let config = EmulatorConfig { seed: 61, ..EmulatorConfig::default() };
    on_gpu(config, |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let mut random = Rng(61);
        // Less than a vector, a slice and a rest, rows that are not aligned, three slices with few distinct logits.
        for (vocabulary, rows, levels) in
            [(3, 4, 0), (100, 8, 0), (4097, 4, 0), (4101, 4, 7), (9000, 4, 3), (12_288, 4, 0)]
        {
            let logits: Vec<f32> = (0..rows * vocabulary)
                .map(|_| match levels {
                    0 => random.f32() * 12.0,
                    // Ties, in the thousands.
                    _ => random.below(levels) as f32 - 2.0,
                })
                .collect();
            let draws = draws(&mut random, rows);
            let got = sample(context, &kernels, vocabulary, &logits, &draws);
            assert_eq!(got, twin(vocabulary, &logits, &draws), "{vocabulary}, {draws:?}");
        }
    });
}

#[test]
fn equal_logits_give_the_lowest_token_and_nan_none() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let vocabulary = 5000;
        let mut rows = vec![vec![f32::NEG_INFINITY; vocabulary]; 6];
        rows[0][4999] = 1.0;
        rows[0][4097] = 1.0;
        // -0 equals 0.
        rows[1].fill(-0.0);
        rows[1][4500] = 0.0;
        rows[2].fill(f32::NAN);
        rows[2][77] = -1e38;
        rows[3].fill(f32::NAN);
        rows[5][9] = f32::INFINITY;
        rows[5][4300] = f32::INFINITY;
        let logits = rows.concat();
        let greedy = [Draw::GREEDY; 6];
        let want = [4097, 0, 77, u32::MAX, u32::MAX, 9];
        assert_eq!(sample(context, &kernels, vocabulary, &logits, &greedy), want);
        for top_k in [0, 3] {
            let draws = [Draw { temperature: 0.5, top_k, seed: 3, position: 4 }; 6];
            let got = sample(context, &kernels, vocabulary, &logits, &draws);
            assert_eq!(got, twin(vocabulary, &logits, &draws), "top_k {top_k}");
            assert_eq!([got[2], got[3], got[4], got[5]], [77, u32::MAX, u32::MAX, 9]);
            assert!(got[0] == 4097 || got[0] == 4999);
        }
    });
}

/// 32 draws a launch from five tokens; the counts against the softmax by chi-squared with four degrees of freedom, whose
/// 99.9th percentile is 18.5. Seeded: it passes or fails for good.
#[test]
fn draws_are_as_likely_as_the_softmax_says() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let logits = [0.3f32, -1.0, 1.2, 0.0, 2.0];
        for (temperature, top_k) in [(1.0, 0), (0.6, 5), (2.0, 3)] {
            let mut counts = [0.0; 5];
            let launches = 20;
            for launch in 0..launches {
                let draw = |r: u64| Draw { temperature, top_k, seed: 17, position: launch * 32 + r };
                let draws: Vec<Draw> = (0..32).map(draw).collect();
                for token in sample(context, &kernels, 5, &logits.repeat(32), &draws) {
                    counts[token as usize] += 1.0;
                }
            }
            let allowed = |token: usize| top_k != 3 || [0, 2, 4].contains(&token);
            let weight = |t: usize| if allowed(t) { f64::from(logits[t] / temperature).exp() } else { 0.0 };
            let total: f64 = (0..5).map(weight).sum();
            let chi: f64 = (0..5)
                .filter(|&t| allowed(t))
                .map(|t| {
                    let want = weight(t) / total * 32.0 * launches as f64;
                    let off: f64 = counts[t] - want;
                    off * off / want
                })
                .sum();
            assert!(chi < 18.5, "temperature {temperature}, top_k {top_k}: {counts:?}, {chi}");
            assert!((0..5).all(|t| allowed(t) || counts[t] == 0.0), "{counts:?}");
        }
    });
}

#[test]
fn wrong_draws_are_refused_before_anything_is_queued() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let stream = Stream::legacy_default(context);
        let mut sampler = DeviceSampler::new(&kernels, 8).unwrap();
        let logits = DeviceBuffer::from_slice(context, &[1.0f32; 16]).unwrap();
        let mut tokens = DeviceBuffer::from_slice(context, &[7u32; 2]).unwrap();
        let mut run = |draws: &[Draw], numbers: usize| {
            let logits = logits.slice(0..numbers).unwrap();
            sampler.sample(&stream, draws, logits, &mut tokens.as_mut_slice())
        };
        for temperature in [-1.0, f32::NAN, f32::INFINITY, 1e-39] {
            let got = run(&[Draw { temperature, ..Draw::GREEDY }; 2], 16);
            assert!(matches!(got, Err(Error::Draw { what: "temperature", .. })), "{temperature}: {got:?}");
        }
        let got = run(&[Draw { top_k: 33, ..Draw::GREEDY }; 2], 16);
        assert!(matches!(got, Err(Error::Draw { what: "top_k", .. })));
        assert_eq!(run(&[Draw::GREEDY; 33], 16), Err(Error::WindowRows { limit: 32, got: 33 }));
        assert_eq!(run(&[], 0), Err(Error::WindowRows { limit: 32, got: 0 }));
        let got = run(&[Draw::GREEDY; 2], 15);
        assert_eq!(got, Err(Error::Length { what: "the logits", expected: 16, got: 15 }));
        assert_eq!(tokens.to_vec().unwrap(), [7; 2]);
        assert!(matches!(DeviceSampler::new(&kernels, 524_289), Err(Error::TooLarge { .. })));
    });
}
