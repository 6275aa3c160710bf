//! Gradients of attention: the kernels against an f64 twin, the twin against finite differences.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod gpu;

use common::Activations as _;
use common::attention::{Case, Plane, bits, params};
use gpu::on_gpu;
use half::bf16;
use halfbyte_cuda_driver::{DeviceBuffer, Stream};
use halfbyte_cuda_emulator::EmulatorConfig;
use halfbyte_cuda_kernels::attention::{AttentionParams, KvFormat, Problem};
use halfbyte_cuda_kernels::training::attention::{BackwardBuffers, Forward, Gradients, backward};
use halfbyte_cuda_kernels::{Error, Kernels};
use halfbyte_testing::Rng;

/// Gradients of the queries, keys and values: dq `[row][head][d]`, dk and dv `[position][kv_head][d]`, each with the
/// largest error that the kernels may make.
struct Twin {
    dq: Vec<[f64; 2]>,
    dk: Vec<[f64; 2]>,
    dv: Vec<[f64; 2]>,
}

/// The gradients of `sum of dout out` in f64.
///
/// The bounds: weights are off by `relative` (the forward pass's), what meets the tensor cores by bf16's 2^-8, results by
/// 2^-8; `out`, rounded to bf16, is off by the forward pass's bound, and with it delta.
fn twin(case: &Case, dout: &[bf16]) -> Twin {
    let AttentionParams { n_heads, n_kv_heads, head_dim: dim, scale, .. } = case.params;
    let forward = case.twin();
    let (scale, half) = (f64::from(scale), 2f64.powi(-8));
    let mut twin = Twin {
        dq: vec![[0.0; 2]; case.q.len()],
        dk: vec![[0.0; 2]; case.kv_len * n_kv_heads * dim],
        dv: vec![[0.0; 2]; case.kv_len * n_kv_heads * dim],
    };
    for line in 0..case.rows * n_heads {
        let (row, head) = (line / n_heads, line % n_heads);
        let kv_head = head / case.params.group();
        let q = |d: usize| case.q[line * dim + d].to_f64();
        let g = |d: usize| dout[line * dim + d].to_f64();
        let at = |j: usize| (kv_head * case.kv_len + j) * dim;
        let (lse, bound) = (forward.lse[head * case.rows + row], &forward.bound[line * dim..][..dim]);
        let delta: f64 = (0..dim).map(|d| g(d) * forward.out[line * dim + d]).sum();
        let of_delta: f64 = (0..dim).map(|d| g(d).abs() * bound[d]).sum();
        for j in (0..case.kv_len).filter(|&j| case.sees(row, j)) {
            let k = |d: usize| case.keys.at(at(j) + d, dim);
            let v = |d: usize| case.values.at(at(j) + d, dim);
            let products: f64 = (0..dim).map(|d| (q(d) * k(d)).abs()).sum::<f64>() * scale.abs();
            let relative = 2f64.powi(-23) * ((dim as f64 + 8.0) * products + case.kv_len as f64 + 64.0);
            let weight = ((0..dim).map(|d| q(d) * k(d)).sum::<f64>() * scale - lse).exp();
            let dweight: f64 = (0..dim).map(|d| g(d) * v(d)).sum();
            let dscore = weight * (dweight - delta);
            let sizes: f64 = (0..dim).map(|d| (g(d) * v(d)).abs()).sum::<f64>() * 2f64.powi(-24) * dim as f64;
            let of_dscore = dscore.abs() * (half + relative) + weight * (of_delta + sizes) * (1.0 + half);
            for d in 0..dim {
                let to = (j * n_kv_heads + kv_head) * dim + d;
                for (sum, value, error) in [
                    (
                        &mut twin.dq[line * dim + d],
                        scale * dscore * k(d),
                        scale.abs() * of_dscore * k(d).abs(),
                    ),
                    (&mut twin.dk[to], scale * dscore * q(d), scale.abs() * of_dscore * q(d).abs()),
                    (&mut twin.dv[to], weight * g(d), weight * (half + relative) * g(d).abs()),
                ] {
                    sum[0] += value;
                    sum[1] += error;
                }
            }
        }
    }
    for sum in twin.dq.iter_mut().chain(&mut twin.dk).chain(&mut twin.dv) {
        sum[1] += (sum[0].abs() + sum[1]) * half + 1e-38;
    }
    twin
}

/// `sum of dout out` of the f64 forward twin.
fn loss(case: &Case, dout: &[bf16]) -> f64 {
    case.twin().out.iter().zip(dout).map(|(x, g)| x * g.to_f64()).sum()
}

