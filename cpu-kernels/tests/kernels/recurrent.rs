//! The gated delta rule and what stands around it: against f64, at the ends of its gates, and cut anywhere.

use crate::support::{Rng, U, assert_same, assert_within, plain, property, relative, run, run_everywhere};
use halfbyte_cpu_kernels::{
    Context, DeltaShape, Error, HeadOrder, Isa, causal_convolution, causal_convolution_linear, delta_gates,
    gated_delta, normalize_keys, reference, rms_norm_gated, sigmoid_gate, split_gated,
};
use proptest::prelude::*;

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

/// The convolution's outputs, then those without silu, then the tails of both.
fn convolve(ctx: Context<'_>, x: &[f32], channels: usize, taps: &[f32], tail: &[f32], out: &mut [f32]) {
    let (y, rest) = out.split_at_mut(x.len());
    let (sums, tails) = rest.split_at_mut(x.len());
    let (new, linear) = tails.split_at_mut(tail.len());
    new.copy_from_slice(tail);
    linear.copy_from_slice(tail);
    causal_convolution(ctx, x, channels, taps, new, y).unwrap();
    causal_convolution_linear(ctx, x, channels, taps, linear, sums).unwrap();
}

#[test]
fn the_convolution_is_within_the_bound_of_its_twin_wherever_rows_are_cut() {
    let shape = (1usize..100, 1usize..6, 0usize..30, 0usize..30);
    property((any::<u64>(), shape), |(seed, (channels, n, rows, cut))| {
        let mut rng = Rng(seed);
        let (x, taps) = (rng.f32s(rows * channels, 3.0), rng.f32s(n * channels, 1.0));
        let tail = rng.f32s((n - 1) * channels, 3.0);
        let all = 2 * (x.len() + tail.len());
        let got = run_everywhere(all, |ctx, out| convolve(ctx, &x, channels, &taps, &tail, out));
        for c in 0..channels {
            let column = |rows: &[f32]| rows.iter().skip(c).step_by(channels).copied().collect::<Vec<_>>();
            let inputs = [column(&tail), column(&x)].concat();
            let twin = reference::causal_convolution(&inputs, &column(&taps));
            let sums = column(&got[x.len()..2 * x.len()]);
            for (((sum, magnitude), got), linear) in twin.into_iter().zip(column(&got[..x.len()])).zip(sums) {
                assert_within(linear, sum, relative(n as f64) * magnitude, "convolution without silu");
                // Silu's slope is below 1.1.
                let want = sum / (1.0 + (-sum).exp());
                let bound = relative(n as f64) * 1.1 * magnitude + relative(10.0) * want.abs();
                assert_within(got, want, bound, "convolution");
            }
            let (new, linear) = got[2 * x.len()..].split_at(tail.len());
            assert_same(&column(new), &inputs[rows..], "the last rows");
            assert_same(new, linear, "the last rows without silu");
        }
        let (before, after) = x.split_at(cut.min(rows) * channels);
        let in_part = |x: &[f32], tail: &[f32]| {
            run(plain(), 2 * (x.len() + tail.len()), |ctx, out| convolve(ctx, x, channels, &taps, tail, out))
        };
        let first = in_part(before, &tail);
        let second = in_part(after, &first[2 * before.len()..][..tail.len()]);
        let (y, sums) = (&first[..before.len()], &first[before.len()..2 * before.len()]);
        let parts = [y, &second[..after.len()], sums, &second[after.len()..]].concat();
        assert_same(&parts, &got, "in two parts");
    });
}

#[test]
fn the_convolution_by_hand() {
    // One channel, taps 1, 10, 100, 1000 from the oldest row on, large numbers so that silu passes them.
    let mut tail = [1.0, 2.0, 3.0];
    let mut y = [0.0; 2];
    let taps = [1.0, 10.0, 100.0, 1000.0];
    causal_convolution(plain(), &[4.0, 5.0], 1, &taps, &mut tail, &mut y).unwrap();
    assert_eq!((y, tail), ([4321.0, 5432.0], [3.0, 4.0, 5.0]));
    // Fewer rows than the tail has.
    causal_convolution(plain(), &[6.0], 1, &taps, &mut tail, &mut y[..1]).unwrap();
    assert_eq!((y[0], tail), (6543.0, [4.0, 5.0, 6.0]));
    // Without silu, small and negative sums stay as they are.
    let mut tail = [0.0; 3];
    causal_convolution_linear(plain(), &[-4.0, 0.5], 1, &taps, &mut tail, &mut y).unwrap();
    assert_eq!((y, tail), ([-4000.0, 100.0], [0.0, -4.0, 0.5]));
    let mut tail = [4.0, 5.0, 6.0];
    // No rows at all.
    causal_convolution(plain(), &[], 1, &taps, &mut tail, &mut []).unwrap();
    assert_eq!(tail, [4.0, 5.0, 6.0]);
}

