//! Prompt attention through the public launcher: against f64, on the field's hard cases, and its bits.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod gpu;

use common::attention::{Case, Plane, bits, params};
use gpu::on_gpu;
use half::bf16;
use halfbyte_cuda_driver::ComputeCapability;
use halfbyte_cuda_emulator::{Emulator, EmulatorConfig};
use halfbyte_cuda_kernels::Kernels;
use halfbyte_cuda_kernels::attention::{AttentionParams, KvFormat};
use halfbyte_testing::Rng;

use KvFormat::{Bf16, Fp8};

const WIDTHS: [(KvFormat, usize); 6] =
    [(Bf16, 64), (Fp8, 64), (Bf16, 128), (Fp8, 128), (Bf16, 256), (Fp8, 256)];

#[test]
fn outputs_are_within_the_bound_of_f64() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let mut random = Rng(70);
        for (format, dim) in WIDTHS {
            let mut worst = [0f64; 2];
            for round in 0..5 {
                let group = 1 + random.below(4);
                let n_kv_heads = 1 + random.below(2);
                let mut of = params(group * n_kv_heads, n_kv_heads, dim);
                let (first, rows) = (random.below(120), 1 + random.below(20));
                if round == 1 {
                    of.window = Some(1 + random.below(100) as u32);
                }
                if round == 2 {
                    of.soft_cap = Some(3.0);
                }
                if round == 4 {
                    of.window = Some(20);
                }
                of.causal = round < 3;
                let mut case = Case::random(&mut random, format, of, first, rows);
                if round > 1 {
                    case.sinks = Some((0..of.n_heads).map(|_| random.f32() * 4.0).collect());
                }
                let cache = case.cache(context);
                let (out, lse) = case.prefill(&kernels, &cache);
                let twin = case.twin();
                worst[0] = worst[0].max(twin.compare(&out, &format!("{format} {dim} {of:?}")));
                for (got, want) in lse.iter().zip(&twin.lse) {
                    let error = (f64::from(*got) - want).abs();
                    assert!(error < 1e-4, "log-sum-exp {got}, {want}");
                    worst[1] = worst[1].max(error);
                }
            }
            println!("{format} {dim}: {:.2} of the bound, log-sum-exp within {:.1e}", worst[0], worst[1]);
        }
    });
}

/// A GPU that wide blocks fill soon: one multiprocessor, with the shared memory of compute capability 9.0.
fn of_wide_blocks() -> EmulatorConfig {
    let registers = |format: KvFormat, dim: usize| (format!("attention_prefill_{format}_d{dim}_wide"), 255);
    EmulatorConfig {
        seed: 74,
        compute_capability: ComputeCapability { major: 9, minor: 0 },
        multiprocessors: 1,
        registers: WIDTHS.into_iter().map(|(format, dim)| registers(format, dim)).collect(),
        ..EmulatorConfig::default()
    }
}

#[test]
fn blocks_of_128_lines_give_the_bits_of_blocks_of_64() {
    for (format, dim) in WIDTHS.into_iter().filter(|(_, dim)| *dim < 256) {
        let mut random = Rng(74);
        for round in 0..3 {
            let mut of = params(6, 2, dim);
            match round {
                0 => {}
                1 => of.window = Some(50),
                _ => (of.causal, of.soft_cap) = (false, Some(3.0)),
            }
            // Two blocks of 128 lines and the rest of a third, which has warps without a line.
            let mut case = Case::random(&mut random, format, of, 37, 91);
            if round > 0 {
                case.sinks = Some((0..of.n_heads).map(|_| random.f32() * 4.0).collect());
            }
            let outputs = [EmulatorConfig::default(), of_wide_blocks()].map(|config| {
                let (wide, mut outputs) = (config.multiprocessors == 1, (vec![], vec![]));
                on_gpu(config, |context, emulator| {
                    outputs = case.prefill(&Kernels::new(context).unwrap(), &case.cache(context));
                    let launches = emulator.map(Emulator::take_launches).unwrap_or_default();
                    assert!(launches.iter().all(|launch| launch.kernel.ends_with("_wide") == wide));
                });
                outputs
            });
            let [(narrow, of_narrow), (wide, of_wide)] = &outputs;
            assert_eq!(bits(wide), bits(narrow), "{format} {dim} {of:?}");
            let lse_bits = |lse: &[f32]| lse.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(lse_bits(of_wide), lse_bits(of_narrow), "{format} {dim} {of:?}");
            case.twin().compare(wide, &format!("{format} {dim} {of:?}"));
        }
    }
}

