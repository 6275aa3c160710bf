//! The optimal and the weighted writers: never worse than those they build on, and what they refuse.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{POISON_0, POISON_1, config, decode_0, decode_1, groups, groups_at};
use half::f16;
use halfbyte_q4::fit::{fit_group, max_rule_group, max7_group, optimal_group};
use halfbyte_q4::*;
use proptest::prelude::*;

type Group = [f32; 32];

fn error(x: &Group, importance: &Group, w: &[f64; 32]) -> f64 {
    (0..32).map(|i| f64::from(importance[i]) * (f64::from(x[i]) - w[i]).powi(2)).sum()
}

fn unweighted(writer: fn(&[f32], &mut [BlockQ4_0]) -> Result<(), Error>, x: &Group) -> BlockQ4_0 {
    let mut out = [POISON_0];
    writer(x, &mut out).unwrap();
    out[0]
}

type Weigher<B> = fn(&[f32], &[f32], &mut [B]) -> Result<Weighted, Error>;
const WEIGHERS: [Weigher<BlockQ4_0>; 2] = [q4_row_fit_weighted, q4_row_optimal_weighted];

fn weighted(writer: Weigher<BlockQ4_0>, x: &Group, importance: &Group) -> (BlockQ4_0, usize) {
    let mut out = [POISON_0];
    let report = writer(x, importance, &mut out).unwrap();
    (out[0], report.uniform_groups)
}

fn weighted_1(x: &Group, importance: &Group) -> (BlockQ4_1, usize) {
    let mut out = [POISON_1];
    let report = q4_1_row_weighted(x, importance, &mut out).unwrap();
    (out[0], report.uniform_groups)
}

/// Importances over many orders of magnitude, a fifth of them 0.
fn importances() -> impl Strategy<Value = Group> {
    prop::array::uniform32(prop_oneof![1 => Just(0.0f32), 4 => (-20.0f32..20.0).prop_map(f32::exp2)])
}

/// The least weighted error that any f16 scale gives: all of them tried.
fn least_of_all_f16_scales(x: &Group, importance: &Group) -> f64 {
    (0..=u16::MAX)
        .map(|bits| f16::from_bits(bits).to_f64())
        .filter(|d| d.is_finite() && *d != 0.0)
        .map(|d| error(x, importance, &x.map(|v| d * (f64::from(v) / d).round().clamp(-8.0, 7.0))))
        .fold(f64::INFINITY, f64::min)
}

