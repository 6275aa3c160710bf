//! Error-compensated rounding against the method as it is usually written, with the inverse of `H`.
#![cfg(feature = "gptq")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use halfbyte_q4::affine::{GroupSize, dequantize_row};
use halfbyte_q4::gptq::{Factor, Options, Order, Scales, affine_rows, q4_0_rows, q4_1_rows};
use halfbyte_q4::{
    BlockQ4_0, BlockQ4_1, Error, GROUP, dequantize_row_q4_0, dequantize_row_q4_1, q4_row_fit, q4_row_optimal,
};
use halfbyte_testing::Rng;

const DAMPING: f64 = 0.01;

/// Second moments of inputs whose columns share a few causes and differ in size.
fn moments(n: usize, rng: &mut Rng) -> Vec<f64> {
    let causes = 8;
    let mix: Vec<f64> = (0..n * causes).map(|_| f64::from(rng.normal())).collect();
    let size: Vec<f64> = (0..n).map(|_| (0.7 * f64::from(rng.normal())).exp()).collect();
    let mut h = vec![0.0; n * n];
    for _ in 0..2 * n {
        let cause: Vec<f64> = (0..causes).map(|_| f64::from(rng.normal())).collect();
        let x: Vec<f64> = (0..n)
            .map(|i| {
                size[i]
                    * (cause.iter().zip(&mix[i * causes..]).map(|(a, b)| a * b).sum::<f64>()
                        + f64::from(rng.normal()))
            })
            .collect();
        for i in 0..n {
            for j in 0..n {
                h[i * n + j] += x[i] * x[j];
            }
        }
    }
    h
}

fn weights(len: usize, rng: &mut Rng) -> Vec<f32> {
    (0..len).map(|_| 0.02 * rng.normal()).collect()
}

fn damped(h: &[f64], n: usize) -> Vec<f64> {
    let damp = DAMPING * (0..n).map(|i| h[i * n + i]).sum::<f64>() / n as f64;
    let mut h = h.to_vec();
    (0..n).for_each(|i| h[i * n + i] += damp);
    h
}

/// The inverse by Gauss-Jordan elimination; `h` is positive definite and needs no pivoting.
fn inverse(h: &[f64], n: usize) -> Vec<f64> {
    let mut a = h.to_vec();
    let mut inv = vec![0.0; n * n];
    (0..n).for_each(|i| inv[i * n + i] = 1.0);
    for p in 0..n {
        let pivot = a[p * n + p];
        for k in 0..n {
            a[p * n + k] /= pivot;
            inv[p * n + k] /= pivot;
        }
        for i in (0..n).filter(|&i| i != p) {
            let f = a[i * n + p];
            for k in 0..n {
                a[i * n + k] -= f * a[p * n + k];
                inv[i * n + k] -= f * inv[p * n + k];
            }
        }
    }
    inv
}

/// `e^T h e` for the error of one row.
fn output_error(h: &[f64], n: usize, w: &[f32], q: &[f32]) -> f64 {
    let e: Vec<f64> = w.iter().zip(q).map(|(&w, &q)| f64::from(w) - f64::from(q)).collect();
    (0..n * n).map(|k| e[k / n] * h[k] * e[k % n]).sum()
}

fn factor(h: &[f64], n: usize, group: usize, order: Order) -> Factor {
    Factor::new(h, n, group, Options { damping: DAMPING, order }).unwrap()
}

/// Column after column: round, then subtract the error times the inverse's row from the columns to come, then
/// take the column out of the inverse.
fn textbook_codes(h: &[f64], n: usize, w: &[f32], blocks: &[BlockQ4_0]) -> Vec<i32> {
    let mut inv = inverse(h, n);
    let mut w: Vec<f64> = w.iter().map(|&v| f64::from(v)).collect();
    let mut codes = Vec::new();
    for j in 0..n {
        let d = blocks[j / GROUP].scale.to_f64();
        let code = (w[j] / d).round_ties_even().clamp(-8.0, 7.0);
        codes.push(code as i32);
        let error = (w[j] - d * code) / inv[j * n + j];
        for k in j..n {
            w[k] -= error * inv[j * n + k];
        }
        let row: Vec<f64> = inv[j * n..][..n].to_vec();
        for i in 0..n {
            for k in 0..n {
                inv[i * n + k] -= row[i] * row[k] / row[j];
            }
        }
    }
    codes
}

#[test]
fn codes_are_those_of_the_textbook() {
    let n = 3 * GROUP;
    for seed in 1..6 {
        println!("seed {seed}");
        let mut rng = Rng(seed);
        let h = moments(n, &mut rng);
        let w = weights(n, &mut rng);
        for scales in [Scales::Nearest, Scales::Compensated] {
            let mut out = [BlockQ4_0::ZERO; 3];
            q4_0_rows(&factor(&h, n, GROUP, Order::Natural), &w, scales, &mut out).unwrap();
            let got: Vec<i32> = out.iter().flat_map(|b| b.codes().map(|q| i32::from(q) - 8)).collect();
            assert_eq!(got, textbook_codes(&damped(&h, n), n, &w, &out), "{scales:?}");
        }
    }
}

