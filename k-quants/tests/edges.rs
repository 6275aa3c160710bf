//! Rows at the edges: zeros, constants, the largest and the smallest numbers, and what is refused.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::decode;
use halfbyte_k_quants::*;
use halfbyte_testing::Rng;

/// Blocks that no quantizer writes, to find those that are left.
fn poison<B: Fit>(blocks: usize) -> Vec<B> {
    common::read(&vec![0xa5; blocks * size_of::<B>()])
}

fn bytes<B: Fit>(blocks: &[B]) -> Vec<u8> {
    blocks.iter().flat_map(|block| bytemuck::bytes_of(block).to_vec()).collect()
}

fn quantized<B: Fit>(x: &[f32]) -> Vec<B> {
    let mut blocks = poison(x.len() / B::WEIGHTS);
    quantize_row(x, &mut blocks).unwrap();
    blocks
}

/// The largest difference between a row and its blocks, as a share of the largest weight.
fn worst<B: Fit>(x: &[f32]) -> f32 {
    let most = x.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
    let w = decode(&quantized::<B>(x));
    assert!(w.iter().all(|w| w.is_finite()), "{}: an infinity for finite weights", B::NAME);
    x.iter().zip(&w).map(|(x, w)| (x / most - w / most).abs()).fold(0.0, f32::max)
}

fn zeros_are_zeros<B: Fit>() {
    let w = decode(&quantized::<B>(&vec![0.0; 2 * B::WEIGHTS]));
    assert!(w.iter().all(|w| w.to_bits() == 0), "{}: {w:?}", B::NAME);
    let mut blocks = poison::<B>(1);
    let zeros = vec![0.0; B::WEIGHTS];
    let report = quantize_row_weighted(&zeros, &zeros, &mut blocks).unwrap();
    assert_eq!(report.uniform_blocks, 1, "{}", B::NAME);
    assert!(decode(&blocks).iter().all(|w| w.to_bits() == 0), "{}", B::NAME);
}

/// A row of one number has a scale that is the number divided by a level: what is left is the rounding of the scales.
fn constants_are_nearly_exact<B: Fit>(share: f32) {
    for constant in [1.0, -1.0, 0.37, -0.55, 3e3] {
        let worst = worst::<B>(&vec![constant; B::WEIGHTS]);
        assert!(worst <= share, "{}: a row of {constant} is off by {worst}", B::NAME);
    }
}

/// Weights as large as the format says, of both signs, and weights beside the smallest that f16 scales can hold.
fn extremes_stay_finite<B: Fit>(share: f32) {
    let mut row = vec![0.0; B::WEIGHTS];
    for (sign, at) in [(1.0, 0), (-1.0, 5), (1.0, 31)] {
        row.fill(0.0);
        row[at] = sign * B::LIMIT;
        let worst = worst::<B>(&row);
        assert!(worst <= share, "{}: {sign} at {at} is off by {worst}", B::NAME);
    }
    row[0] = -B::LIMIT;
    assert!(worst::<B>(&row) <= 1.0, "{}", B::NAME);
    for tiny in [1e-45, 1e-12, 3e-8, 1e-6] {
        let row: Vec<f32> = (0..B::WEIGHTS).map(|i| if i % 3 == 0 { tiny } else { -tiny }).collect();
        // A block of zeros is off by 1.
        let worst = worst::<B>(&row);
        assert!(worst <= 1.001, "{}: {tiny} is off by {worst}", B::NAME);
    }
}

/// The same row gives the same bytes, alone or beside others, and whatever the scale of the importances.
fn bytes_depend_on_the_row_alone<B: Fit>() {
    const SEED: u64 = 4_711;
    println!("seed {SEED}");
    let mut rng = Rng(SEED);
    let x: Vec<f32> = (0..3 * B::WEIGHTS).map(|_| rng.normal()).collect();
    let importance: Vec<f32> = x.iter().map(|_| rng.f32().powi(2)).collect();
    let all = bytes(&quantized::<B>(&x));
    assert_eq!(all, bytes(&quantized::<B>(&x)), "{}", B::NAME);
    let second = bytes(&quantized::<B>(&x[B::WEIGHTS..2 * B::WEIGHTS]));
    assert_eq!(all[size_of::<B>()..2 * size_of::<B>()], second, "{}", B::NAME);
    let weighted = |factor: f32| {
        let importance: Vec<f32> = importance.iter().map(|v| v * factor).collect();
        let mut blocks = poison::<B>(3);
        assert_eq!(quantize_row_weighted(&x, &importance, &mut blocks).unwrap(), Weighted::default());
        bytes(&blocks)
    };
    assert_eq!(weighted(1.0), weighted(1024.0), "{}", B::NAME);
    // No importance anywhere in the second block: it is quantized as if there were none.
    let mut importance = importance.clone();
    importance[B::WEIGHTS..2 * B::WEIGHTS].fill(0.0);
    let mut blocks = poison::<B>(3);
    let report = quantize_row_weighted(&x, &importance, &mut blocks).unwrap();
    assert_eq!(report.uniform_blocks, 1);
    assert_eq!(bytes(&blocks)[size_of::<B>()..2 * size_of::<B>()], second, "{}", B::NAME);
}

