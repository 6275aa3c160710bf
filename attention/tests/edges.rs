//! Extreme scores, NaN and infinity, the cache's rounding, and refused arguments.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Problem, Rng, one_query};
use halfbyte_attention::{
    AttentionParams, Error, KvCache, KvType, attention, attention_with_sinks, reference,
};
use halfbyte_cpu_kernels::{Context, Isa};
use halfbyte_threadpool::ThreadPool;
use std::num::NonZero;

const INF: f32 = f32::INFINITY;

#[test]
fn a_masked_key_weighs_nothing_whatever_the_scores() {
    // q = -20000, k = [1, 0], v = [1, 100]: row 0 sees key 0 alone, whose score is -20000.
    let params = AttentionParams::new(1, 1, 1, 1.0).unwrap();
    let p = Problem {
        params,
        sinks: Vec::new(),
        q: vec![-20000.0; 2],
        k: vec![1.0, 0.0],
        v: vec![1.0, 100.0],
        rows: 2,
        positions: 2,
    };
    for isa in Isa::available() {
        for kind in KvType::ALL {
            let got = p.run(isa, 1, &p.cache(isa, kind));
            let kept = reference::kept(kind, 1, &p.v);
            assert_eq!(got.map_f32(), kept, "{isa} {kind:?}");
        }
    }
}

trait MapF32 {
    fn map_f32(&self) -> Vec<f32>;
}

impl MapF32 for Vec<u32> {
    fn map_f32(&self) -> Vec<f32> {
        self.iter().map(|&b| f32::from_bits(b)).collect()
    }
}

#[test]
fn later_positions_have_no_influence_even_if_nan() {
    let mut rng = Rng(0x99);
    let mut p = Problem::random(&mut rng, (4, 2), 64, 70, 70);
    for isa in Isa::available() {
        let clean = p.run(isa, 1, &p.cache(isa, KvType::F32));
        let (k, v) = (p.k.clone(), p.v.clone());
        // Poison positions from 66 on: rows 0 to 65, in the same quads and blocks, must not notice.
        p.k[66 * 128..].fill(f32::NAN);
        p.v[66 * 128..].fill(INF);
        let got = p.run(isa, 1, &p.cache(isa, KvType::F32));
        assert_eq!(got[..66 * 256], clean[..66 * 256], "{isa}");
        assert!(got[66 * 256..].iter().all(|&b| b == 0x7fc0_0000), "{isa}");
        (p.k, p.v) = (k, v);
    }
}

#[test]
fn scores_far_apart_and_far_from_zero() {
    // Scores of +-20000: the winner takes all, in the first block or a later one.
    for winner in [0, 63, 64, 129] {
        let mut k = vec![-20000.0; 130];
        k[winner] = 20000.0;
        let v: Vec<f32> = (0..130).map(|i| i as f32).collect();
        assert_eq!(one_query(&[1.0], &k, &v, 1.0), [winner as f32]);
    }
    // Equal scores, however low, weigh the same.
    let v: Vec<f32> = (0..129).map(|i| (i % 3) as f32).collect();
    assert_eq!(one_query(&[-20000.0], &[1.0; 129], &v, 1.0), [1.0]);
    assert_eq!(one_query(&[-1e30], &[1e8; 129], &v, 1.0), [1.0]);
}

#[test]
fn infinite_scores() {
    // -inf weighs exactly 0, in any block, before or after finite scores.
    assert_eq!(one_query(&[1.0], &[-INF, 2.0], &[7.0, 3.0], 1.0), [3.0]);
    let mut k = vec![-INF; 200];
    assert_eq!(one_query(&[1.0], &k, &[5.0; 200], 1.0), [0.0]);
    assert_eq!(one_query(&[1.0], &k, &[5.0; 200], 1.0)[0].to_bits(), 0);
    for finite in [0, 70, 199] {
        k.fill(-INF);
        k[finite] = -1e30;
        let v: Vec<f32> = (0..200).map(|i| i as f32).collect();
        assert_eq!(one_query(&[1.0], &k, &v, 1.0), [finite as f32]);
    }
    // +inf and overflow: NaN, the one NaN.
    assert_eq!(one_query(&[1.0], &[0.0, INF], &[1.0, 2.0], 1.0)[0].to_bits(), 0x7fc0_0000);
    assert_eq!(one_query(&[1e30], &[1e30, 0.0], &[1.0, 2.0], 1.0)[0].to_bits(), 0x7fc0_0000);
}