#[test]
fn the_report_is_the_output_error_and_each_refinement_lowers_it() {
    let (n, rows) = (4 * GROUP, 70);
    let mut rng = Rng(7);
    let h = moments(n, &mut rng);
    let w = weights(rows * n, &mut rng);
    let damped = damped(&h, n);
    let importance: Vec<f32> = (0..n).map(|i| h[i * n + i] as f32).collect();
    let error = |out: &[BlockQ4_0]| -> f64 {
        let mut back = vec![0.0; w.len()];
        dequantize_row_q4_0(out, &mut back).unwrap();
        w.chunks_exact(n).zip(back.chunks_exact(n)).map(|(w, q)| output_error(&damped, n, w, q)).sum()
    };
    let mut out = vec![BlockQ4_0::ZERO; rows * n / GROUP];
    q4_row_fit(&w, &mut out).unwrap();
    let mut last = error(&out);
    println!("fit: {last}");
    for (scales, order, share) in [
        (Scales::Nearest, Order::Natural, 0.7),
        (Scales::Nearest, Order::Activation, 0.97),
        (Scales::Weighted(&importance), Order::Activation, 1.0),
        (Scales::Compensated, Order::Activation, 0.97),
    ] {
        let report = q4_0_rows(&factor(&h, n, GROUP, order), &w, scales, &mut out).unwrap();
        let now = error(&out);
        println!("{scales:.0?} {order:?}: {now}");
        assert!(
            (report.squared_error - now).abs() < 1e-6 * now,
            "{} reported, {now} found",
            report.squared_error
        );
        assert!(now < share * last, "{now} after {last}");
        last = now;
    }
}

#[test]
fn without_correlations_it_is_the_fit() {
    let (n, rows) = (2 * GROUP, 20);
    let mut rng = Rng(8);
    let mut h = vec![0.0; n * n];
    (0..n).for_each(|i| h[i * n + i] = 3.0);
    let w = weights(rows * n, &mut rng);
    let sse = |out: &[BlockQ4_0]| -> f64 {
        let mut back = vec![0.0; w.len()];
        dequantize_row_q4_0(out, &mut back).unwrap();
        w.iter().zip(back).map(|(w, q)| f64::from(w - q).powi(2)).sum()
    };
    let mut best = vec![BlockQ4_0::ZERO; rows * n / GROUP];
    q4_row_optimal(&w, &mut best).unwrap();
    for scales in [Scales::Nearest, Scales::Weighted(&vec![2.0; n]), Scales::Compensated] {
        let mut out = best.clone();
        out.fill(BlockQ4_0::ZERO);
        q4_0_rows(&factor(&h, n, GROUP, Order::Natural), &w, scales, &mut out).unwrap();
        let ratio = sse(&out) / sse(&best);
        assert!((1.0..1.02).contains(&ratio), "{ratio}");
    }
}

#[test]
fn rows_do_not_see_each_other() {
    let (n, rows) = (2 * GROUP, 130);
    let mut rng = Rng(9);
    let h = moments(n, &mut rng);
    let w = weights(rows * n, &mut rng);
    let factor = factor(&h, n, GROUP, Order::Activation);
    let mut together = vec![BlockQ4_0::ZERO; rows * 2];
    q4_0_rows(&factor, &w, Scales::Compensated, &mut together).unwrap();
    let mut apart = vec![BlockQ4_0::ZERO; rows * 2];
    for (w, out) in w.chunks(3 * n).zip(apart.chunks_mut(6)) {
        q4_0_rows(&factor, w, Scales::Compensated, out).unwrap();
    }
    assert!(bytemuck::cast_slice::<_, u8>(&together) == bytemuck::cast_slice::<_, u8>(&apart));
}