/// A column of great importance is met almost exactly.
fn importance_counts<B: Fit>(share: f32) {
    let mut rng = Rng(99);
    let x: Vec<f32> = (0..B::WEIGHTS).map(|_| rng.normal()).collect();
    let mut importance = vec![1.0; B::WEIGHTS];
    importance[3] = 1e6;
    let mut blocks = poison::<B>(1);
    let report = quantize_row_weighted(&x, &importance, &mut blocks).unwrap();
    assert_eq!(report.uniform_blocks, 0);
    let off = (decode(&blocks)[3] - x[3]).abs() / x[3].abs();
    assert!(off <= share, "{}: {} became {}", B::NAME, x[3], decode(&blocks)[3]);
}

/// Numbers of all sizes beside each other: the blocks decode to finite weights, and a block is no worse than zeros.
fn rows_of_any_numbers_stay_finite<B: Fit>() {
    const SEED: u64 = 1_789;
    println!("seed {SEED}");
    let mut rng = Rng(SEED);
    for round in 0..200 {
        let mut number = || loop {
            let x = f32::from_bits(rng.word());
            // Some rounds have numbers of sizes near each other.
            let x = if round % 2 == 0 { x } else { x.abs().log2() * x.signum() };
            if x.abs() <= B::LIMIT {
                return x;
            }
        };
        let x: Vec<f32> = (0..B::WEIGHTS).map(|_| number()).collect();
        let w = decode(&quantized::<B>(&x));
        assert!(w.iter().all(|w| w.is_finite()), "{}: {x:?}", B::NAME);
        let most = f64::from(x.iter().fold(0.0, |most: f32, x| most.max(x.abs())));
        let prior = |x: f32| f64::from(x.abs()) / most;
        let root = (x.iter().map(|x| prior(*x).powi(2)).sum::<f64>() / x.len() as f64).sqrt();
        let square = |x: f32, off: f64| (root + prior(x)) * (off / most).powi(2);
        let error: f64 = x.iter().zip(&w).map(|(&x, &w)| square(x, f64::from(x) - f64::from(w))).sum();
        let zeros: f64 = x.iter().map(|&x| square(x, x.into())).sum();
        assert!(error <= zeros * 1.000_001, "{}, round {round}: {error} is more than {zeros}", B::NAME);
    }
}

fn wrong_rows_are_refused<B: Fit>() {
    let n = B::WEIGHTS;
    let refusal = |x: &[f32], importance: Option<&[f32]>, blocks: usize| {
        let mut out = poison::<B>(blocks);
        let error = match importance {
            None => quantize_row(x, &mut out).unwrap_err(),
            Some(importance) => quantize_row_weighted(x, importance, &mut out).unwrap_err(),
        };
        assert_eq!(bytes(&out), bytes(&poison::<B>(blocks)), "{}: written although refused", B::NAME);
        error
    };
    let whole = vec![1.0; 2 * n];
    assert_eq!(refusal(&whole[1..], None, 2), Error::NotWholeBlocks { block: n, got: 2 * n - 1 });
    assert_eq!(refusal(&whole, None, 1), Error::Length { what: "blocks", expected: 2, got: 1 });
    let short = refusal(&whole, Some(&whole[1..]), 2);
    assert_eq!(short, Error::Length { what: "importance", expected: 2 * n, got: 2 * n - 1 });
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut x = whole.clone();
        x[n + 1] = value;
        for importance in [None, Some(&whole[..])] {
            let text = refusal(&x, importance, 2).to_string();
            assert_eq!(text, format!("weight {} of the row is {value}, not a finite number", n + 1));
        }
        let text = refusal(&whole, Some(&x), 2).to_string();
        assert_eq!(text, format!("importance {} is {value}, not a finite number of at least 0", n + 1));
    }
    let mut x = whole.clone();
    x[2] = -B::LIMIT * 1.01;
    let over = Error::Overflow { index: 2, value: x[2], format: B::NAME, limit: B::LIMIT };
    assert_eq!(refusal(&x, None, 2), over);
    x[2] = -1.0;
    assert_eq!(refusal(&whole, Some(&x), 2), Error::Importance { index: 2, value: -1.0 });
    quantize_row::<B>(&[], &mut []).unwrap();
}

fn check<B: Fit>(constant: f32, extreme: f32) {
    zeros_are_zeros::<B>();
    constants_are_nearly_exact::<B>(constant);
    extremes_stay_finite::<B>(extreme);
    rows_of_any_numbers_stay_finite::<B>();
    bytes_depend_on_the_row_alone::<B>();
    importance_counts::<B>(constant.max(0.01));
    wrong_rows_are_refused::<B>();
}

#[test]
fn blocks_of_one_scale() {
    // The scale has 11 bits.
    check::<BlockQ5_0>(0.0005, 0.001);
    check::<BlockQ5_1>(0.0005, 0.04);
    // There is no level 0.
    check::<BlockIq4Nl>(0.0005, 0.008);
}

#[test]
fn scales_that_are_powers_of_two() {
    // Levels are a third apart at most.
    check::<BlockMxfp4>(0.2, 0.25);
}

#[test]
fn super_blocks_of_symmetric_sub_blocks() {
    check::<BlockQ3K>(0.0005, 0.001);
    check::<BlockQ6K>(0.0005, 0.001);
    check::<BlockIq4Xs>(0.0005, 0.008);
}

#[test]
fn super_blocks_of_lines() {
    check::<BlockQ2K>(0.0005, 0.001);
    check::<BlockQ4K>(0.0005, 0.001);
    check::<BlockQ5K>(0.0005, 0.001);
}