#[test]
fn nan_reaches_the_output_from_anywhere_that_is_seen() {
    // NaNs with sign and payload give the one NaN too.
    for nan in [f32::NAN, f32::from_bits(0xffc1_2345), f32::from_bits(0x7f80_0001)] {
        for at in [0, 15, 16, 63, 64, 100] {
            let (mut k, mut v) = (vec![0.5; 101 * 20], vec![0.25; 101 * 20]);
            k[at * 20 + 3] = nan;
            let out = one_query(&[1.0; 20], &k, &v, 1.0);
            assert!(out.iter().all(|x| x.to_bits() == 0x7fc0_0000), "key {at}");
            k.fill(0.5);
            v[at * 20 + 3] = nan;
            let out = one_query(&[1.0; 20], &k, &v, 1.0);
            for (d, x) in out.iter().enumerate() {
                let want = if d == 3 { 0x7fc0_0000 } else { 0.25f32.to_bits() };
                assert_eq!(x.to_bits(), want, "value {at}, element {d}");
            }
        }
        let out = one_query(&[nan; 20], &[1.0; 40], &[1.0; 40], 1.0);
        assert!(out.iter().all(|x| x.to_bits() == 0x7fc0_0000));
    }
    // Among -inf scores as well.
    let k = [-INF, f32::NAN, -INF];
    assert_eq!(one_query(&[1.0], &k, &[1.0; 3], 1.0)[0].to_bits(), 0x7fc0_0000);
}

#[test]
fn a_half_cache_rounds_to_nearest_even() {
    // One key: the output is the stored value.
    let cases = [
        (1.0, 1.0),
        (1.0 + 2f32.powi(-11), 1.0),
        (1.0 + 3.0 * 2f32.powi(-11), 1.0 + 2f32.powi(-9)),
        (1.0 + 2f32.powi(-11) + 2f32.powi(-20), 1.0 + 2f32.powi(-10)),
        (65504.0, 65504.0),
        (65519.9, 65504.0),
        (65520.0, INF),
        (-1e30, -INF),
        (2f32.powi(-24), 2f32.powi(-24)),
        (2f32.powi(-25), 0.0),
        (3.0 * 2f32.powi(-26), 2f32.powi(-24)),
    ];
    let pool = ThreadPool::new(1).unwrap();
    for isa in Isa::available() {
        for dim in [1, 16, 21] {
            let params = AttentionParams::new(1, 1, dim, 1.0).unwrap();
            for (stored, want) in cases {
                let mut cache = KvCache::new(KvType::F16, 1, dim, 1).unwrap();
                cache.append(isa, &vec![0.0; dim], &vec![stored; dim], 1).unwrap();
                let mut out = vec![f32::NAN; dim];
                attention(Context { pool: &pool, isa }, params, &vec![0.0; dim], &cache, 0, &mut out)
                    .unwrap();
                assert!(out.iter().all(|&x| x == want), "{isa}: {stored} became {out:?}");
            }
        }
    }
}

#[test]
fn every_type_keeps_what_the_twin_says() {
    // A head of 40: padded to 48, one and a quarter Q8_0 groups. Numbers of many sizes, ties and both zeros among them.
    let seed = 0x3e;
    println!("seed {seed:#x}");
    let mut rng = Rng(seed);
    let pool = ThreadPool::new(1).unwrap();
    for size in [1e-42, 1e-30, 1e-6, 1.0, 448.0, 3e4, 1e30] {
        let mut v = rng.f32s(40, size);
        (v[7], v[11], v[12], v[13]) = (size, 0.0, -0.0, size * 17.0 / 448.0);
        for kind in KvType::ALL {
            let want = reference::kept(kind, 40, &v);
            for isa in Isa::available() {
                let mut cache = KvCache::new(kind, 1, 40, 1).unwrap();
                cache.append(isa, &[0.0; 40], &v, 1).unwrap();
                let mut out = vec![f32::NAN; 40];
                let params = AttentionParams::new(1, 1, 40, 1.0).unwrap();
                attention(Context { pool: &pool, isa }, params, &[0.0; 40], &cache, 0, &mut out).unwrap();
                for (i, (got, want)) in out.iter().zip(&want).enumerate() {
                    let same = got == want || (want.is_nan() && got.is_nan());
                    assert!(same, "{isa} {kind:?} {size}: element {i} is {got:e}, expected {want:e}");
                }
            }
        }
    }
}