#[test]
fn gates_are_within_the_bounds_of_their_twins() {
    property((any::<u64>(), 1usize..60, 0usize..5), |(seed, heads, rows)| {
        let mut rng = Rng(seed);
        let n = rows * heads;
        let (b, a) = (rng.f32s(n, 90.0), rng.f32s(n, 30.0));
        let rate: Vec<f32> = rng.f32s(heads, 8.0).iter().map(|x| -x.abs()).collect();
        let bias = rng.f32s(heads, 4.0);
        let got = run_everywhere(2 * n, |ctx, out| {
            let (beta, decay) = out.split_at_mut(n);
            beta.copy_from_slice(&b);
            decay.copy_from_slice(&a);
            delta_gates(ctx.isa, beta, decay, &rate, &bias).unwrap();
        });
        for i in 0..n {
            let want = reference::sigmoid(b[i]);
            assert_within(got[i], want, relative(8.0) * want + 1.3e-38, "beta");
            let exponent = reference::decay_exponent(a[i], rate[i % heads], bias[i % heads]);
            let want = exponent.exp();
            let bound = relative(16.0 * exponent.abs() + 8.0) * want + 1.3e-38;
            assert_within(got[n + i], want, bound, "decay");
        }
    });
}

#[test]
fn gates_at_the_ends() {
    let gates = |b: f32, a: f32, rate: f32| {
        let got = run_everywhere(2, |ctx, out| {
            out.copy_from_slice(&[b, a]);
            let (beta, decay) = out.split_at_mut(1);
            delta_gates(ctx.isa, beta, decay, &[rate], &[0.0]).unwrap();
        });
        (got[0], got[1])
    };
    assert_eq!(gates(0.0, -INF, -1.0), (0.5, 1.0));
    assert_eq!(gates(INF, INF, -1.0), (1.0, 0.0));
    assert_eq!(gates(-INF, 100.0, -1.0), (0.0, 0.0));
    assert_eq!(gates(200.0, -200.0, -1e30), (1.0, 1.0));
    let (beta, decay) = gates(NAN, NAN, -1.0);
    assert!(beta.is_nan() && decay.is_nan());
    // softplus(0) = ln 2, and exp(-ln 2) = 1/2.
    assert_within(gates(0.0, 0.0, -1.0).1, 0.5, 8.0 * U, "decay of 0");
    // Far below 0 softplus(x) is exp(x), to full precision: times 1e8, the exponent is -1e8 * 9.357622968840175e-14.
    assert_within(gates(0.0, -30.0, -1e8).1, (-9.357_622_968_840_175e-6_f64).exp(), 8.0 * U, "small");
}

#[test]
fn gated_norms_and_gated_heads_are_within_the_bounds_of_their_twins() {
    property((any::<u64>(), 1usize..300, 0usize..9), |(seed, n, rows)| {
        let mut rng = Rng(seed);
        let (x, gate) = (rng.f32s(rows * n, 4.0), rng.f32s(rows * n, 20.0));
        let (weight, eps) = (rng.f32s(n, 2.0), rng.f32().abs());
        let got = run_everywhere(x.len(), |ctx, y| {
            y.copy_from_slice(&x);
            rms_norm_gated(ctx, y, &weight, eps, &gate).unwrap();
        });
        for (r, got) in got.chunks(n).enumerate() {
            let at = r * n..(r + 1) * n;
            let want = reference::rms_norm_gated(&x[at.clone()], &weight, eps, &gate[at]);
            for (&got, want) in got.iter().zip(want) {
                let bound = relative(n as f64 / 32.0 + 19.0) * want.abs() + 1e-44;
                assert_within(got, want, bound, "gated norm");
            }
        }
        let got = run_everywhere(x.len(), |ctx, y| {
            y.copy_from_slice(&x);
            sigmoid_gate(ctx, y, &gate).unwrap();
        });
        for i in 0..x.len() {
            let want = f64::from(x[i]) * reference::sigmoid(gate[i]);
            assert_within(got[i], want, relative(9.0) * want.abs() + 1e-44, "sigmoid gate");
        }
        // Heads of `n` beside their gates.
        let pairs: Vec<f32> = x.chunks(n).zip(gate.chunks(n)).flat_map(|(x, g)| [x, g].concat()).collect();
        let got = run_everywhere(2 * x.len(), |ctx, out| {
            let (y, g) = out.split_at_mut(x.len());
            split_gated(ctx, &pairs, n, y, g).unwrap();
        });
        assert_same(&got, &[x, gate].concat(), "heads and gates");
    });
}

