//! The small kernels, and attention's decode step, below their launchers: what they move, and that every one of their
//! barriers and waits is needed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::prefill::{Format, Weights};
use common::{Activations as _, Arg, Device};
use halfbyte_cuda_emulator::LaunchStats;
use halfbyte_testing::Rng;

/// Outputs as f32, and SwiGLU of their halves.
const F32: usize = 1;
const SWIGLU: usize = 3;

/// A product of `m` rows by `n` x `k` Q4_0 weights; what the launch counted.
fn matvec(m: usize, n: usize, k: usize, written: usize) -> LaunchStats {
    let (device, mut random) = (Device::new(80), Rng(80));
    let (entry, outputs) = if m <= 8 { ("q4_0_matvec_8", 16) } else { ("q4_0_matvec_32", 32) };
    let weights = Weights::random(Format::Q4_0, n, k, &mut random).upload(&device);
    let mut args = vec![device.upload(&random.activations(m * k))];
    args.extend(weights);
    args.extend([device.reserve::<f32>(m * n), Arg::U32(m), Arg::U32(n), Arg::U32(k), Arg::U32(written)]);
    device.run(entry, [n.div_ceil(outputs), 1], &args)
}

#[test]
fn a_window_reads_each_weight_once_and_its_shared_memory_without_conflicts() {
    let (n, k) = (64, 1280);
    let weights = n * k / 2 + n * k / 32 * 2;
    // A block has 16 outputs and reads all inputs; with more rows 32.
    for (m, outputs) in [(1, 16), (8, 16), (32, 32)] {
        let stats = matvec(m, n, k, F32);
        assert_eq!(stats.global_loaded, (weights + m * k * 2 * (n / outputs)) as u64, "{m} rows");
        assert_eq!(stats.global_stored, (m * n * 4) as u64);
        // 16 outputs, 8 rows and 16 inputs each: the least there is.
        assert_eq!(stats.mma, (n / 16 * m.div_ceil(8) * (k / 16)) as u64);
        // What conflicts there are belong to the sum of the warps' parts, which does not grow with k.
        assert_eq!(matvec(m, n, 2 * k, F32).bank_conflicts, stats.bank_conflicts);
        // SwiGLU reads and multiplies the same, and writes bf16 of half as many.
        let gated = matvec(m, n, k, SWIGLU);
        assert_eq!((gated.global_loaded, gated.mma), (stats.global_loaded, stats.mma));
        assert_eq!(gated.global_stored, (m * n / 2 * 2) as u64);
    }
}

/// A launch, and where its result is.
struct Launch {
    entry: &'static str,
    grid: [usize; 2],
    args: Vec<Arg>,
    output: Arg,
    bytes: usize,
}

/// One launch of each kernel that has barriers.
fn launches(device: &Device) -> Vec<Launch> {
    let mut random = Rng(81);
    let floats = |random: &mut Rng, n: usize| (0..n).map(|_| random.f32()).collect::<Vec<f32>>();
    let mut all = Vec::new();

    let (m, n, k) = (3, 24, 5504);
    let y = device.reserve::<f32>(m * n);
    let mut args = vec![device.upload(&random.activations(m * k))];
    args.extend(Weights::random(Format::Q4_0, n, k, &mut random).upload(device));
    args.extend([y, Arg::U32(m), Arg::U32(n), Arg::U32(k), Arg::U32(F32)]);
    all.push(Launch { entry: "q4_0_matvec_8", grid: [2, 1], args, output: y, bytes: m * n * 4 });

    let (n, y) = (32, device.reserve::<u16>(m * 16));
    let mut args = vec![device.upload(&random.activations(m * k))];
    args.extend(Weights::random(Format::Q4_0, n, k, &mut random).upload(device));
    args.extend([y, Arg::U32(m), Arg::U32(n), Arg::U32(k), Arg::U32(SWIGLU)]);
    all.push(Launch { entry: "q4_0_matvec_8", grid: [2, 1], args, output: y, bytes: m * n });
    all.extend(attention(device, &mut random));

    let (m, k) = (2, 2048);
    let (x, dy) = (device.upload(&random.activations(m * k)), device.upload(&random.activations(m * k)));
    let w = device.upload(&floats(&mut random, k));
    let (y, none) = (device.reserve::<u16>(m * k), Arg::Pointer(0));
    let args = vec![x, none, w, y, none, Arg::U32(m), Arg::U32(k), Arg::U32(0), Arg::U32(0)];
    all.push(Launch { entry: "rms_norm_wide", grid: [m, 1], args, output: y, bytes: m * k * 2 });

    let (dx, inverses) = (device.reserve::<u16>(m * k), device.reserve::<f32>(m));
    let args = vec![x, dy, w, dx, inverses, Arg::U32(k), Arg::U32(0), Arg::U32(0)];
    all.push(Launch { entry: "rms_norm_backward_rows", grid: [m, 1], args, output: dx, bytes: m * k * 2 });

    let inverses = device.upload(&[0.5f32, 2.0]);
    let dw = device.upload(&vec![0.0f32; k]);
    let args = vec![x, dy, inverses, dw, Arg::U32(m), Arg::U32(k)];
    let grid = [k.div_ceil(64), 1];
    all.push(Launch { entry: "rms_norm_backward_weights", grid, args, output: dw, bytes: k * 4 });

    let logits = device.upload(&floats(&mut random, m * k));
    let (targets, losses, d) =
        (device.upload(&[3u32, 5]), device.reserve::<f32>(m), device.reserve::<u16>(m * k));
    let scale = Arg::U32(1.0f32.to_bits() as usize);
    let args = vec![logits, targets, losses, d, Arg::U32(k), scale];
    all.push(Launch { entry: "cross_entropy", grid: [m, 1], args, output: d, bytes: m * k * 2 });

    let (m, n, k) = (600, 3, 8);
    // Token 2 comes late: its first row looks through two passes of earlier ones.
    let tokens: Vec<u32> = (0..m).map(|r| if r < 590 { r as u32 % 2 } else { 2 }).collect();
    let dw = device.upload(&vec![0.0f32; n * k]);
    let dy = device.upload(&random.activations(m * k));
    let args = vec![device.upload(&tokens), dy, dw, Arg::U32(m), Arg::U32(n), Arg::U32(k)];
    all.push(Launch { entry: "embedding_backward", grid: [m, 1], args, output: dw, bytes: n * k * 4 });
    all
}