#[test]
fn e4m3_rounds_to_nearest_even_and_saturates() {
    // With 448 in the head the scale is 1: the codes' own numbers.
    let cases = [
        (17.0, 16.0),
        (19.0, 20.0),
        (17.000_002, 18.0),
        (447.0, 448.0),
        (432.0, 448.0),
        (431.9, 416.0),
        (-0.001, -0.001_953_125),
        (2f32.powi(-10), 0.0),
        (3.0 * 2f32.powi(-10), 2f32.powi(-8)),
        (15.0 * 2f32.powi(-10), 2f32.powi(-6)),
        (2f32.powi(-7), 2f32.powi(-7)),
    ];
    for (x, want) in cases {
        assert_eq!(reference::kept(KvType::Fp8, 2, &[448.0, x])[1], want, "{x}");
    }
    assert_eq!(reference::kept(KvType::Fp8, 2, &[0.0, -0.0]), [0.0, 0.0]);
    for strange in [f32::NAN, INF, -INF] {
        assert!(reference::kept(KvType::Fp8, 2, &[1.0, strange]).iter().all(|x| x.is_nan()));
    }
}

#[test]
fn nan_and_infinity_in_a_head_make_codes_with_a_scale_nan() {
    for kind in [KvType::Q8, KvType::Fp8] {
        for strange in [f32::NAN, INF, -INF] {
            let params = AttentionParams::new(1, 1, 64, 1.0).unwrap();
            let (mut k, v) = (vec![0.5; 2 * 64], vec![1.0; 2 * 64]);
            k[3] = strange;
            let p = Problem { params, sinks: Vec::new(), q: vec![1.0; 64], k, v, rows: 1, positions: 2 };
            for isa in Isa::available() {
                let got = p.run(isa, 1, &p.cache(isa, kind));
                assert!(got.iter().all(|&b| b == 0x7fc0_0000), "{isa} {kind:?} {strange}");
            }
        }
    }
}

/// `n` keys with equal scores.
fn counting(params: AttentionParams, rows: usize, n: usize) -> Problem {
    let k = vec![0.0; n];
    let v = (0..n).map(|i| (i % 7) as f32).collect();
    Problem { params, sinks: Vec::new(), q: vec![1.0; rows], k, v, rows, positions: n }
}

