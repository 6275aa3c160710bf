//! Every ISA path against the f64 twin, and against each other bit for bit.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Problem, Rng};
use half::f16;
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
    let factor = 2.0 * (dim as f64 / 16.0 + 12.0) * largest + 2.0 * p.positions as f64 + 32.0;
    f64::from(v) * factor / f64::from(1 << 24)
}

/// One problem, every path, both caches: bits equal to scalar's, numbers within the bound of the twin's.
fn check(p: &Problem) {
    for kind in [KvType::F32, KvType::F16] {
        let round = |x: &Vec<f32>| -> Vec<f32> {
            match kind {
                KvType::F16 => x.iter().map(|&x| f16::from_f32(x).to_f32()).collect(),
                _ => x.clone(),
            }
        };
        let (k, v) = (round(&p.k), round(&p.v));
        let scalar = p.run(Isa::scalar(), 1, &p.cache(Isa::scalar(), kind));
        let (twin, bound) = (reference::attention(&p.params, &p.q, &k, &v, p.first()), bound(p, &k, &v));
        for (i, (&got, want)) in scalar.iter().zip(twin).enumerate() {
            let error = (f64::from(f32::from_bits(got)) - want).abs();
            let case = (p.params, p.rows, p.positions, kind);
            assert!(error <= bound, "output {i} of {case:?}: error {error:e}, bound {bound:e}");
        }
        for isa in Isa::available() {
            let got = p.run(isa, 1, &p.cache(isa, kind));
            let at = got.iter().zip(&scalar).position(|(a, b)| a != b);
            assert_eq!(at, None, "{isa} differs from scalar: {:?}", (p.params, p.rows, p.positions, kind));
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
                check(&Problem::random(&mut rng, heads, dim, rows, positions));
            }
        }
    }
}

#[test]
fn random_shapes_on_every_path() {
    let seed = 0xbeef;
    println!("seed {seed:#x}");
    let mut rng = Rng(seed);
    for _ in 0..60 {
        let kv = 1 + rng.below(3);
        let heads = (kv * (1 + rng.below(5)), kv);
        let dim = if rng.below(2) == 0 { 64 } else { 1 + rng.below(140) };
        let rows = 1 + rng.below(40);
        let positions = rows + rng.below(200);
        check(&Problem::random(&mut rng, heads, dim, rows, positions));
    }
}

#[test]
fn a_long_context_stays_within_the_bound() {
    let mut rng = Rng(0x10c4);
    check(&Problem::random(&mut rng, (3, 1), 64, 2, 3000));
}