#[test]
#[ignore = "thirty problems of any kind, two minutes"]
fn any_problem_on_both_kernels_is_within_the_bound() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let mut random = Rng(73);
        let mut worst = [0f64; 2];
        for round in 0..30 {
            let case = Case::any(&mut random);
            let (cache, twin) = (case.cache(context), case.twin());
            let what = format!("round {round}: {:?}, {} rows from {}", case.params, case.rows, case.first);
            worst[0] = worst[0].max(twin.compare(&case.prefill(&kernels, &cache).0, &what));
            worst[1] = worst[1].max(twin.compare(&case.decode(&kernels, &cache), &what));
        }
        println!("prefill and decode: {worst:.2?} of the bound");
    });
}

#[test]
fn a_prompt_cut_into_chunks_gives_the_same_bits() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let mut random = Rng(71);
        for (format, window) in [(Bf16, None), (Fp8, None), (Bf16, Some(37))] {
            let of = AttentionParams { window, ..params(6, 2, 64) };
            let case = Case::random(&mut random, format, of, 11, 70);
            let cache = case.cache(context);
            let (whole, lse) = case.prefill(&kernels, &cache);
            for chunk in [1, 9, 33] {
                let (mut cut, mut at) = (vec![], 0);
                while at < case.rows {
                    let part = case.part(at..case.rows.min(at + chunk));
                    let (out, of_part) = part.prefill(&kernels, &cache);
                    for (i, x) in of_part.iter().enumerate() {
                        let whole = lse[i / part.rows * case.rows + at + i % part.rows];
                        assert_eq!(x.to_bits(), whole.to_bits(), "log-sum-exp {i} of {at}");
                    }
                    cut.extend(out);
                    at += chunk;
                }
                assert_eq!(bits(&cut), bits(&whole), "{format}, window {window:?}, chunks of {chunk}");
            }
        }
    });
}

#[test]
fn the_order_of_warps_and_what_follows_the_positions_in_use_do_not_matter() {
    let mut random = Rng(72);
    for format in [Bf16, Fp8] {
        let case = Case::random(&mut random, format, params(4, 2, 64), 90, 20);
        // The same problem in a cache whose later positions hold NaN.
        let mut poisoned = case.clone();
        poisoned.kv_len += 40;
        let nan = |plane: &Plane| {
            let (old, new) = (case.kv_len * 64, poisoned.kv_len * 64);
            match plane {
                Plane::Bf16(x) => Plane::Bf16(
                    (0..2 * new)
                        .map(|i| if i % new < old { x[i / new * old + i % new] } else { bf16::NAN })
                        .collect(),
                ),
                Plane::Fp8 { codes, scales } => Plane::Fp8 {
                    codes: (0..2 * new)
                        .map(|i| if i % new < old { codes[i / new * old + i % new] } else { 0x7f })
                        .collect(),
                    scales: (0..2 * new / 64)
                        .map(|i| (i / (new / 64), i % (new / 64)))
                        .map(|(h, j)| if j < old / 64 { scales[h * old / 64 + j] } else { f32::NAN })
                        .collect(),
                },
            }
        };
        (poisoned.keys, poisoned.values) = (nan(&case.keys), nan(&case.values));
        let mut all = vec![];
        for (seed, case) in [(1, &case), (2, &case), (3, &poisoned)] {
            let config = EmulatorConfig { seed, ..EmulatorConfig::default() };
            on_gpu(config, |context, _| {
                let kernels = Kernels::new(context).unwrap();
                let cache = case.cache(context);
                let used = Case { kv_len: 110, ..case.clone() };
                all.push((bits(&used.prefill(&kernels, &cache).0), bits(&used.decode(&kernels, &cache))));
            });
        }
        assert!(all.iter().all(|x| *x == all[0]), "{format}");
    }
}