#[test]
fn two_parameters_do_better_than_one() {
    let (n, rows) = (4 * GROUP, 40);
    let mut rng = Rng(10);
    let h = moments(n, &mut rng);
    let damped = damped(&h, n);
    // Off centre, so that an offset is of use.
    let w: Vec<f32> = weights(rows * n, &mut rng).iter().map(|w| w.abs()).collect();
    let total = |back: &[f32]| -> f64 {
        w.chunks_exact(n).zip(back.chunks_exact(n)).map(|(w, q)| output_error(&damped, n, w, q)).sum()
    };
    let mut back = vec![0.0; w.len()];
    let groups = rows * n / GROUP;

    let mut q4_0 = vec![BlockQ4_0::ZERO; groups];
    let plain = factor(&h, n, GROUP, Order::Activation);
    let one = q4_0_rows(&plain, &w, Scales::Compensated, &mut q4_0).unwrap().squared_error;

    let mut q4_1: Vec<BlockQ4_1> = vec![bytemuck::Zeroable::zeroed(); groups];
    let two = q4_1_rows(&plain, &w, Scales::Compensated, &mut q4_1).unwrap().squared_error;
    dequantize_row_q4_1(&q4_1, &mut back).unwrap();
    assert!((total(&back) - two).abs() < 1e-5 * two);
    assert!(two < 0.5 * one, "{two} with a minimum, {one} without");

    for size in [32, 64, 128] {
        let group = GroupSize::try_from(size).unwrap();
        let groups = w.len() / size;
        let (mut packed, mut scales, mut biases) =
            (vec![0; w.len() / 8], vec![0f32; groups], vec![0f32; groups]);
        let factor = factor(&h, n, size, Order::Activation);
        let reported =
            affine_rows(&factor, &w, Scales::Compensated, &mut packed, &mut scales, &mut biases).unwrap();
        dequantize_row(&packed, &scales, &biases, group, &mut back).unwrap();
        let found = total(&back);
        assert!((found - reported.squared_error).abs() < 1e-5 * found, "{size}");
        assert!(found < 0.7 * one, "{size}: {found}, {one} with Q4_0");
        let (mut scales, mut biases) = (vec![half::bf16::ZERO; groups], vec![half::bf16::ZERO; groups]);
        let bf16 = affine_rows(&factor, &w, Scales::Nearest, &mut packed, &mut scales, &mut biases).unwrap();
        assert!(bf16.squared_error > 0.0);
    }
}

#[test]
fn rows_without_anything_become_plain_zeros() {
    let n = 2 * GROUP;
    let h = moments(n, &mut Rng(11));
    let factor = factor(&h, n, GROUP, Order::Activation);
    let mut out = [BlockQ4_0 { scale: half::f16::ONE, codes: [7; 16] }; 2];
    let report = q4_0_rows(&factor, &[0.0; 64], Scales::Compensated, &mut out).unwrap();
    assert_eq!((report.squared_error, out), (0.0, [BlockQ4_0::ZERO; 2]));
    // The biggest weights that Q4_0 can hold.
    let w: Vec<f32> = (0..n).map(|i| if i % 2 == 0 { 8.0 * 65504.0 } else { -1.0 }).collect();
    q4_0_rows(&factor, &w, Scales::Nearest, &mut out).unwrap();
    assert!(out.iter().all(|b| b.scale.is_finite() && b.scale.to_f32().abs() > 50000.0));
}

#[test]
fn bad_rows_are_refused_and_nothing_is_written() {
    let n = GROUP;
    let h = moments(n, &mut Rng(12));
    let plain = factor(&h, n, GROUP, Order::Natural);
    let mark = BlockQ4_0 { scale: half::f16::ONE, codes: [0x5a; 16] };
    let refused = |w: &[f32], scales: Scales<'_>, blocks: usize| {
        let mut out = vec![mark; blocks];
        let error = q4_0_rows(&plain, w, scales, &mut out).unwrap_err();
        assert!(out.iter().all(|b| *b == mark));
        error
    };
    let w = [0.5; GROUP];
    assert!(matches!(refused(&w[1..], Scales::Nearest, 1), Error::NotWholeRows { columns: 32, got: 31 }));
    assert!(matches!(refused(&w, Scales::Nearest, 2), Error::Length { expected: 1, got: 2, .. }));
    let short = Scales::Weighted(&w[1..]);
    assert!(matches!(refused(&w, short, 1), Error::Length { expected: 32, got: 31, .. }));
    let negative = [-1.0; GROUP];
    assert!(matches!(refused(&w, Scales::Weighted(&negative), 1), Error::Importance { index: 0, .. }));
    let mut bad = w;
    bad[9] = f32::NAN;
    assert!(matches!(refused(&bad, Scales::Compensated, 1), Error::NonFinite { index: 9, .. }));
    bad[9] = 1e6;
    assert!(matches!(refused(&bad, Scales::Compensated, 1), Error::Overflow { .. }));
    let wide = factor(&moments(64, &mut Rng(13)), 64, 64, Order::Natural);
    let error = q4_0_rows(&wide, &[0.0; 64], Scales::Nearest, &mut [mark; 2]).unwrap_err();
    assert_eq!(error.to_string(), "columns in a group of the factor: expected length 32, got 64");
    let (mut s, mut b) = ([half::f16::ZERO; 1], [half::f16::ZERO; 1]);
    let error = affine_rows(&wide, &[1e6; 64], Scales::Nearest, &mut [0; 8], &mut s, &mut b).unwrap_err();
    assert!(matches!(error, Error::Overflow { index: 0, .. }), "{error}");
}
