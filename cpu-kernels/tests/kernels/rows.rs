//! Norms, rope, gated activations, residual addition, softmax and the activation quantizer.

use crate::support::{
    Rng, U, assert_same, assert_within, everywhere, plain, property, relative, run, run_everywhere,
};
use halfbyte_cpu_kernels::{
    Activation, Context, Isa, RopeOrder, RopeTable, add_assign, gated, gated_quantize, multiply_assign,
    quantize_activations, reference, rms_norm, rms_norm_quantize, rope, scale, soft_cap, softmax,
};
use halfbyte_q8::{Activations, Precision};
use proptest::prelude::*;

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

#[test]
fn rms_norm_is_within_the_bound_of_its_twin() {
    property((any::<u64>(), 1usize..300, 0usize..7), |(seed, n, rows)| {
        let mut rng = Rng(seed);
        let (x, weight, eps) = (rng.f32s(rows * n, 4.0), rng.f32s(n, 4.0), rng.f32().abs());
        let y = run_everywhere(x.len(), |ctx, y| rms_norm(ctx, &x, &weight, eps, y).unwrap());
        let bound = relative(n as f64 / 32.0 + 8.0);
        for (x, y) in x.chunks(n).zip(y.chunks(n)) {
            for (&got, want) in y.iter().zip(reference::rms_norm(x, &weight, eps)) {
                assert_within(got, want, bound * want.abs(), "rms_norm");
            }
            let alone = run(plain(), n, |ctx, y| rms_norm(ctx, x, &weight, eps, y).unwrap());
            assert_same(y, &alone, "a row alone");
        }
    });
}

#[test]
fn rms_norm_of_what_is_not_finite_or_too_large() {
    let norm = |x: [f32; 3]| run_everywhere(3, |ctx, y| rms_norm(ctx, &x, &[1.0; 3], 1e-5, y).unwrap());
    assert!(norm([1.0, NAN, 2.0]).iter().all(|y| y.is_nan()));
    let y = norm([1.0, -INF, 2.0]);
    assert!(y[0] == 0.0 && y[1].is_nan() && y[2] == 0.0);
    assert_eq!(norm([2e19, 1.0, 0.0]), [0.0; 3]);
    assert_eq!(norm([0.0; 3]), [0.0; 3]);
    // mean of squares 4, so r = 1/2 (eps is below half a unit in the last place of 4 / 10^7).
    let y = run_everywhere(4, |ctx, y| {
        rms_norm(ctx, &[2.0, -2.0, 2.0, 2.0], &[1.0, 1.0, 3.0, 0.0], 0.0, y).unwrap()
    });
    assert_eq!(y, [1.0, -1.0, 3.0, 0.0]);
}

#[test]
fn rope_is_within_the_bound_of_its_twin_and_leaves_the_rest() {
    let shape = (1usize..5, 1usize..40, 0usize..30, 0usize..5, 0usize..5000, any::<bool>());
    property((any::<u64>(), shape), |(seed, (n_heads, pairs, rest, rows, first, adjacent))| {
        let order = if adjacent { RopeOrder::Adjacent } else { RopeOrder::Halves };
        let (head_dim, mut rng) = (2 * pairs + rest, Rng(seed));
        let frequencies = RopeTable::plain_frequencies(10_000.0, 2 * pairs);
        let mut table = RopeTable::new(frequencies.clone(), order);
        table.extend_to(first + rows);
        let x = rng.f32s(rows * n_heads * head_dim, 4.0);
        let y = run_everywhere(x.len(), |ctx, y| {
            y.copy_from_slice(&x);
            rope(ctx, y, n_heads, head_dim, &table, first).unwrap();
        });
        for (i, (x, y)) in x.chunks(head_dim).zip(y.chunks(head_dim)).enumerate() {
            let want = reference::rope(x, &frequencies, order, first + i / n_heads);
            // |a cos| + |b sin| is at most |a| + |b|, and no pair here has more than 8.
            for (&got, want) in y.iter().zip(want) {
                assert_within(got, want, relative(3.0) * 8.0, "rope");
            }
            assert_same(&y[2 * pairs..], &x[2 * pairs..], "elements that do not turn");
        }
    });
}

