//! What the compiler makes of mathematical functions and of exchanges between threads, against plain Rust.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(unreachable_pub, reason = "shared by test files")]
mod support;

use half::{bf16, f16};
use halfbyte_testing::Rng;
use support::{Device, Params};

const PTX: &str = include_str!("ptx/intrinsics.ptx");

/// A function, how many units of f32's last place it may be off, and its absolute slack.
type Expected = (&'static str, fn(f64) -> f64, f64, f64);

#[test]
fn functions_are_as_exact_as_their_documentation_says() {
    // Units in the last place from the programming guide's table, which counts from the correctly rounded result;
    // the fast functions have absolute bounds where the guide gives those. A unit of bf16 is 65,536 of f32, one of f16 8,192.
    let list: [Expected; 32] = [
        ("expf", f64::exp, 2.0, 0.0),
        ("__expf", f64::exp, 12.0, 0.0),
        ("exp2f", f64::exp2, 2.0, 0.0),
        ("logf", f64::ln, 1.0, 0.0),
        ("__logf", f64::ln, 3.0, 5e-7),
        ("log2f", f64::log2, 1.0, 0.0),
        ("sinf", f64::sin, 2.0, 0.0),
        ("cosf", f64::cos, 2.0, 0.0),
        ("tanhf", f64::tanh, 2.0, 0.0),
        ("__cosf", f64::cos, 0.0, 1e-6),
        ("powf", |a| a.powf(2.3f32.into()), 4.0, 0.0),
        ("rsqrtf", |a| 1.0 / a.sqrt(), 2.0, 0.0),
        ("sqrtf", f64::sqrt, 0.0, 0.0),
        ("__fdividef", |a| 1.5 / a, 2.0, 0.0),
        ("division", |a| f64::from(a as f32 / (a as f32 + 1.5)), 0.0, 0.0),
        ("cbrtf", f64::cbrt, 1.0, 0.0),
        ("log1pf", f64::ln_1p, 1.0, 0.0),
        ("expm1f", f64::exp_m1, 1.0, 0.0),
        ("fmodf", |a| a % f64::from(1.7f32), 0.0, 0.0),
        ("roundf", f64::round, 0.0, 0.0),
        ("rintf", f64::round_ties_even, 0.0, 0.0),
        ("ldexpf", |a| a * 8.0, 0.0, 0.0),
        ("exp", f64::exp, 0.0, 0.0),
        ("log", f64::ln, 0.0, 0.0),
        ("sin", f64::sin, 0.0, 0.0),
        ("pow", |a| a.powf(0.7), 0.0, 0.0),
        ("f64 division and root", |a| a / 3.0 + a.sqrt(), 0.0, 0.0),
        ("bf16 exp", |a| bf16::from_f64(f64::from(bf16::from_f64(a)).exp()).into(), 65536.0, 0.0),
        ("f16 rsqrt", |a| f16::from_f64(1.0 / f64::from(f16::from_f64(a)).sqrt()).into(), 8192.0, 0.0),
        ("sincosf", |a| f64::from(a as f32 * 100_000.0).sin(), 2.0, 0.0),
        ("sincosf", |a| f64::from(a as f32 * 100_000.0).cos(), 2.0, 0.0),
        (
            "clamps",
            |a| if a > 4.0 { f64::from(a as f32 - 4.0).clamp(0.0, 1.0) } else { a.max(0.5) },
            0.0,
            0.0,
        ),
    ];
    const N: usize = 512;
    let seed = 7;
    println!("seed {seed}");
    let mut rng = Rng(seed);
    // From 2^-12 to 16.
    let x: Vec<f32> = (0..N)
        .map(|_| {
            let mantissa = 1.0 + (rng.word() >> 9) as f32 / (1 << 23) as f32;
            mantissa * 2f32.powi(rng.word() as i32 % 8 - 4)
        })
        .collect();
    let device = Device::new(PTX);
    let (input, out) = (device.upload_floats(&x), device.alloc(4 * N * list.len()));
    let params = Params::new().pointer(out).pointer(input).word(N as u32);
    device.launch("functions", [(N / 64) as u32, 1, 1], [64, 1, 1], 0, &params).unwrap();
    let results = device.floats(out, N * list.len());
    for ((name, f, units, slack), results) in list.iter().zip(results.chunks_exact(N)) {
        for (&x, &result) in x.iter().zip(results) {
            let expected = f64::from(f(x.into()) as f32);
            let unit = f64::from((expected.abs() as f32).next_up()) - f64::from(expected.abs() as f32);
            let error = (f64::from(result) - expected).abs();
            assert!(
                error <= units * unit + slack,
                "{name} of {x}: {result}, expected {expected}: {} units off",
                error / unit
            );
        }
    }
}

#[test]
fn exchanges_within_warps_and_blocks() {
    let x: Vec<u32> = (0..64).map(|i| (i * 37 + 11) % 1001).collect();
    let warp = |i: usize| i / 32 * 32..i / 32 * 32 + 32;
    let mask = |i: usize, f: &dyn Fn(usize) -> bool| {
        warp(i).filter(|&k| f(k)).fold(0u32, |mask, k| mask | 1 << (k % 32))
    };
    let sum = |i: usize| warp(i).map(|k| x[k]).sum::<u32>();
    let max = |i: usize| warp(i).map(|k| x[k]).max().unwrap();
    let evens = |i: usize| warp(i).filter(|&k| x[k].is_multiple_of(2)).count() as u32;
    let (total, most, least): (u32, _, _) =
        (x.iter().sum(), *x.iter().max().unwrap(), *x.iter().min().unwrap());
    let list: [(&str, &dyn Fn(usize) -> u32); 13] = [
        ("shfl_xor", &|i| x[i ^ 16]),
        ("shfl_down", &|i| if i % 16 + 4 < 16 { x[i + 4] } else { x[i] }),
        ("shfl_xor of f64", &|i| x[i ^ 1] / 2),
        ("ballot", &|i| mask(i, &|k| x[k].is_multiple_of(3))),
        ("match_any", &|i| mask(i, &|k| x[k] % 4 == x[i] % 4)),
        ("reduce_max", &max),
        ("reduce_add", &sum),
        ("syncthreads_count", &|_| x.iter().filter(|&&a| a % 2 == 1).count() as u32),
        ("syncthreads_and, or", &|_| {
            u32::from(x.iter().all(|&a| a < 1000)) + 2 * u32::from(x.contains(&1000))
        }),
        ("half a warp", &|i| if x[i].is_multiple_of(2) { 101 * evens(i) } else { 0 }),
        ("group's sum", &sum),
        ("group's greatest", &|i| (max(i) as f32).to_bits()),
        ("atomics on shared memory", &|i| [total, most, least][i % 3] + 32),
    ];
    for seed in 0..4 {
        let mut device = Device::new(PTX);
        device.options.seed = seed;
        let (input, out) = (device.upload_words(&x), device.alloc(4 * 64 * list.len()));
        device
            .launch("exchanges", [1; 3], [64, 1, 1], 0, &Params::new().pointer(out).pointer(input))
            .unwrap();
        let results = device.words(out, 64 * list.len());
        for ((name, f), results) in list.iter().zip(results.chunks_exact(64)) {
            for (i, &result) in results.iter().enumerate() {
                assert_eq!(result, f(i), "{name}, thread {i}, seed {seed}");
            }
        }
    }
}