#[test]
fn a_window_ends_where_it_says() {
    // Equal scores: the output is the mean of the values seen.
    let params = AttentionParams::new(1, 1, 1, 1.0).unwrap();
    for window in [1, 2, 63, 64, 65, 511, 512, 513, 700] {
        for causal in [true, false] {
            let p = counting(params.with_window(NonZero::new(window)).with_causal(causal), 700, 700);
            for isa in Isa::available() {
                let got = p.run(isa, 1, &p.cache(isa, KvType::F32)).map_f32();
                for (row, got) in got.into_iter().enumerate() {
                    let near = (0..700_usize).filter(|j| j.abs_diff(row) < window && (!causal || *j <= row));
                    let (sum, n) = near.fold((0.0, 0.0), |(sum, n), j| (sum + (j % 7) as f64, n + 1.0));
                    let want = sum / n;
                    assert!(
                        (f64::from(got) - want).abs() < 1e-4,
                        "{isa} {window} {causal} row {row}: {got}, {want}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_row_that_sees_nothing_gets_zeros() {
    let pool = ThreadPool::new(2).unwrap();
    let params = AttentionParams::new(2, 1, 4, 1.0).unwrap().with_causal(false);
    for isa in Isa::available() {
        let ctx = Context { pool: &pool, isa };
        for kind in KvType::ALL {
            // An empty cache.
            let mut cache = KvCache::new(kind, 1, 4, 2000).unwrap();
            let mut out = vec![f32::NAN; 16];
            attention(ctx, params, &[1.0; 16], &cache, 0, &mut out).unwrap();
            assert!(out.iter().all(|x| x.to_bits() == 0), "{isa} {kind:?}: {out:?}");
            // Windows that begin behind the last key, for the second of two rows alone and for both.
            cache.append(isa, &[1.0; 4 * 1600], &[3.0; 4 * 1600], 1600).unwrap();
            let windowed = params.with_window(NonZero::new(1));
            attention(ctx, windowed, &[1.0; 16], &cache, 1599, &mut out).unwrap();
            assert_eq!(out[..8], reference::kept(kind, 4, &[3.0; 8]), "{isa} {kind:?}");
            assert!(out[8..].iter().all(|x| x.to_bits() == 0), "{isa} {kind:?}: {out:?}");
            out.fill(f32::NAN);
            attention(ctx, windowed, &[1.0; 16], &cache, 3000, &mut out).unwrap();
            assert!(out.iter().all(|x| x.to_bits() == 0), "{isa} {kind:?}: {out:?}");
            out.fill(f32::NAN);
            attention_with_sinks(ctx, windowed, &[0.0, -INF], &[1.0; 16], &cache, 3000, &mut out).unwrap();
            assert!(out.iter().all(|x| x.to_bits() == 0), "{isa} {kind:?}: {out:?}");
        }
    }
}

#[test]
fn a_masked_key_weighs_nothing_under_a_cap() {
    // Mask first, then cap, would give the masked key a score of -cap and so a weight.
    let params = AttentionParams::new(1, 1, 1, 1.0).unwrap().with_soft_cap(Some(2.0)).unwrap();
    let (q, k, v) = (vec![-20000.0; 2], vec![1.0, 0.0], vec![1.0, 100.0]);
    let p = Problem { params, sinks: Vec::new(), q, k, v, rows: 2, positions: 2 };
    for isa in Isa::available() {
        let got = p.run(isa, 1, &p.cache(isa, KvType::F32)).map_f32();
        // Row 1: scores -2 and 0.
        let e = (-2f64).exp();
        let want = (e + 100.0) / (e + 1.0);
        assert_eq!(got[0], 1.0, "{isa}");
        assert!((f64::from(got[1]) - want).abs() < 1e-4, "{isa}: {} {want}", got[1]);
    }
    // Infinite scores are bounded, NaN is not hidden.
    let capped = |k: &[f32]| {
        let p = Problem {
            params,
            sinks: Vec::new(),
            q: vec![1.0],
            k: k.to_vec(),
            v: vec![0.0, 1.0],
            rows: 1,
            positions: 2,
        };
        p.run(Isa::fastest(), 1, &p.cache(Isa::fastest(), KvType::F32)).map_f32()[0]
    };
    let e = 4f64.exp();
    assert!((f64::from(capped(&[-INF, INF])) - e / (e + 1.0)).abs() < 1e-6);
    assert!(capped(&[f32::NAN, 0.0]).is_nan());
}

#[test]
fn sinks_take_weight_and_nothing_else() {
    let mut rng = Rng(0x51);
    let plain = Problem::random(&mut rng, (6, 2), 20, 9, 600);
    for isa in Isa::available() {
        let cache = plain.cache(isa, KvType::F16);
        let without = plain.run(isa, 1, &cache);
        let with = |sinks: Vec<f32>| {
            let p = Problem { sinks, q: plain.q.clone(), k: Vec::new(), v: Vec::new(), ..plain };
            p.run(isa, 1, &cache)
        };
        // -inf is no sink, to the bit; one far above all scores leaves nothing; a head's sink is its own.
        assert_eq!(with(vec![-INF; 6]), without, "{isa}");
        assert!(with(vec![1e30; 6]).map_f32().iter().all(|x| *x == 0.0), "{isa}");
        let one = with(vec![-INF, -INF, -INF, 3.0, -INF, -INF]);
        for (i, (a, b)) in one.chunks_exact(20).zip(without.chunks_exact(20)).enumerate() {
            assert_eq!(a == b, i % 6 != 3, "{isa}: query {i}");
        }
    }
}

#[test]
fn a_cache_refuses_what_does_not_fit_and_stays_as_it_was() {
    let isa = Isa::scalar();
    for kind in KvType::ALL {
        let mut cache = KvCache::new(kind, 2, 3, 4).unwrap();
        // Keys are kept in panels of sixteen positions.
        assert_eq!(cache.bytes(), (16 + 4) * 2 * kind.row_bytes(3));
        cache.append(isa, &[1.0; 18], &[2.0; 18], 3).unwrap();
        let full = Error::Full { capacity: 4, len: 3, rows: 2 };
        assert_eq!(cache.append(isa, &[9.0; 12], &[9.0; 12], 2), Err(full));
        assert!(matches!(cache.append(isa, &[], &[], usize::MAX), Err(Error::Full { .. })));
        let short = |what, got| Err(Error::Length { what, expected: 6, got });
        assert_eq!(cache.append(isa, &[9.0; 5], &[9.0; 6], 1), short("k", 5));
        assert_eq!(cache.append(isa, &[9.0; 6], &[9.0; 7], 1), short("v", 7));
        assert_eq!((cache.len(), cache.capacity(), cache.kv_type()), (3, 4, kind));
        cache.append(isa, &[], &[], 0).unwrap();
        cache.truncate(9);
        assert_eq!(cache.len(), 3);
        cache.truncate(2);
        assert_eq!(cache.len(), 2);
        cache.clear();
        assert!(cache.is_empty());
    }
    assert_eq!(KvCache::new(KvType::F32, 0, 1, 1).unwrap_err(), Error::Zero { what: "n_kv_heads" });
    assert_eq!(KvCache::new(KvType::F32, 1, 0, 1).unwrap_err(), Error::Zero { what: "head_dim" });
    assert_eq!(KvCache::new(KvType::F32, 1, 1, 0).unwrap_err(), Error::Zero { what: "capacity" });
    for (heads, dim, capacity) in [(1, usize::MAX, 1), (1 << 40, 1 << 20, 1 << 20), (1, 16, usize::MAX / 128)]
    {
        for kind in KvType::ALL {
            let got = KvCache::new(kind, heads, dim, capacity).unwrap_err();
            assert!(matches!(got, Error::TooLarge { .. }), "{got}");
        }
    }
}

#[test]
fn wrong_arguments_are_named_and_nothing_is_written() {
    let pool = ThreadPool::new(1).unwrap();
    let ctx = Context { pool: &pool, isa: Isa::scalar() };
    let params = AttentionParams::new(4, 2, 3, 1.0).unwrap();
    let mut cache = KvCache::new(KvType::F32, 2, 3, 8).unwrap();
    cache.append(ctx.isa, &[1.0; 30], &[1.0; 30], 5).unwrap();
    let mut out = [7.0; 24];
    let mut call = |params, q: usize, first, n: usize| {
        attention(ctx, params, &[1.0; 24][..q], &cache, first, &mut out[..n])
    };
    let other = |heads, kv, dim| AttentionParams::new(heads, kv, dim, 1.0).unwrap();
    assert_eq!(call(params, 23, 0, 23), Err(Error::NotWholeRows { what: "q", width: 12, got: 23 }));
    assert_eq!(call(params, 24, 0, 12), Err(Error::Length { what: "out", expected: 24, got: 12 }));
    assert_eq!(call(params, 24, 4, 24), Err(Error::Position { first: 4, rows: 2, len: 5 }));
    assert!(matches!(call(params, 24, usize::MAX, 24), Err(Error::Position { .. })));
    assert_eq!(
        call(other(4, 4, 3), 24, 0, 24),
        Err(Error::Shape { what: "n_kv_heads", expected: 4, got: 2 })
    );
    assert_eq!(call(other(4, 2, 6), 24, 0, 24), Err(Error::Shape { what: "head_dim", expected: 6, got: 3 }));
    assert_eq!(call(params, 0, 5, 0), Ok(()));
    assert_eq!(out, [7.0; 24]);

    assert_eq!(AttentionParams::new(9, 2, 64, 1.0), Err(Error::HeadGroups { n_heads: 9, n_kv_heads: 2 }));
    assert_eq!(AttentionParams::new(0, 2, 64, 1.0), Err(Error::Zero { what: "n_heads" }));
    assert_eq!(AttentionParams::new(2, 0, 64, 1.0), Err(Error::Zero { what: "n_kv_heads" }));
    assert_eq!(AttentionParams::new(2, 2, 0, 1.0), Err(Error::Zero { what: "head_dim" }));
    assert_eq!(AttentionParams::new(2, 2, 4, INF), Err(Error::Scale { got: INF }));
    for cap in [0.0, -1.0, INF, 1e-40] {
        let params = AttentionParams::new(2, 2, 4, 1.0).unwrap();
        assert_eq!(params.with_soft_cap(Some(cap)), Err(Error::SoftCap { got: cap }));
    }
    let mut with_sinks =
        |sinks: &[f32]| attention_with_sinks(ctx, params, sinks, &[1.0; 24], &cache, 3, &mut out);
    assert_eq!(with_sinks(&[0.0; 2]), Err(Error::Length { what: "sinks", expected: 4, got: 2 }));
    assert_eq!(with_sinks(&[0.0, 1.0, INF, 0.0]), Err(Error::Sink { head: 2, got: INF }));
    assert!(matches!(with_sinks(&[0.0, f32::NAN, 0.0, 0.0]), Err(Error::Sink { head: 1, .. })));
    assert_eq!(out, [7.0; 24]);
}
