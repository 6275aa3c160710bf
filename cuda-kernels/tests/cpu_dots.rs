//! The integer dots of the int8 prompt kernels and of the CPU's scalar path are the same numbers.
//!
//! Every scale is 1, so an output is a sum of integers that f32 holds exactly, on both sides. Outputs are bf16, with
//! eight bits: of two groups the first is random, and the second brings the sum so close to zero that bf16 shows all
//! of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use bytemuck::Zeroable;
use common::Device;
use common::prefill::{Format, Inputs, TILES, Weights, run};
use half::bf16;
use halfbyte_cpu_kernels::{Context, Isa, Matrix, Weights as CpuWeights, gemm_int8};
use halfbyte_q4::BlockQ4_0;
use halfbyte_q8::{Activations, BlockQ8_0};
use halfbyte_testing::Rng;
use halfbyte_threadpool::ThreadPool;

const K: usize = 64;
const N: usize = 133;

/// Codes for the second group, so that its dot with `x` and `rest` add up to little.
fn cancelling(format: Format, x: &[i32], mut rest: i32, random: &mut Rng) -> Vec<i8> {
    let (least, most, zero) = if format == Format::Q4_0 { (-8, 7, 8) } else { (-128, 127, 0) };
    x.iter()
        .map(|&x| {
            // Not at once: all elements take part.
            let wanted = -rest / x + random.below(3) as i32 - 1;
            let code = wanted.clamp(least, most);
            rest += code * x;
            (code + zero) as i8
        })
        .collect()
}

#[test]
fn integer_dots_are_those_of_the_scalar_cpu_path() {
    println!("seed 12");
    let (device, mut random) = (Device::new(12), Rng(12));
    let pool = ThreadPool::new(1).unwrap();
    let context = Context { pool: &pool, isa: Isa::by_name("scalar").unwrap() };
    for format in [Format::Q4_0, Format::Q8_0] {
        // 127 is the largest of each group, so that scales are 1 and codes the inputs themselves.
        let mut x: Vec<i32> = (0..32).map(|_| random.below(255) as i32 - 127).collect();
        x[random.below(32)] = 127;
        x.extend((0..32).map(|i| if i < 24 { 127 - random.below(i / 2 + 1) as i32 } else { 32 - i as i32 }));
        x[32] = 127;
        let mut w = Weights::random(format, N, K, &mut random);
        w.scales.fill(1.0);
        w.biases.fill(if format == Format::Q4_0 { -8.0 } else { 0.0 });
        let zero = if format == Format::Q4_0 { 8 } else { 0 };
        let mut largest = 0;
        for codes in w.codes.chunks_exact_mut(K) {
            let (first, second) = codes.split_at_mut(32);
            let dot: i32 = first.iter().zip(&x).map(|(&code, x)| (i32::from(code) - zero) * x).sum();
            largest = largest.max(dot.abs());
            second.copy_from_slice(&cancelling(format, &x[32..], dot, &mut random));
        }
        assert!(largest > 256, "the dots are longer than bf16");
        // A row, its opposite, and the row again.
        let rows: Vec<i32> = [1, -1, 1].iter().flat_map(|sign| x.iter().map(move |x| sign * x)).collect();

        let floats: Vec<f32> = rows.iter().map(|&x| x as f32).collect();
        let mut activations = Activations::new();
        activations.quantize(&floats, 3, K).unwrap();
        let mut y = vec![0.0; 3 * N];
        let (mut q4_0, mut q8_0) = (Vec::<BlockQ4_0>::new(), Vec::<BlockQ8_0>::new());
        let weights = if format == Format::Q4_0 {
            q4_0.resize(N * K / 32, BlockQ4_0::zeroed());
            bytemuck::cast_slice_mut(&mut q4_0).copy_from_slice(&w.blocks());
            CpuWeights::Q4_0(&q4_0)
        } else {
            q8_0.resize(N * K / 32, BlockQ8_0::zeroed());
            bytemuck::cast_slice_mut(&mut q8_0).copy_from_slice(&w.blocks());
            CpuWeights::Q8_0(&q8_0)
        };
        gemm_int8(context, &Matrix::new(weights, N, K).unwrap(), &activations, &mut y).unwrap();
        assert!(y.iter().all(|y| y.fract() == 0.0 && y.abs() <= 256.0), "bf16 shows all of it");
        assert!(y.iter().filter(|&&y| y != 0.0).count() > N, "and there is something to show");

        let uploaded = w.upload(&device);
        let inputs: Vec<bf16> = floats.iter().map(|&x| bf16::from_f32(x)).collect();
        let inputs = Inputs::new(&device, &inputs, 3, K, format.group(), 3);
        for tile in TILES {
            let got: Vec<f32> =
                run(&device, &inputs, &w, &uploaded, true, tile).iter().map(|y| y.to_f32()).collect();
            assert_eq!(got, y, "{}", format.entry(true, tile));
        }
        println!("{format:?}: {} dots of up to {largest}", 3 * N);
    }
}