#[test]
fn rope_turns_known_pairs_by_known_angles() {
    let turn = |order, position| {
        let mut table = RopeTable::new(vec![1.0, 0.5], order);
        table.extend_to(position + 1);
        run_everywhere(5, |ctx, y| {
            y.copy_from_slice(&[1.0, 0.0, 0.0, 1.0, 9.0]);
            rope(ctx, y, 1, 5, &table, position).unwrap();
        })
    };
    assert_eq!(turn(RopeOrder::Adjacent, 0), [1.0, 0.0, 0.0, 1.0, 9.0]);
    let [cos1, sin1] = [0.540_302_305_868_139_7_f64, 0.841_470_984_807_896_5].map(|v| v as f32);
    let [cos_half, sin_half] = [0.877_582_561_890_372_7_f64, 0.479_425_538_604_203].map(|v| v as f32);
    // Pairs (0, 1) and (2, 3): (1, 0) by 1 radian, (0, 1) by half a radian.
    assert_eq!(turn(RopeOrder::Adjacent, 1), [cos1, sin1, -sin_half, cos_half, 9.0]);
    // Pairs (0, 2) and (1, 3).
    assert_eq!(turn(RopeOrder::Halves, 1), [cos1, -sin_half, sin1, cos_half, 9.0]);
}

#[test]
fn gated_activations_are_within_the_bound_of_their_twin() {
    property((any::<u64>(), 0usize..10_000), |(seed, n)| {
        let mut rng = Rng(seed);
        let up = rng.f32s(n, 9.0);
        // The exponential ends at 87.3, which GELU reaches at a gate of -10 and the clamped SiLU at -51.3.
        for (activation, most) in
            [(Activation::Silu, 87.3), (Activation::GeluTanh, 9.99), (Activation::ClampedSilu, 51.0)]
        {
            let gate: Vec<f32> = (0..n).map(|_| rng.f32() * most).collect();
            let y = run_everywhere(n, |ctx, y| gated(ctx, activation, &gate, &up, y).unwrap());
            for i in 0..n {
                let want = reference::gated(activation, gate[i], up[i]);
                let g = f64::from(gate[i]);
                let exponent = match activation {
                    Activation::GeluTanh => 1.596 * (g + 0.044_715 * g.powi(3)),
                    Activation::ClampedSilu => 0.5 * 1.702 * g,
                    _ => 0.0,
                };
                let bound = relative(11.0 - 4.0 * exponent.min(0.0));
                // 2^-149 is the spacing of what underflows.
                assert_within(y[i], want, bound * want.abs() + 2f64.powi(-149), "gated");
            }
        }
    });
}

#[test]
fn gated_activations_at_the_ends() {
    let of = |activation: Activation, gate: f32| {
        run_everywhere(1, |ctx, y| gated(ctx, activation, &[gate], &[1.0], y).unwrap())[0]
    };
    assert_within(of(Activation::Silu, 1.0), 0.731_058_578_630_004_9, 10.0 * U, "silu(1)");
    assert_within(of(Activation::GeluTanh, 1.0), 0.841_191_990_608_276_8, 10.0 * U, "gelu(1)");
    // 1 / (1 + exp(-1.702)) times 1 + 1, and 7 / (1 + exp(-11.914)) times 7 + 1.
    assert_within(of(Activation::ClampedSilu, 1.0), 1.691_591_531_865_642_5, 11.0 * U, "clamped(1)");
    let most = run_everywhere(1, |ctx, y| gated(ctx, Activation::ClampedSilu, &[9.0], &[1e9], y).unwrap())[0];
    assert_within(most, 55.999_624_8, 1e-5, "clamped(9) by 1e9");
    let least =
        run_everywhere(1, |ctx, y| gated(ctx, Activation::ClampedSilu, &[INF], &[-INF], y).unwrap())[0];
    assert_within(least, -41.999_718_6, 1e-5, "clamped(inf) by -inf");
    for (gate, up) in [(NAN, 1.0), (1.0, NAN)] {
        let y =
            run_everywhere(1, |ctx, y| gated(ctx, Activation::ClampedSilu, &[gate], &[up], y).unwrap())[0];
        assert!(y.is_nan());
    }
    assert_within(of(Activation::GeluTanh, -1.0), -0.158_808_009_391_723_24, 17.0 * U, "gelu(-1)");
    for activation in [Activation::Silu, Activation::GeluTanh] {
        let one = |gate: f32| of(activation, gate);
        assert_eq!(one(0.0), 0.0);
        assert_eq!(one(100.0), 100.0);
        assert_eq!(one(f32::MAX), f32::MAX);
        assert_eq!(one(INF), INF);
        // The exact values are below 1.1e-36: nothing grows again where the exponential ends.
        for gate in [-87.4, -100.0, -1e10, -1e30, f32::MIN] {
            assert_eq!(one(gate), 0.0, "{activation:?}({gate})");
        }
        assert!(one(-INF).is_nan());
        assert!(one(NAN).is_nan());
        let up_nan = run_everywhere(2, |ctx, y| gated(ctx, activation, &[1.0, 0.0], &[NAN, 1.0], y).unwrap());
        assert!(up_nan[0].is_nan() && up_nan[1] == 0.0);
    }
}