/// A window's attention over five tiles of one chunk, and twenty chunks put together.
fn attention(device: &Device, random: &mut Rng) -> Vec<Launch> {
    let numbers = |numbers: &[usize]| numbers.iter().map(|&n| Arg::U32(n)).collect::<Vec<_>>();
    let (rows, positions, dim) = (64, 5 * 64, 64);
    let scale = 0.2f32.to_bits() as usize;
    let floats = |random: &mut Rng, n: usize| (0..n).map(|_| random.f32()).collect::<Vec<f32>>();
    let mut all = Vec::new();
    for (entry, fp8) in [("attention_decode_bf16_d64_64", false), ("attention_decode_fp8_d64_64", true)] {
        let mut args = vec![device.upload(&random.activations(rows * dim))];
        for _ in 0..2 {
            args.push(if fp8 {
                let codes: Vec<u8> = (0..positions * dim).map(|_| (random.bits() % 127) as u8).collect();
                device.upload(&codes)
            } else {
                device.upload(&random.activations(positions * dim))
            });
        }
        if fp8 {
            args.extend([0.01f32, 0.02].map(|scale| device.upload(&vec![scale; positions])));
        }
        let (sums, statistics) = (device.reserve::<f32>(rows * dim), device.reserve::<f32>(rows * 2));
        args.extend([sums, statistics]);
        // One head; causal, no window, no soft-cap; a chunk of all positions.
        args.extend(numbers(&[
            rows,
            1,
            1,
            positions,
            positions - rows,
            positions,
            1,
            0,
            scale,
            0,
            positions,
            0,
        ]));
        all.push(Launch { entry, grid: [1, 1], args, output: sums, bytes: rows * dim * 4 });
    }
    let (rows, chunk, chunks) = (2, 64, 20);
    let sums = device.upload(&floats(random, rows * chunks * dim));
    let statistics = device.upload(&floats(random, rows * chunks * 2));
    let out = device.reserve::<u16>(rows * dim);
    let mut args = vec![sums, statistics, Arg::Pointer(0), out];
    args.extend(numbers(&[1, chunk * chunks - rows, chunk * chunks, 1, 0, chunk, 0, chunks]));
    all.push(Launch {
        entry: "attention_merge_d64",
        grid: [rows, 1],
        args,
        output: out,
        bytes: rows * dim * 2,
    });
    all
}

/// What the `which`-th launch gives when `edit` has been at its text: a fault, or its result.
fn outcome(which: usize, seed: u64, edit: impl FnOnce(&str) -> String) -> Option<Vec<u8>> {
    let device = Device::new(seed);
    let launch = launches(&device).remove(which);
    let run = device.try_run_edited(launch.entry, launch.grid, &launch.args, edit);
    run.is_ok().then(|| device.download(launch.output, launch.bytes))
}

/// The text with the `which`-th of these replaced; None when there are not so many.
fn replaced(text: &str, from: &str, to: &str, which: usize) -> Option<String> {
    let (at, _) = text.match_indices(from).nth(which)?;
    Some(format!("{}{to}{}", &text[..at], &text[at + from.len()..]))
}

#[test]
fn every_barrier_and_every_wait_is_needed() {
    let count = launches(&Device::new(0)).len();
    let mut mutants = 0;
    for which in 0..count {
        let right = outcome(which, 0, str::to_owned);
        assert!(right.is_some());
        assert_eq!(outcome(which, 7, str::to_owned), right, "the order of warps is nobody's business");
        // A barrier less; a wait that lets one more batch of copies be on its way.
        for (from, to) in [
            ("bar.sync \t0;", ""),
            ("cp.async.wait_group 1;", "cp.async.wait_group 2;"),
            ("cp.async.wait_group 2;", "cp.async.wait_group 3;"),
        ] {
            for place in 0.. {
                let mut exists = true;
                let mut caught = false;
                for seed in 0..4 {
                    let edit = |text: &str| {
                        replaced(text, from, to, place).unwrap_or_else(|| {
                            exists = false;
                            text.to_owned()
                        })
                    };
                    caught |= outcome(which, seed, edit) != right;
                    if caught || !exists {
                        break;
                    }
                }
                if !exists {
                    break;
                }
                assert!(caught, "launch {which}: nobody misses {from:?} number {place}");
                mutants += 1;
            }
        }
    }
    println!("{mutants} mutants caught");
    assert!(mutants >= 32, "{mutants}: barriers are written otherwise than this test looks for");
}
