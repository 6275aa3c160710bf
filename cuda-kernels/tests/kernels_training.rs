//! Elementwise kernels and matrix products against f64.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Activations as _, Arg, Device};
use half::bf16;
use halfbyte_testing::Rng;

/// Half a bf16 unit where `y` is, and a little for what f32 rounds before.
fn half_unit(y: f64) -> f64 {
    2f64.powi(y.abs().max(1e-30).log2().floor() as i32 - 8) * 1.001 + y.abs() * 2f64.powi(-21)
}

#[test]
fn sums_are_rounded_once_whatever_the_length() {
    let (device, mut random) = (Device::new(20), Rng(20));
    for n in [1, 7, 8, 2048, 4100] {
        let (a, b) = (random.activations(n), random.activations(n));
        let (da, db) = (device.upload(&a), device.upload(&b));
        // In place: the sum replaces `a`.
        device.run("add_bf16", [n.div_ceil(2048), 1], &[da, db, da, Arg::U64(n)]);
        let want: Vec<bf16> =
            a.iter().zip(&b).map(|(a, b)| bf16::from_f32(a.to_f32() + b.to_f32())).collect();
        assert_eq!(device.download::<bf16>(da, n), want);
    }
}

#[test]
fn swiglu_and_its_gradient_are_within_a_rounding_of_f64() {
    let (device, mut random) = (Device::new(21), Rng(21));
    let (m, f) = (3, 1032);
    let gate_up: Vec<bf16> = random.activations(m * 2 * f);
    let dh = random.activations(m * f);
    let (input, h) = (device.upload(&gate_up), device.reserve::<bf16>(m * f));
    let none = Arg::Pointer(0);
    device.run("swiglu", [m, f.div_ceil(1024)], &[input, h, none, Arg::U32(m), Arg::U32(f), Arg::U32(0)]);
    let h = device.download_written::<bf16>(h, m * f);
    let grid = [m, f.div_ceil(512)];
    device.run("swiglu_backward", grid, &[input, device.upload(&dh), input, Arg::U32(m), Arg::U32(f)]);
    let gradient = device.download::<bf16>(input, m * 2 * f);
    for i in 0..m * f {
        let (gate_at, up_at) = (i / f * 2 * f + i % f, i / f * 2 * f + f + i % f);
        let (gate, up, d) = (gate_up[gate_at].to_f64(), gate_up[up_at].to_f64(), dh[i].to_f64());
        let sigma = 1.0 / (1.0 + (-gate).exp());
        let slope = sigma * (1.0 + gate * (1.0 - sigma));
        for (what, got, want) in [
            ("h", h[i], gate * sigma * up),
            ("d_gate", gradient[gate_at], d * up * slope),
            ("d_up", gradient[up_at], d * gate * sigma),
        ] {
            // Where the gate's slope crosses zero its terms cancel: their size counts, not the result's.
            let cancelled =
                if what == "d_gate" { (d * up * sigma * gate).abs() * 2f64.powi(-20) } else { 0.0 };
            let error = (got.to_f64() - want).abs();
            assert!(error <= half_unit(want) + cancelled, "{what} {i}: {got}, {want}");
        }
    }
}

#[test]
fn products_with_every_transposition_and_output() {
    let (device, mut random) = (Device::new(22), Rng(22));
    // Ragged against 128 x 128 x 32, and one tile with less than a stage.
    for (m, n, k) in [(136, 264, 104), (8, 16, 8)] {
        let (a, b) = (random.activations(m * k), random.activations(k * n));
        let transposed = |x: &[bf16], rows: usize, columns: usize| -> Vec<bf16> {
            (0..rows * columns).map(|i| x[i % rows * columns + i / rows]).collect()
        };
        let exact: Vec<(f64, f64)> = (0..m * n)
            .map(|i| {
                let products = (0..k).map(|d| a[i / n * k + d].to_f64() * b[d * n + i % n].to_f64());
                (products.clone().sum(), products.map(f64::abs).sum::<f64>() * k as f64 * 2f64.powi(-23))
            })
            .collect();
        for (entry, stored_a, stored_b) in [
            ("matmul_bf16_nn", a.clone(), b.clone()),
            ("matmul_bf16_nt", a.clone(), transposed(&b, k, n)),
            ("matmul_bf16_tn", transposed(&a, m, k), b.clone()),
        ] {
            let (da, db) = (device.upload(&stored_a), device.upload(&stored_b));
            let grid = [m.div_ceil(128) * n.div_ceil(128), 1];
            let run = |c: Arg, output: usize| {
                device.run(
                    entry,
                    grid,
                    &[da, db, c, Arg::U32(m), Arg::U32(n), Arg::U32(k), Arg::U32(output)],
                );
            };
            let (narrow, wide) = (device.reserve::<bf16>(m * n), device.reserve::<f32>(m * n));
            run(narrow, 0);
            run(wide, 1);
            let (narrow, once) =
                (device.download_written::<bf16>(narrow, m * n), device.download_written::<f32>(wide, m * n));
            run(wide, 2);
            let twice = device.download::<f32>(wide, m * n);
            for (i, (want, bound)) in exact.iter().enumerate() {
                assert!((f64::from(once[i]) - want).abs() <= *bound, "{entry} {i}: {} {want}", once[i]);
                assert_eq!(narrow[i], bf16::from_f32(once[i]), "{entry} {i}");
                assert_eq!(twice[i], once[i] + once[i], "{entry} {i}");
            }
        }
    }
}