#[test]
fn soft_caps_are_within_the_bound_of_their_twin() {
    property((any::<u64>(), 0usize..10_000, 0.1f32..100.0), |(seed, n, cap)| {
        let x = Rng(seed).f32s(n, 200.0);
        let y = run_everywhere(n, |ctx, y| {
            y.copy_from_slice(&x);
            soft_cap(ctx, y, cap).unwrap();
        });
        for (&x, &y) in x.iter().zip(&y) {
            let want = reference::soft_cap(x, cap);
            assert_within(y, want, relative(7.0) * want.abs() + 2f64.powi(-149), "soft_cap");
        }
    });
    let ends = run_everywhere(5, |ctx, y| {
        y.copy_from_slice(&[0.0, INF, -INF, NAN, 1e30]);
        soft_cap(ctx, y, 30.0).unwrap();
    });
    assert_eq!(ends[..3], [0.0, 30.0, -30.0]);
    assert!(ends[3].is_nan() && ends[4] == 30.0);
}

#[test]
fn scaling_rounds_each_product_once() {
    let x = Rng(5).f32s(5000, 4.0);
    let y = run_everywhere(x.len(), |ctx, y| {
        y.copy_from_slice(&x);
        scale(ctx, y, 0.22);
    });
    assert!(x.iter().zip(&y).all(|(x, y)| x * 0.22 == *y));
}

#[test]
fn a_magnitude_stretches_what_turns() {
    let mut table = RopeTable::new(vec![1.0], RopeOrder::Halves).with_magnitude(1.25);
    table.extend_to(2);
    let y = run_everywhere(3, |ctx, y| {
        y.copy_from_slice(&[1.0, 0.0, 9.0]);
        rope(ctx, y, 1, 3, &table, 1).unwrap();
    });
    let [cos, sin] = [0.540_302_305_868_139_7_f64, 0.841_470_984_807_896_5].map(|v| (1.25 * v) as f32);
    assert_eq!(y, [cos, sin, 9.0]);
}

#[test]
fn add_assign_rounds_each_sum_once() {
    property((any::<u64>(), 0usize..10_000), |(seed, n)| {
        let mut rng = Rng(seed);
        let (x, y) = (rng.f32s(n, 4.0), rng.f32s(n, 4.0));
        let got = run_everywhere(n, |ctx, out| {
            out.copy_from_slice(&y);
            add_assign(ctx, out, &x).unwrap();
        });
        // An f64 holds the exact sum of these, so this rounds once.
        let want: Vec<f32> = x.iter().zip(&y).map(|(&x, &y)| (f64::from(x) + f64::from(y)) as f32).collect();
        assert_same(&got, &want, "add_assign");
    });
}