/// One query head of 64 numbers, of which the first counts: scores are `q * keys[j]`, outputs `values` in every number.
fn line(q: f32, keys: &[f32], values: &[f32]) -> Case {
    let spread = |x: &[f32]| -> Vec<f32> {
        x.iter().flat_map(|&x| (0..64).map(move |d| if d == 0 { x } else { 0.0 })).collect()
    };
    let all: Vec<f32> = values.iter().flat_map(|&v| [v; 64]).collect();
    Case {
        params: AttentionParams { scale: 1.0, ..params(1, 1, 64) },
        sinks: None,
        kv_len: keys.len(),
        first: 0,
        rows: 1,
        q: spread(&[q]).into_iter().map(bf16::from_f32).collect(),
        keys: Plane::of(&spread(keys)),
        values: Plane::of(&all),
    }
}

/// Both kernels' first output; all outputs of the head are the same.
fn answers(kernels: &Kernels, case: &Case) -> [f32; 2] {
    let cache = case.cache(kernels.context());
    [case.prefill(kernels, &cache).0, case.decode(kernels, &cache)].map(|out| {
        assert!(out.iter().all(|x| x.to_bits() == out[0].to_bits()), "{out:?}");
        out[0].to_f32()
    })
}

#[test]
fn field_cases() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        // Scores of -20000 and 0, the second masked: a finite stand-in for -infinity would give 100.
        let case = line(-20000.0, &[1.0, 0.0], &[1.0, 100.0]);
        assert_eq!(answers(&kernels, &case), [1.0; 2]);
        // Cap first, then mask: a masked key weighs nothing.
        let capped = Case { params: AttentionParams { soft_cap: Some(5.0), ..case.params }, ..case };
        assert_eq!(answers(&kernels, &capped), [1.0; 2]);
        // 30 tanh(60 / 30) and 0: e^28.9 to 1, so 1 + 100 e^-28.9; uncapped the same in bf16, so the cap is made small.
        let close = line(60.0, &[1.0, 0.0], &[1.0, 100.0]);
        let close =
            Case { first: 1, params: AttentionParams { soft_cap: Some(2.0), ..close.params }, ..close };
        let weight = (-2.0f64).exp();
        let want = bf16::from_f64((1.0 + 100.0 * weight) / (1.0 + weight)).to_f32();
        assert_eq!(answers(&kernels, &close), [want; 2]);

        // Nothing to see: exactly +0 and -infinity, with sinks too.
        let mut nothing = line(1.0, &[], &[]);
        for sinks in [None, Some(vec![3.0])] {
            nothing.sinks = sinks;
            assert_eq!(answers(&kernels, &nothing).map(f32::to_bits), [0; 2]);
        }
        // A window that lies behind the positions in use, of a row that is not causal.
        let mut behind = line(1.0, &[1.0, 2.0], &[-7.0, -7.0]);
        behind.first = 10;
        behind.params = AttentionParams { causal: false, window: Some(4), ..behind.params };
        assert_eq!(answers(&kernels, &behind).map(f32::to_bits), [0; 2]);
        let (_, lse) = behind.prefill(&kernels, &behind.cache(context));
        assert_eq!(lse, [f32::NEG_INFINITY]);
        // All scores -infinity.
        let infinite = line(f32::INFINITY, &[-1.0], &[-7.0]);
        let zeros = Plane::of(&[-1.0; 64]);
        let infinite = Case { keys: zeros, q: vec![bf16::INFINITY; 64], ..infinite };
        assert_eq!(answers(&kernels, &infinite).map(f32::to_bits), [0; 2]);
        // A score of +infinity is NaN.
        let infinite = Case { keys: Plane::of(&[1.0; 64]), ..infinite };
        assert!(answers(&kernels, &infinite).iter().all(|x| x.is_nan()));
        // NaN in a key that a row sees is NaN; in one that it does not see, nothing.
        let mut seen = line(1.0, &[1.0, f32::NAN], &[3.0, 4.0]);
        assert_eq!(answers(&kernels, &seen), [3.0; 2]);
        seen.first = 1;
        assert!(answers(&kernels, &seen).iter().all(|x| x.is_nan()));
        // A sink takes its share: one of two equal scores.
        let mut sink = line(1.0, &[2.0], &[8.0]);
        sink.sinks = Some(vec![2.0]);
        assert_eq!(answers(&kernels, &sink), [4.0; 2]);
    });
}
