//! Every ISA path against the f64 twin, and against each other bit for bit.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Problem, Rng};
use halfbyte_attention::{KvType, reference};
use halfbyte_cpu_kernels::Isa;

/// The bound that the documentation of `attention` states, for the worst of the problem's scores.
fn bound(p: &Problem, k: &[f32], v: &[f32]) -> f64 {
    let (dim, group) = (p.params.head_dim(), p.params.group());
    let mut largest = 0.0f64;
    for (i, q) in p.q.chunks_exact(dim).enumerate() {
        let kv_head = i % p.params.n_heads() / group;
        for key in k.chunks_exact(dim).skip(kv_head).step_by(p.params.n_kv_heads()) {
            let sum: f64 = q.iter().zip(key).map(|(&a, &b)| f64::from((a * b).abs())).sum();
            largest = largest.max(sum * f64::from(p.params.scale()));
        }
    }
    let v = v.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    let fixed = if p.params.soft_cap().is_some() { 18.0 } else { 10.0 };
    let factor = 2.0 * (dim as f64 / 2.0 + fixed) * largest + 2.0 * p.positions as f64 + 32.0;
    f64::from(v) * factor / f64::from(1 << 24)
}

/// One problem, every path, these caches: bits equal to scalar's, numbers within the bound of the twin's.
fn check(p: &Problem, kinds: &[KvType]) {
    for &kind in kinds {
        let kept = |x: &[f32]| reference::kept(kind, p.params.head_dim(), x);
        let (k, v) = (kept(&p.k), kept(&p.v));
        let scalar = p.run(Isa::scalar(), 1, &p.cache(Isa::scalar(), kind));
        let no_sinks = vec![f32::NEG_INFINITY; p.params.n_heads()];
        let sinks = if p.sinks.is_empty() { &no_sinks } else { &p.sinks };
        let twin = reference::attention_with_sinks(&p.params, sinks, &p.q, &k, &v, p.first());
        let (bound, case) = (bound(p, &k, &v), (p.params, !p.sinks.is_empty(), p.rows, p.positions, kind));
        for (i, (&got, want)) in scalar.iter().zip(twin).enumerate() {
            let error = (f64::from(f32::from_bits(got)) - want).abs();
            assert!(error <= bound, "output {i} of {case:?}: error {error:e}, bound {bound:e}");
        }
        for isa in Isa::available() {
            let got = p.run(isa, 1, &p.cache(isa, kind));
            let at = got.iter().zip(&scalar).position(|(a, b)| a != b);
            assert_eq!(at, None, "{isa} differs from scalar: {case:?}");
        }
    }
}

#[test]
fn ragged_shapes_on_every_path() {
    let seed = 0xa77e;
    println!("seed {seed:#x}");
    let mut rng = Rng(seed);
    for dim in [1, 8, 20, 64, 80, 96, 128, 256] {
        for heads in [(1, 1), (2, 2), (3, 1), (6, 2), (8, 1)] {
            for (rows, positions) in [(1, 1), (1, 65), (5, 5), (7, 70)] {
                check(&Problem::random(&mut rng, heads, dim, rows, positions), &KvType::ALL);
            }
        }
    }
}

#[test]
fn random_shapes_on_every_path() {
    let seed = 0xbeef;
    println!("seed {seed:#x}");
    let mut rng = Rng(seed);
    for i in 0..40 {
        let kv = 1 + rng.below(3);
        let heads = (kv * (1 + rng.below(5)), kv);
        let dim = if rng.below(2) == 0 { 64 } else { 1 + rng.below(140) };
        let rows = 1 + rng.below(40);
        let positions = rows + rng.below(200);
        check(&Problem::random(&mut rng, heads, dim, rows, positions), &[KvType::ALL[i % 5]]);
    }
}

#[test]
fn windows_caps_sinks_and_keys_ahead_on_every_path() {
    let seed = 0x51d3;
    println!("seed {seed:#x}");
    let mut rng = Rng(seed);
    for i in 0..100 {
        let kv = 1 + rng.below(3);
        let heads = (kv * (1 + rng.below(5)), kv);
        let dim = if rng.below(2) == 0 { 64 } else { 1 + rng.below(140) };
        let rows = 1 + rng.below(40);
        // Now and then more than a chunk of keys.
        let positions = rows + rng.below(if i % 11 == 0 { 1200 } else { 150 });
        let p = Problem::random(&mut rng, heads, dim, rows, positions).with_variations(&mut rng);
        check(&p, &[KvType::ALL[i % 5]]);
    }
}

#[test]
fn a_long_context_stays_within_the_bound() {
    let mut rng = Rng(0x10c4);
    check(&Problem::random(&mut rng, (3, 1), 64, 2, 3000), &KvType::ALL);
}