proptest! {
    #![proptest_config(config(0x0417, 500))]

    #[test]
    fn the_unrounded_optimum_is_a_lower_bound(x in groups(), scale in -1.0f64..1.0) {
        let best = optimal_group(&x);
        let amax = x.iter().fold(0.0f64, |m, v| m.max(f64::from(v.abs())));
        let slack = 1e-12 * amax.powi(2);
        for other in [fit_group(&x), max_rule_group(&x), max7_group(&x)] {
            prop_assert!(best.sse <= other.sse + slack, "{} > {}", best.sse, other.sse);
        }
        // Any other scale, its codes the nearest ones.
        let d = scale * amax / 2.0;
        if d != 0.0 {
            let w = x.map(|v| d * (f64::from(v) / d).round().clamp(-8.0, 7.0));
            prop_assert!(best.sse <= error(&x, &[1.0; 32], &w) + slack);
        }
    }

    #[test]
    fn optimal_blocks_are_never_worse_than_others(x in groups(), importance in importances()) {
        let best = error(&x, &[1.0; 32], &decode_0(&unweighted(q4_row_optimal, &x)));
        let others = [q4_row, q4_row_max, q4_row_fit];
        for other in others.map(|writer| decode_0(&unweighted(writer, &x))) {
            prop_assert!(best <= error(&x, &[1.0; 32], &other));
        }
        // Importances may all be 0: then any error is.
        let of = |block: BlockQ4_0| error(&x, &importance, &decode_0(&block));
        let [fit, best] = WEIGHERS.map(|writer| weighted(writer, &x, &importance).0);
        prop_assert!(fit.scale.is_finite() && best.scale.is_finite());
        prop_assert!(of(best) <= of(fit));
        prop_assert!(of(fit) <= of(unweighted(q4_row_fit, &x)));
        prop_assert!(of(fit) <= of(unweighted(q4_row_max, &x)));
        prop_assert!(of(best) <= of(unweighted(q4_row, &x)));
    }

    #[test]
    fn weighted_q4_1_is_never_worse_than_the_rule(x in groups(), importance in importances()) {
        let mut rule = [POISON_1];
        q4_1_row(&x, &mut rule).unwrap();
        for importance in [importance, [1.0; 32]] {
            let (block, _) = weighted_1(&x, &importance);
            prop_assert!(block.scale.is_finite() && block.min.is_finite());
            let [ours, theirs] = [block, rule[0]].map(|b| error(&x, &importance, &decode_1(&b)));
            prop_assert!(ours <= theirs, "{ours:e} > {theirs:e}");
        }
    }

    #[test]
    fn equal_importances_change_nothing(x in groups(), v in 1e-30f32..1e30) {
        let plain = [q4_row_fit, q4_row_optimal].map(|writer| unweighted(writer, &x));
        for (writer, expected) in WEIGHERS.into_iter().zip(plain) {
            prop_assert_eq!(weighted(writer, &x, &[v; 32]), (expected, 0));
            prop_assert_eq!(weighted(writer, &x, &[0.0; 32]), (expected, 1));
        }
        let (block, _) = weighted_1(&x, &[1.0; 32]);
        prop_assert_eq!(weighted_1(&x, &[v; 32]), (block, 0));
        prop_assert_eq!(weighted_1(&x, &[0.0; 32]), (block, 1));
    }

    #[test]
    fn doubling_a_row_doubles_its_blocks(x in groups_at(0..10), importance in importances()) {
        let two = x.map(|v| 2.0 * v);
        for writer in WEIGHERS {
            let [one, two] = [x, two].map(|x| weighted(writer, &x, &importance).0);
            prop_assert_eq!(one.codes, two.codes);
            prop_assert_eq!(one.scale.to_f32() * 2.0, two.scale.to_f32());
        }
        let [one, two] = [x, two].map(|x| decode_1(&weighted_1(&x, &importance).0));
        prop_assert_eq!(one.map(|w| 2.0 * w), two);
    }
}

proptest! {
    // Each tries all 65536 scales twice.
    #![proptest_config(config(0x0418, 12))]

    #[test]
    fn no_f16_scale_beats_the_optimal_block(x in groups(), importance in importances()) {
        let importance = if importance == [0.0; 32] { [1.0; 32] } else { importance };
        for importance in [importance, [1.0; 32]] {
            let sum: f64 = error(&x, &importance, &[0.0; 32]);
            let ours = error(&x, &importance, &decode_0(&weighted(q4_row_optimal_weighted, &x, &importance).0));
            let least = least_of_all_f16_scales(&x, &importance).min(sum);
            prop_assert!((ours - least).abs() <= 1e-9 * least + 1e-13 * sum, "{ours:e} for {least:e}");
        }
    }
}

#[test]
fn field_cases() {
    let mut outlier = [-0.95; 32];
    outlier[0] = 1.0;
    let mut pair = [0.0; 32];
    (pair[0], pair[1]) = (1.0, -1.0);
    let ramp: Group = std::array::from_fn(|i| i as f32);
    let ones = [1.0; 32];
    let optimal = |x: &Group| unweighted(q4_row_optimal, x);
    assert!(error(&outlier, &ones, &decode_0(&optimal(&outlier))) <= 0.0025);
    assert!(optimal_group(&outlier).sse <= 0.0025);
    assert_eq!(error(&pair, &ones, &decode_0(&optimal(&pair))), 0.0);
    assert_eq!(optimal_group(&pair).sse, 0.0);
    for v in [0.0, -0.0, 1e-30, f32::from_bits(1)] {
        assert_eq!(optimal(&[v; 32]), BlockQ4_0::ZERO);
        for importance in [ones, ramp] {
            assert!(WEIGHERS.iter().all(|w| weighted(*w, &[v; 32], &importance).0 == BlockQ4_0::ZERO));
            assert!(decode_1(&weighted_1(&[v; 32], &importance).0).iter().all(|w| w.to_bits() == 0));
        }
    }
    // The ends of the format, and a constant.
    for v in [8.0 * 65504.0, -8.0 * 65504.0, 0.5] {
        let block = optimal(&[v; 32]);
        assert!(block.scale.is_finite());
        assert!(decode_0(&block).iter().all(|w| (w / f64::from(v) - 1.0).abs() < 0.126), "{v}: {block:?}");
    }
    assert_eq!(decode_1(&weighted_1(&[0.5; 32], &ramp).0), [0.5; 32]);
    for v in [f32::NAN, f32::INFINITY] {
        assert!(optimal_group(&[v; 32]).sse.is_nan());
    }
}