/// Heads, and rows of numbers for them, with normalised keys.
struct Case {
    shape: DeltaShape,
    rows: usize,
    qkv: Vec<f32>,
    beta: Vec<f32>,
    decay: Vec<f32>,
}

impl Case {
    fn new(rng: &mut Rng, shape: DeltaShape, rows: usize) -> Self {
        let mut qkv = rng.f32s(rows * shape.row(), 2.0);
        normalize_keys(plain(), &shape, &mut qkv, 1e-6).unwrap();
        let mut gates = |least: f32| {
            let mut gate = || least + (1.0 - least) * rng.f32().abs();
            (0..rows * shape.v_heads).map(|_| gate()).collect::<Vec<_>>()
        };
        Self { shape, rows, qkv, beta: gates(0.0), decay: gates(0.7) }
    }

    /// Outputs and then the state of `rows`, from `state` on.
    fn rows(&self, ctx: Context<'_>, rows: std::ops::Range<usize>, state: &[f32], out: &mut [f32]) {
        let (shape, heads) = (&self.shape, rows.start * self.shape.v_heads..rows.end * self.shape.v_heads);
        let (o, new) = out.split_at_mut(rows.len() * shape.value_width());
        new.copy_from_slice(state);
        let qkv = &self.qkv[rows.start * shape.row()..rows.end * shape.row()];
        gated_delta(ctx, shape, qkv, &self.beta[heads.clone()], &self.decay[heads], new, o).unwrap();
    }

    fn outputs(&self) -> usize {
        self.rows * self.shape.value_width()
    }

    fn all(&self) -> Vec<f32> {
        let state = vec![0.0; self.shape.state_len()];
        run_everywhere(self.outputs() + state.len(), |ctx, out| self.rows(ctx, 0..self.rows, &state, out))
    }
}

fn any_shape() -> impl Strategy<Value = DeltaShape> {
    (1usize..4, 1usize..4, 1usize..70, 1usize..70, any::<bool>()).prop_map(
        |(k_heads, each, k_dim, v_dim, tiled)| {
            let order = if tiled { HeadOrder::Tiled } else { HeadOrder::Grouped };
            DeltaShape { k_heads, v_heads: k_heads * each, k_dim, v_dim, order }
        },
    )
}

#[test]
fn the_delta_rule_is_within_the_bound_of_its_twin_wherever_rows_are_cut() {
    property((any::<u64>(), any_shape(), 1usize..20, 0usize..20), |(seed, shape, rows, cut)| {
        let case = Case::new(&mut Rng(seed), shape, rows);
        let got = case.all();
        let twin = reference::gated_delta(&shape, &case.qkv, &case.beta, &case.decay);
        for (i, ((want, magnitude), &got)) in twin.into_iter().zip(&got).enumerate() {
            let so_far = (i / shape.value_width() + 1) as f64;
            let bound = so_far * relative(shape.k_dim as f64 + 8.0) * magnitude;
            assert_within(got, want, bound, "delta rule");
        }
        let cut = cut.min(rows);
        let zeros = vec![0.0; shape.state_len()];
        let part = |rows: std::ops::Range<usize>, state: &[f32]| {
            let n = rows.len() * shape.value_width();
            let mut out = run(plain(), n + state.len(), |ctx, out| case.rows(ctx, rows, state, out));
            let state = out.split_off(n);
            (out, state)
        };
        let (first, state) = part(0..cut, &zeros);
        let (second, state) = part(cut..rows, &state);
        assert_same(&[first, second, state].concat(), &got, "in two parts");
    });
}

