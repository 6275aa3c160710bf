//! Kernels as nvcc compiles them, against plain loops.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(unreachable_pub, reason = "shared by test files")]
mod support;

use half::bf16;
use halfbyte_testing::Rng;
use support::{Device, Params};

const VECTOR_ADD: &str = include_str!("ptx/vector_add.ptx");
const BLOCK_SUM: &str = include_str!("ptx/block_sum.ptx");
const TILE_BF16: &str = include_str!("ptx/tile_bf16.ptx");
const W4A8_TILE: &str = include_str!("ptx/w4a8_tile.ptx");

#[test]
fn a_vector_addition_is_exact_and_counted() {
    let device = Device::new(VECTOR_ADD);
    let mut rng = Rng(1);
    let n = 1000;
    let x: Vec<f32> = (0..n).map(|_| f32::from_bits(rng.word() & 0x7f7f_ffff)).collect();
    let y: Vec<f32> = (0..n).map(|_| rng.coarse()).collect();
    let (px, py, pz) = (device.upload_floats(&x), device.upload_floats(&y), device.alloc(4 * n));
    let params = Params::new().pointer(px).pointer(py).pointer(pz).word(n as u32);
    let stats = device.launch("vector_add", [8, 1, 1], [128, 1, 1], 0, &params).unwrap();
    for (i, z) in device.floats(pz, n).into_iter().enumerate() {
        assert_eq!(z.to_bits(), (x[i] + y[i]).to_bits(), "element {i}");
    }
    assert_eq!(stats.global_loaded, 2 * 4 * n as u64);
    assert_eq!(stats.global_stored, 4 * n as u64);
    // 1000 floats are 125 sectors of 32 bytes, in three arrays.
    assert_eq!(stats.global_sectors, 3 * 125);
    // 32 warps, all of which reach the guard.
    assert_eq!(stats.histogram["setp.ge.s32"], 32);
    assert_eq!(stats.histogram["add.f32"], 32);
}

#[test]
fn a_reduction_gives_the_same_with_any_seed_and_number_of_threads() {
    let mut rng = Rng(2);
    let n = 5000;
    let x: Vec<u32> = (0..n).map(|_| rng.word()).collect();
    let expected = x.iter().fold(0u32, |sum, x| sum.wrapping_add(*x));
    let mut all_stats = Vec::new();
    for (seed, threads) in [(0, 1), (1, 1), (2, 2), (3, 8)] {
        let mut device = Device::new(BLOCK_SUM);
        device.options.seed = seed;
        device.options.threads = threads;
        let (px, total) = (device.upload_words(&x), device.upload_words(&[0]));
        let params = Params::new().pointer(px).pointer(total).word(n as u32);
        all_stats.push(device.launch("block_sum", [7, 1, 1], [128, 1, 1], 0, &params).unwrap());
        assert_eq!(device.words(total, 1), [expected], "seed {seed}, {threads} threads");
    }
    assert!(all_stats.iter().all(|stats| *stats == all_stats[0]));
    assert_eq!(all_stats[0].barriers, 7);
    assert_eq!(all_stats[0].histogram["shfl.sync.bfly.b32"], 7 * 4 * 5);
}

#[test]
fn a_bf16_tile_equals_the_plain_product() {
    for k in [16, 32, 80] {
        let device = Device::new(TILE_BF16);
        let mut rng = Rng(k as u64);
        let a: Vec<f32> = (0..16 * k).map(|_| rng.coarse()).collect();
        let b: Vec<f32> = (0..k * 16).map(|_| rng.coarse()).collect();
        let bits = |v: &[f32]| v.iter().map(|x| bf16::from_f32(*x).to_bits()).collect::<Vec<_>>();
        let (pa, pb) = (device.upload_halves(&bits(&a)), device.upload_halves(&bits(&b)));
        let pc = device.alloc(4 * 256);
        let params = Params::new().pointer(pa).pointer(pb).pointer(pc).word(k as u32);
        let stats = device.launch("tile_bf16", [1, 1, 1], [64, 1, 1], 0, &params).unwrap();
        let c = device.floats(pc, 256);
        for row in 0..16 {
            for column in 0..16 {
                // Multiples of 2^-14 below 128: every sum is exact.
                let expected: f32 = (0..k).map(|i| a[row * k + i] * b[i * 16 + column]).sum();
                assert_eq!(c[row * 16 + column], expected, "k {k}, row {row}, column {column}");
            }
        }
        assert_eq!(stats.mma, 2 * k as u64 / 16);
    }
}

#[test]
fn a_w4a8_tile_is_bit_exact() {
    for k in [64, 128, 448] {
        let device = Device::new(W4A8_TILE);
        let mut rng = Rng(k as u64);
        let a: Vec<i8> = (0..16 * k).map(|_| (rng.word() % 255) as i8).collect();
        let w: Vec<i8> = (0..8 * k).map(|_| (rng.word() % 16) as i8 - 8).collect();
        let scale: Vec<f32> = (0..16).map(|_| rng.coarse()).collect();
        let mut packed = vec![0u8; 8 * k / 2];
        for (block, bytes) in packed.chunks_exact_mut(16).enumerate() {
            for (i, byte) in bytes.iter_mut().enumerate() {
                *byte = w[block * 32 + i] as u8 & 15 | (w[block * 32 + 16 + i] as u8) << 4;
            }
        }
        let bytes: Vec<u8> = a.iter().map(|x| *x as u8).collect();
        let (pa, pw, ps) = (device.upload(&bytes), device.upload(&packed), device.upload_floats(&scale));
        let pc = device.alloc(4 * 128);
        let params = Params::new().pointer(pa).pointer(pw).pointer(ps).pointer(pc).word(k as u32);
        let shared = 3 * (16 * 64 + 8 * 32);
        device.launch("w4a8_tile", [1, 1, 1], [32, 1, 1], shared, &params).unwrap();
        let c = device.floats(pc, 128);
        for row in 0..16 {
            for column in 0..8 {
                let dot: i32 = (0..k).map(|i| i32::from(a[row * k + i]) * i32::from(w[column * k + i])).sum();
                let expected = dot as f32 * scale[row];
                assert_eq!(c[row * 8 + column].to_bits(), expected.to_bits(), "k {k}, {row}, {column}");
            }
        }
    }
}