#[test]
fn the_twin_is_the_slope_of_the_forward_twin() {
    let mut random = Rng(100);
    let of = AttentionParams { window: Some(4), ..params(4, 2, 64) };
    let mut case = Case::random(&mut random, KvFormat::Bf16, of, 2, 5);
    let dout = random.activations(case.q.len());
    let twin = twin(&case, &dout);
    let (kv_len, dim, mut worst) = (case.kv_len, 64, 0f64);
    for _ in 0..60 {
        let (which, kv_head, j, d) =
            (random.below(3), random.below(2), random.below(kv_len), random.below(dim));
        // Between two neighbours in bf16 whose middle is the number itself, so that the slope's error is of second order.
        let (i, to) = ((kv_head * kv_len + j) * dim + d, (j * 2 + kv_head) * dim + d);
        let i = if which == 0 { random.below(case.q.len()) } else { i };
        let before = case.clone();
        let slot = match (which, &mut case.keys, &mut case.values) {
            (0, ..) => &mut case.q[i],
            (1, Plane::Bf16(keys), _) => &mut keys[i],
            (_, _, Plane::Bf16(values)) => &mut values[i],
            _ => unreachable!("a bf16 case"),
        };
        let middle = (slot.to_f32() * 8.0).round() / 8.0;
        let step = 1.0 / 64.0;
        let (low, high) = (bf16::from_f32(middle - step), bf16::from_f32(middle + step));
        if f64::from(middle) * 2.0 != low.to_f64() + high.to_f64()
            || high.to_f64() - low.to_f64() != 1.0 / 32.0
        {
            continue;
        }
        *slot = bf16::from_f32(middle);
        let center = case.clone();
        let at = |x: bf16| {
            let mut moved = center.clone();
            match (which, &mut moved.keys, &mut moved.values) {
                (0, ..) => moved.q[i] = x,
                (1, Plane::Bf16(keys), _) => keys[i] = x,
                (_, _, Plane::Bf16(values)) => values[i] = x,
                _ => unreachable!("a bf16 case"),
            }
            loss(&moved, &dout)
        };
        let slope = (at(high) - at(low)) * 32.0;
        let here = self::twin(&center, &dout);
        let exact = match which {
            0 => here.dq[i][0],
            1 => here.dk[to][0],
            _ => here.dv[to][0],
        };
        // The third derivative of the softmax times step^2 / 6, generously.
        let error = (slope - exact).abs();
        assert!(error <= 1e-4 * (1.0 + exact.abs()), "{which}: slope {slope}, gradient {exact}");
        worst = worst.max(error);
        case = before;
    }
    println!("slopes within {worst:.1e}");
    assert!(worst > 0.0 && twin.dq.len() == case.q.len());
}

#[test]
fn gradients_are_within_their_bounds_of_f64() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let mut random = Rng(101);
        let mut worst = [0f64; 3];
        for (dim, group, first, rows, window) in [
            (64, 3, 0, 71, None),
            (64, 1, 70, 67, Some(30)),
            (128, 2, 0, 50, None),
            (128, 3, 40, 21, Some(25)),
        ] {
            let of = AttentionParams { window, ..params(2 * group, 2, dim) };
            let case = Case::random(&mut random, KvFormat::Bf16, of, first, rows);
            let dout = random.activations(case.q.len());
            let twin = twin(&case, &dout);
            let got = case.gradients(&kernels, &dout);
            for ((got, want), worst) in got.iter().zip([&twin.dq, &twin.dk, &twin.dv]).zip(&mut worst) {
                for (i, (got, [want, bound])) in got.iter().zip(want).enumerate() {
                    let share = (got.to_f64() - want).abs() / bound;
                    assert!(share <= 1.0, "{of:?} {i}: {got}, {want}, {share} of the bound");
                    *worst = worst.max(share);
                }
            }
        }
        println!("dq, dk, dv: {worst:.2?} of their bounds");
    });
}

#[test]
fn gradients_have_the_same_bits_in_every_order_of_warps() {
    let mut random = Rng(102);
    let case = Case::random(&mut random, KvFormat::Bf16, params(3, 1, 64), 9, 40);
    let dout = random.activations(case.q.len());
    let mut all = vec![];
    for seed in [1, 2] {
        let config = EmulatorConfig { seed, ..EmulatorConfig::default() };
        on_gpu(config, |context, _| {
            let kernels = Kernels::new(context).unwrap();
            all.push(case.gradients(&kernels, &dout).map(|x| bits(&x)));
        });
    }
    assert_eq!(all[0], all[1]);
}

#[test]
fn what_has_no_backward_pass_is_refused() {
    on_gpu(EmulatorConfig::default(), |context, emulator| {
        let kernels = Kernels::new(context).unwrap();
        let mut random = Rng(103);
        let plain = params(2, 1, 64);
        for (format, of, expected) in [
            (KvFormat::Bf16, params(2, 1, 256), None),
            (KvFormat::Bf16, AttentionParams { causal: false, ..plain }, Some("mask")),
            (KvFormat::Bf16, AttentionParams { soft_cap: Some(5.0), ..plain }, Some("soft-cap")),
            (KvFormat::Fp8, plain, Some("KV cache")),
        ] {
            let case = Case::random(&mut random, format, of, 0, 2);
            let cache = case.cache(context);
            let numbers = case.q.len();
            let x = DeviceBuffer::<bf16>::zeroed(context, numbers).unwrap();
            let lse = DeviceBuffer::<f32>::zeroed(context, 4).unwrap();
            let [mut dq, mut dk, mut dv] =
                [numbers, numbers / 2, numbers / 2].map(|n| DeviceBuffer::zeroed(context, n).unwrap());
            let mut buffers = BackwardBuffers::new(context, &of, 2).unwrap();
            let problem = Problem {
                params: of,
                sinks: None,
                cache: &cache,
                kv_len: 2,
                first: 0,
                rows: 2,
                q: x.as_slice(),
            };
            let forward = Forward { out: x.as_slice(), lse: lse.as_slice(), dout: x.as_slice() };
            let mut to = Gradients { dq: dq.as_mut_slice(), dk: dk.as_mut_slice(), dv: dv.as_mut_slice() };
            let stream = Stream::legacy_default(context);
            match backward(&kernels, &stream, &problem, &mut buffers, &forward, &mut to).unwrap_err() {
                Error::HeadDim { got, .. } => assert_eq!((got, expected), (256, None)),
                Error::Parameter { what, .. } => assert_eq!(Some(what), expected),
                other => panic!("{other}"),
            }
        }
        if let Some(emulator) = emulator {
            assert!(emulator.launches().is_empty());
        }
    });
}