#[test]
fn multiply_assign_rounds_each_product_once() {
    property((any::<u64>(), 0usize..10_000), |(seed, n)| {
        let mut rng = Rng(seed);
        let (x, y) = (rng.f32s(n, 4.0), rng.f32s(n, 4.0));
        let got = run_everywhere(n, |ctx, out| {
            out.copy_from_slice(&y);
            multiply_assign(ctx, out, &x).unwrap();
        });
        // An f64 holds the exact product of two f32, so this rounds once.
        let want: Vec<f32> = x.iter().zip(&y).map(|(&x, &y)| (f64::from(x) * f64::from(y)) as f32).collect();
        assert_same(&got, &want, "multiply_assign");
    });
}

fn softmax_everywhere(x: &[f32]) -> Vec<f32> {
    run_everywhere(x.len(), |ctx, y| {
        y.copy_from_slice(x);
        softmax(ctx.isa, y);
    })
}

#[test]
fn softmax_is_within_the_bound_of_its_twin() {
    property((any::<u64>(), 1usize..3000, 0.0f32..150.0), |(seed, n, spread)| {
        let mut rng = Rng(seed);
        let x: Vec<f32> = (0..n).map(|_| rng.f32() * spread).collect();
        let top = x.iter().copied().fold(-INF, f32::max);
        let n = n as f64;
        for ((&x, got), want) in x.iter().zip(softmax_everywhere(&x)).zip(reference::softmax(&x)) {
            let roundings = n / 16.0 + n.ln() + f64::from(top - x) + 16.0;
            assert_within(got, want, (relative(roundings) * want).max(2f64.powi(-126)), "softmax");
        }
    });
}

#[test]
fn softmax_of_masked_and_broken_scores() {
    assert_eq!(softmax_everywhere(&[]), Vec::<f32>::new());
    assert_eq!(softmax_everywhere(&[-3e38]), [1.0]);
    // e^0 : e^(ln 3), by hand.
    let y = softmax_everywhere(&[0.0, 3f32.ln()]);
    assert!((y[0] - 0.25).abs() < 1e-7 && (y[1] - 0.75).abs() < 1e-7);
    for n in [1, 15, 16, 17, 40] {
        assert_eq!(softmax_everywhere(&vec![-INF; n]), vec![0.0; n], "everything masked");
        let mut x = vec![-INF; n];
        x[n - 1] = -1000.0;
        let mut want = vec![0.0; n];
        want[n - 1] = 1.0;
        assert_eq!(softmax_everywhere(&x), want, "all but one masked");
        for bad in [NAN, INF] {
            let mut x = vec![1.0; n];
            x[n / 2] = bad;
            assert!(softmax_everywhere(&x).iter().all(|y| y.is_nan()), "{bad} among {n}");
        }
    }
    // Long: a hundred thousand equal scores.
    let n = 100_000;
    for y in softmax_everywhere(&vec![3.0; n]) {
        assert_within(y, 1e-5, relative(n as f64 / 16.0 + (n as f64).ln() + 16.0) * 1e-5, "equal scores");
    }
}

/// Groups at every edge of the quantizer's rule.
fn group(kind: usize, rng: &mut Rng) -> Vec<f32> {
    let smallest = 127.0 * f32::MIN_POSITIVE;
    let mut x: Vec<f32> = match kind {
        0 => vec![0.0; 32],
        1 => vec![-0.0; 32],
        // Halves, which are rounded to even.
        2 => (0..32).map(|i| i as f32 - 15.5).collect(),
        3 => (0..32).map(|_| rng.f32() * smallest).collect(),
        4 => (0..32).map(|_| rng.f32() * f32::MAX).collect(),
        5 => (0..32).map(|_| f32::from_bits(rng.bits() as u32)).collect(),
        _ => rng.f32s(32, 4.0),
    };
    let at = rng.bits() as usize % 32;
    match kind {
        2 => x[at] = 127.0,
        3 => x[at] = rng.pick(&[smallest, smallest.next_down(), smallest.next_up(), f32::from_bits(1)]),
        4 => x[at] = rng.pick(&[f32::MAX, f32::MIN]),
        6 => x[at] = rng.pick(&[NAN, -NAN, INF, -INF]),
        _ => {}
    }
    x
}

const PRECISIONS: [Precision; 3] = [Precision::Int8, Precision::Auto, Precision::Int16];