#[test]
fn importance_moves_the_error_to_where_it_matters_less() {
    let x: Group = std::array::from_fn(|i| ((i * i + 3 * i) as f32).sin());
    let mut importance = [1.0; 32];
    importance[7] = 1e6;
    let off = |w: [f64; 32]| (w[7] - f64::from(x[7])).abs();
    for (writer, plain) in WEIGHERS.into_iter().zip([q4_row_fit, q4_row_optimal]) {
        assert!(off(decode_0(&weighted(writer, &x, &importance).0)) < off(decode_0(&unweighted(plain, &x))));
    }
    assert!(off(decode_1(&weighted_1(&x, &importance).0)) < off(decode_1(&weighted_1(&x, &[1.0; 32]).0)));
    // Importance only where the weights are 0: nothing to minimise, and still a sound block.
    let mut x = x;
    x[7] = 0.0;
    let only: Group = std::array::from_fn(|i| f32::from(u8::from(i == 7)));
    for writer in WEIGHERS {
        let (block, uniform) = weighted(writer, &x, &only);
        assert_eq!((block, uniform), (unweighted(q4_row_fit, &x), 0));
    }
    // All that is left is the rounding of a minimum below 1.
    assert!(error(&x, &only, &decode_1(&weighted_1(&x, &only).0)) <= 2f64.powi(-24));
}

#[test]
fn refusals_name_the_place_and_write_nothing() {
    fn check<B: Copy + PartialEq + std::fmt::Debug + bytemuck::Pod>(writer: Weigher<B>, poison: B) {
        let expect = |x: &[f32], importance: &[f32], blocks: usize, error: &str| {
            let mut out = vec![poison; blocks];
            let got = writer(x, importance, &mut out).unwrap_err();
            assert!(got.to_string().contains(error), "{got}");
            assert_eq!(
                bytemuck::cast_slice::<B, u8>(&out),
                bytemuck::cast_slice::<B, u8>(&vec![poison; blocks])
            );
        };
        let (x, good) = ([0.5; 64], [1.0; 64]);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0] {
            let mut importance = good;
            importance[40] = bad;
            expect(&x, &importance, 2, "importance 40 is");
            let got = writer(&x, &importance, &mut [poison; 2]).unwrap_err();
            assert!(
                matches!(got, Error::Importance { index: 40, value } if value.to_bits() == bad.to_bits())
            );
        }
        expect(&x, &good[..63], 2, "importance: expected length 64, got 63");
        expect(&x, &good, 1, "blocks: expected length 2, got 1");
        expect(&x[..33], &good[..33], 1, "33 weights is not a whole number");
        let mut nan = x;
        nan[33] = f32::NAN;
        expect(&nan, &good, 2, "weight 33 of the row (group 1) is NaN");
        let mut huge = x;
        huge[63] = -3e38;
        expect(&huge, &good, 2, "group 1 (weights from 32)");
    }
    check::<BlockQ4_0>(q4_row_fit_weighted, POISON_0);
    check::<BlockQ4_0>(q4_row_optimal_weighted, POISON_0);
    check::<BlockQ4_1>(q4_1_row_weighted, POISON_1);
    let mut out = [POISON_0];
    assert!(matches!(q4_row_optimal(&[f32::NAN; 32], &mut out), Err(Error::NonFinite { index: 0, .. })));
    assert!(matches!(q4_row_optimal(&[1e6; 32], &mut out), Err(Error::Overflow { group: 0, .. })));
    assert_eq!(out[0].codes, POISON_0.codes);
}