#[test]
fn a_thousand_rows_of_the_usual_heads_stay_close_to_float64() {
    let shape = DeltaShape { k_heads: 1, v_heads: 1, k_dim: 128, v_dim: 128, order: HeadOrder::Tiled };
    let mut rng = Rng(20_261_201);
    let mut case = Case::new(&mut rng, shape, 1024);
    case.decay.iter_mut().for_each(|decay| *decay = 1.0 - (1.0 - *decay) * 0.1);
    let state = vec![0.0; shape.state_len()];
    let got = run(Context { isa: Isa::fastest(), ..plain() }, case.outputs() + state.len(), |ctx, out| {
        case.rows(ctx, 0..1024, &state, out);
    });
    let twin = reference::gated_delta(&shape, &case.qkv, &case.beta, &case.decay);
    let largest = twin.iter().map(|(want, _)| want.abs()).fold(0.0, f64::max);
    let off =
        twin.iter().zip(&got).map(|((want, _), &got)| (f64::from(got) - want).abs()).fold(0.0, f64::max);
    println!("largest output {largest}, largest error {off:e}");
    assert!(off < 3e-7 * largest, "{off:e} of {largest}");
}

#[test]
fn the_delta_rule_with_gates_at_0_and_1() {
    let shape = DeltaShape { k_heads: 1, v_heads: 2, k_dim: 2, v_dim: 1, order: HeadOrder::Grouped };
    // Queries and keys of two rows: key (1, 0), then (0, 1); both queries are (1, 1). Values 3 and 5, then 7 and 9.
    let qkv = [1.0, 1.0, 1.0, 0.0, 3.0, 5.0, 1.0, 1.0, 0.0, 1.0, 7.0, 9.0];
    let outputs = |beta: [f32; 4], decay: [f32; 4]| {
        run_everywhere(4, |ctx, o| {
            gated_delta(ctx, &shape, &qkv, &beta, &decay, &mut vec![0.0; shape.state_len()], o).unwrap();
        })
    };
    // What is written stays as it is.
    assert_eq!(outputs([1.0; 4], [1.0; 4]), [3.0, 5.0, 10.0, 14.0]);
    // Nothing is written, or all is forgotten.
    assert_eq!(outputs([0.0; 4], [1.0; 4]), [0.0; 4]);
    assert_eq!(outputs([1.0; 4], [0.0; 4]), [3.0, 5.0, 7.0, 9.0]);
    // Each head by its own gates.
    assert_eq!(outputs([1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 1.0]), [3.0, 0.0, 7.0, 9.0]);
    // A key that is there already: the new value takes the old one's place.
    let same = [1.0, 0.0, 1.0, 0.0, 3.0, 5.0, 1.0, 0.0, 1.0, 0.0, 7.0, 9.0];
    let o = run_everywhere(4, |ctx, o| {
        gated_delta(ctx, &shape, &same, &[1.0; 4], &[1.0; 4], &mut vec![0.0; shape.state_len()], o).unwrap();
    });
    assert_eq!(o, [3.0, 5.0, 7.0, 9.0]);
}