#[test]
fn quantize_activations_gives_the_bits_of_the_reference_quantizer() {
    property((any::<u64>(), 0usize..8, 1usize..6), |(seed, rows, groups)| {
        let mut rng = Rng(seed);
        let cols = 32 * groups;
        let x: Vec<f32> = (0..rows * groups)
            .flat_map(|_| {
                let kind = rng.bits() as usize % 9;
                group(kind, &mut rng)
            })
            .collect();
        for precision in PRECISIONS {
            let mut want = Activations::with_precision(precision);
            want.quantize(&x, rows, cols).unwrap();
            assert_quantized(&want, |ctx, got| quantize_activations(ctx, &x, rows, cols, got).unwrap());
        }
    });
}

/// Everywhere, `kernel` gives the bits of `want`.
fn assert_quantized(want: &Activations, kernel: impl Fn(Context<'_>, &mut Activations)) {
    for ctx in everywhere() {
        let mut got = Activations::with_precision(want.precision());
        // Old contents of another shape must not show through.
        got.quantize(&vec![5.0; 12 * 32], 3, 128).unwrap();
        kernel(ctx, &mut got);
        assert_eq!((got.rows(), got.cols()), (want.rows(), want.cols()));
        for row in 0..want.rows() {
            assert_eq!(got.low(row), want.low(row), "{}", ctx.isa);
            assert_eq!(got.high(row), want.high(row), "{}", ctx.isa);
            assert_eq!(got.wide(row), want.wide(row), "{}", ctx.isa);
            assert_eq!(got.sums(row), want.sums(row), "{}", ctx.isa);
            assert_same(got.scales(row), want.scales(row), "scales");
        }
    }
}

#[test]
fn fused_quantizers_give_the_bits_of_their_parts() {
    // Up to 6,000 groups, and rows of up to 4,768 numbers: more than a thread's share of a SwiGLU.
    property((any::<u64>(), 0usize..40, 1usize..150), |(seed, rows, groups)| {
        let (mut rng, cols) = (Rng(seed), 32 * groups);
        let (mut x, weight, up) =
            (rng.f32s(rows * cols, 4.0), rng.f32s(cols, 4.0), rng.f32s(rows * cols, 4.0));
        if seed % 3 == 0 && rows > 0 {
            let at = rng.bits() as usize % x.len();
            x[at] = rng.pick(&[NAN, INF, -INF, f32::MAX]);
        }
        // Outliers, so that codes get high bytes.
        for at in (0..x.len()).step_by(101) {
            x[at] *= 30.0;
        }
        let precision = PRECISIONS[seed as usize % 3];
        let mut want = Activations::with_precision(precision);
        let norm = run(plain(), x.len(), |ctx, y| rms_norm(ctx, &x, &weight, 1e-5, y).unwrap());
        want.quantize(&norm, rows, cols).unwrap();
        assert_quantized(&want, |ctx, got| rms_norm_quantize(ctx, &x, &weight, 1e-5, got).unwrap());
        for activation in [Activation::Silu, Activation::GeluTanh, Activation::ClampedSilu] {
            let hidden = run(plain(), x.len(), |ctx, y| gated(ctx, activation, &x, &up, y).unwrap());
            want.quantize(&hidden, rows, cols).unwrap();
            // No rows have no width.
            let cols = if rows == 0 { 0 } else { cols };
            want.resize(rows, cols).unwrap();
            assert_quantized(&want, |ctx, got| gated_quantize(ctx, activation, &x, &up, rows, got).unwrap());
        }
    });
}

#[test]
fn quantized_activations_by_hand() {
    // amax 254, so the scale is 2: 3 / 2 = 1.5 is rounded to the even 2, 1 / 2 to 0, -254 to -127.
    let mut x = [0.0; 32];
    (x[0], x[7], x[31]) = (3.0, 1.0, -254.0);
    for isa in Isa::available() {
        let mut out = Activations::new();
        quantize_activations(Context { isa, ..plain() }, &x, 1, 32, &mut out).unwrap();
        let mut codes = [0; 32];
        (codes[0], codes[31]) = (2, -127);
        assert_eq!((out.low(0), out.scales(0), out.sums(0)), (&codes[..], &[2.0][..], &[-125][..]), "{isa}");
    }
}