#[test]
fn value_heads_read_the_key_heads_of_their_order() {
    // Two key heads, whose keys are 1 and 10, and four value heads of value 1.
    let qkv = [1.0, 10.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
    let outputs = |order| {
        let shape = DeltaShape { k_heads: 2, v_heads: 4, k_dim: 1, v_dim: 1, order };
        run_everywhere(4, |ctx, o| {
            gated_delta(ctx, &shape, &qkv, &[1.0; 4], &[1.0; 4], &mut vec![0.0; shape.state_len()], o)
                .unwrap();
        })
    };
    assert_eq!(outputs(HeadOrder::Grouped), [1.0, 1.0, 10.0, 10.0]);
    assert_eq!(outputs(HeadOrder::Tiled), [1.0, 10.0, 1.0, 10.0]);
}

#[test]
fn keys_are_normalised_and_values_are_not() {
    property((any::<u64>(), any_shape(), 0usize..5), |(seed, shape, rows)| {
        let mut rng = Rng(seed);
        let (x, eps) = (rng.f32s(rows * shape.row(), 3.0), rng.f32().abs());
        let got = run_everywhere(x.len(), |ctx, y| {
            y.copy_from_slice(&x);
            normalize_keys(ctx, &shape, y, eps).unwrap();
        });
        for (x, got) in x.chunks(shape.row()).zip(got.chunks(shape.row())) {
            let keys = 2 * shape.key_width();
            for (h, (x, got)) in x[..keys].chunks(shape.k_dim).zip(got.chunks(shape.k_dim)).enumerate() {
                let scale = if h < shape.k_heads { 1.0 / (shape.k_dim as f64).sqrt() } else { 1.0 };
                for (&got, want) in got.iter().zip(reference::normalize_key(x, eps, scale)) {
                    let bound = relative(shape.k_dim as f64 / 32.0 + 6.0) * want.abs();
                    assert_within(got, want, bound, "a key");
                }
            }
            assert_same(&got[keys..], &x[keys..], "values");
        }
    });
}

#[test]
fn wrong_arguments_write_nothing() {
    let ctx = plain();
    let shape = DeltaShape { k_heads: 2, v_heads: 4, k_dim: 3, v_dim: 5, order: HeadOrder::Tiled };
    let odd = DeltaShape { v_heads: 3, ..shape };
    let state_len = shape.state_len();
    let mut y = vec![7.0; 2 * shape.row()];
    let mut state = vec![7.0; state_len];
    let one = [0.5; 4];
    assert!(matches!(normalize_keys(ctx, &shape, &mut y[1..], 0.0), Err(Error::Group { .. })));
    assert!(matches!(normalize_keys(ctx, &odd, &mut y[..odd.row()], 0.0), Err(Error::Group { .. })));
    let qkv = vec![1.0; shape.row()];
    let mut delta = |shape: &DeltaShape, qkv: &[f32], beta: &[f32], decay: &[f32], n: usize, o: usize| {
        gated_delta(ctx, shape, qkv, beta, decay, &mut state[..n], &mut y[..o]).unwrap_err()
    };
    assert!(matches!(delta(&odd, &qkv, &one, &one, state_len, 20), Error::Group { .. }));
    assert!(matches!(delta(&shape, &qkv[1..], &one, &one, state_len, 20), Error::Group { .. }));
    assert!(matches!(delta(&shape, &qkv, &one[1..], &one, state_len, 20), Error::Length { .. }));
    assert!(matches!(delta(&shape, &qkv, &one, &one[1..], state_len, 20), Error::Length { .. }));
    assert!(matches!(delta(&shape, &qkv, &one, &one, state_len, 19), Error::Length { .. }));
    assert!(matches!(delta(&shape, &qkv, &one, &one, state_len - 1, 20), Error::Shape { .. }));
    let none = DeltaShape { k_heads: 0, ..shape };
    assert!(matches!(delta(&none, &qkv, &one, &one, state_len, 20), Error::Group { .. }));
    assert!(matches!(
        causal_convolution(ctx, &qkv[..4], 3, &one[..3], &mut [], &mut y[..4]),
        Err(Error::Group { .. })
    ));
    assert!(matches!(
        causal_convolution(ctx, &qkv[..4], 0, &[], &mut [], &mut y[..4]),
        Err(Error::Group { .. })
    ));
    assert!(matches!(
        causal_convolution(ctx, &qkv[..4], 2, &[], &mut [], &mut y[..4]),
        Err(Error::Group { .. })
    ));
    assert!(matches!(
        causal_convolution(ctx, &qkv[..4], 2, &one, &mut state[..3], &mut y[..4]),
        Err(Error::Length { what: "tail", .. })
    ));
    assert!(matches!(
        causal_convolution(ctx, &qkv[..4], 2, &one, &mut state[..2], &mut y[..3]),
        Err(Error::Length { what: "y", .. })
    ));
    assert!(matches!(
        causal_convolution_linear(ctx, &qkv[..4], 2, &one, &mut state[..2], &mut y[..3]),
        Err(Error::Length { what: "y", .. })
    ));
    let mut decay = [7.0; 4];
    assert!(delta_gates(ctx.isa, &mut y[..4], &mut decay[..3], &one, &one).is_err());
    assert!(delta_gates(ctx.isa, &mut y[..4], &mut decay, &one[..3], &one[..3]).is_err());
    assert!(delta_gates(ctx.isa, &mut y[..4], &mut decay, &one, &one[1..]).is_err());
    assert!(delta_gates(ctx.isa, &mut y[..4], &mut decay, &[], &[]).is_err());
    assert!(sigmoid_gate(ctx, &mut y[..4], &one[1..]).is_err());
    assert!(rms_norm_gated(ctx, &mut y[..4], &[], 0.0, &one).is_err());
    assert!(rms_norm_gated(ctx, &mut y[..4], &one[..3], 0.0, &one).is_err());
    assert!(rms_norm_gated(ctx, &mut y[..4], &one, 0.0, &one[1..]).is_err());
    assert!(split_gated(ctx, &one, 0, &mut y[..2], &mut decay[..2]).is_err());
    assert!(split_gated(ctx, &one, 3, &mut y[..2], &mut decay[..2]).is_err());
    assert!(split_gated(ctx, &one, 2, &mut y[..3], &mut decay[..2]).is_err());
    assert!(y.iter().chain(&state).chain(&decay).all(|&x| x == 7.0));
}
