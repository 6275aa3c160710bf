//! int8 activations against a restatement of their rule, and the shape of their buffers.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use halfbyte_q8::{
    Activations, Error, GROUP, Group, Precision, high_byte, low_byte, quantize_group, wide_words,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const SEED: u64 = 0xac7;

fn config() -> ProptestConfig {
    println!("seed {SEED:#x}");
    ProptestConfig {
        cases: 1000,
        rng_seed: RngSeed::Fixed(SEED),
        failure_persistence: None,
        ..Default::default()
    }
}

/// No input is an outlier.
const EIGHT_BITS: f32 = f32::INFINITY;

/// The documented rule, operation by operation: codes, scale and sum.
fn rule(x: &[f32], limit: f32) -> (Vec<i16>, f32, i32) {
    let zero = vec![0; x.len()];
    if x.iter().any(|v| !v.is_finite()) {
        return (zero, f32::NAN, 0);
    }
    let amax = x.iter().map(|v| v.abs()).fold(0.0, f32::max);
    if amax < 127.0 * f32::MIN_POSITIVE {
        return (zero, 0.0, 0);
    }
    let inner = x.iter().map(|v| v.abs()).filter(|v| v.partial_cmp(&limit).is_none_or(|o| o.is_le()));
    let reach = inner.fold(0.0, f32::max).max(amax / 256.0).max(127.0 * f32::MIN_POSITIVE);
    let inv = 127.0 / reach;
    let codes: Vec<i32> = x
        .iter()
        .map(|v| {
            let code = (v * inv).round_ties_even() as i32;
            if code.rem_euclid(256) == 128 { code + 1 } else { code }
        })
        .collect();
    assert!(codes.iter().all(|q| (-32512..=32512).contains(q)));
    (codes.iter().map(|&q| q as i16).collect(), reach / 127.0, codes.iter().sum())
}

fn assert_group(x: &[f32; GROUP], limit: f32) -> Group {
    let group = quantize_group(x, limit);
    let (codes, scale, sum) = rule(x, limit);
    assert_eq!(group.codes.as_slice(), codes, "{x:?} {limit}");
    assert_eq!((group.scale.is_nan(), group.sum()), (scale.is_nan(), sum));
    assert!(group.scale == scale || scale.is_nan());
    if limit == f32::INFINITY {
        assert!(group.codes.iter().all(|q| (-127..=127).contains(q)));
    }
    for code in group.codes {
        let (low, high) = (low_byte(code), high_byte(code));
        assert!(low != -128 && high != -128);
        assert_eq!(i32::from(low) + 256 * i32::from(high), i32::from(code));
    }
    group
}

#[test]
fn ties_go_to_even() {
    let mut x = [0.0; GROUP];
    x[..8].copy_from_slice(&[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, -126.5]);
    let group = quantize_group(&x, EIGHT_BITS);
    assert_eq!(group.codes[..8], [127, 0, 2, 2, 0, -2, -2, -126]);
    assert_eq!((group.scale, group.sum()), (1.0, 1));
}

#[test]
fn extremes_follow_the_rule() {
    let guard = 127.0 * f32::MIN_POSITIVE;
    let below = f32::from_bits(guard.to_bits() - 1);
    for v in [0.0, -0.0, 1e-45, 1e-38, below, guard, 1e-30, 1.0, 1e30, f32::MAX] {
        for v in [v, -v] {
            let mut x = [v / 3.0; GROUP];
            x[17] = v;
            for limit in [EIGHT_BITS, 0.0, v.abs() / 2.0, v.abs(), f32::NAN, 1e-3] {
                assert_group(&x, limit);
            }
        }
    }
    let codes = |v| {
        let group = quantize_group(&[v; GROUP], EIGHT_BITS);
        (group.codes, group.scale)
    };
    assert_eq!(codes(below), ([0; GROUP], 0.0));
    assert_eq!(codes(guard), ([127; GROUP], f32::MIN_POSITIVE));
    assert_eq!(codes(-f32::MAX), ([-127; GROUP], f32::MAX / 127.0));
}

/// The step is that of the inner inputs, and outliers are as exact as those.
#[test]
fn an_outlier_does_not_coarsen_its_group() {
    let mut x = [0.0; GROUP];
    (x[0], x[1], x[2]) = (1.27, -0.5, 60.0);
    let group = assert_group(&x, 2.0);
    // Steps of 0.01: 60 is 6000 of them, 23 * 256 + 112.
    assert_eq!((group.codes[0], group.codes[1], group.codes[2]), (127, -50, 6000));
    assert_eq!((low_byte(6000), high_byte(6000)), (112, 23));
    // Without the limit a step is 60 / 127.
    assert_eq!(quantize_group(&x, EIGHT_BITS).codes[..3], [3, -1, 127]);
    // 16 bits reach 256 times the step: 1e30 among 1e-3 leaves the small ones 0, and is met.
    let mut x = [1e-3; GROUP];
    x[7] = 1e30;
    let group = assert_group(&x, 1.0);
    assert_eq!((group.codes[7], group.codes[8]), (32512, 0));
    assert!((f64::from(group.scale) * 32512.0 / 1e30 - 1.0).abs() < 1e-6);
    // A low byte of -128 is moved: 128 steps become 129, -128 steps -127.
    (x[0], x[1], x[2]) = (1.27, 1.28, -1.28);
    x[3..].fill(0.0);
    assert_eq!(assert_group(&x, 1.27).codes[..3], [127, 129, -127]);
}

/// The row's mean magnitude decides, in the documented order of additions.
#[test]
fn the_limit_is_six_times_the_mean_magnitude() {
    let row: Vec<f32> = (0..64).map(|i| if i % 2 == 0 { 1.0 } else { -3.0 }).collect();
    assert_eq!(Precision::Auto.limit(&row), 12.0);
    assert_eq!(Precision::Int8.limit(&row), f32::INFINITY);
    assert_eq!(Precision::Int16.limit(&row), 0.0);
    // 2^24 + 1 + 1 is 2^24 one by one and 2^24 + 2 pairwise; inputs 0 and 16 share a lane, 1 does not.
    let mut row = [0.0; 32];
    (row[0], row[16], row[1]) = (16_777_216.0, 1.0, 1.0);
    assert_eq!(Precision::Auto.limit(&row), 6.0 * (16_777_216.0 / 32.0));
    (row[16], row[2]) = (0.0, 1.0);
    // Lane 2 meets lane 0 before lane 1: 2^24 + 1 is 2^24 again.
    assert_eq!(Precision::Auto.limit(&row), 6.0 * (16_777_216.0 / 32.0));
    (row[2], row[1], row[3]) = (0.0, 1.0, 1.0);
    // Lanes 1 and 3 meet first.
    assert_eq!(Precision::Auto.limit(&row), 6.0 * (16_777_218.0 / 32.0));
    assert!(Precision::Auto.limit(&[f32::NAN; 32]).is_nan());
}

#[test]
fn a_group_with_a_nan_or_an_infinity_has_scale_nan() {
    for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in [0, 13, 31] {
            let mut x = [f32::MAX; GROUP];
            x[at] = bad;
            for limit in [EIGHT_BITS, 0.0, 1.0] {
                let group = quantize_group(&x, limit);
                assert!(group.scale.is_nan() && group.codes == [0; GROUP]);
            }
        }
    }
    // Only that group.
    let mut x = [1.0; 96];
    x[40] = f32::NAN;
    for (precision, sum) in
        [(Precision::Int8, 127 * 32), (Precision::Auto, 127 * 32), (Precision::Int16, 32512 * 32)]
    {
        let mut a = Activations::with_precision(precision);
        a.quantize(&x, 1, 96).unwrap();
        assert_eq!(a.scales(0).iter().map(|s| s.is_nan()).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(a.sums(0), [sum, 0, sum]);
    }
}

#[test]
fn capacity_is_kept_across_shapes() {
    let mut a = Activations::with_precision(Precision::Auto);
    a.reserve(3, 128).unwrap();
    assert_eq!((a.rows(), a.cols(), a.groups()), (0, 0, 0));
    a.resize(1, 32).unwrap();
    let places = |a: &Activations| (a.low(0).as_ptr(), a.high(0).as_ptr(), a.wide(0).as_ptr());
    let before = places(&a);
    for (rows, cols) in [(3, 128), (12, 32), (0, 64), (1, 384), (3, 0), (1, 32)] {
        a.resize(rows, cols).unwrap();
        assert_eq!((a.rows(), a.cols(), a.groups()), (rows, cols, cols / 32));
        for row in 0..rows {
            assert_eq!((a.low(row).len(), a.high(row).len(), a.wide(row).len()), (cols, cols, cols / 32));
            assert_eq!((a.scales(row).len(), a.sums(row).len()), (cols / 32, cols / 32));
        }
    }
    assert_eq!(places(&a), before);
}

#[test]
fn bad_shapes_change_nothing() {
    let mut a = Activations::new();
    a.quantize(&[2.0; 64], 2, 32).unwrap();
    let before = a.clone();
    assert_eq!(a.resize(1, 33), Err(Error::NotWholeGroups { group: 32, got: 33 }));
    let too_large = Error::TooLarge { rows: usize::MAX / 16, cols: 32 };
    assert_eq!(a.resize(usize::MAX / 16, 32), Err(too_large));
    assert_eq!(a.reserve(usize::MAX / 16, 32), Err(too_large));
    let length = Err(Error::Length { what: "x", expected: 64, got: 65 });
    assert_eq!(a.quantize(&[0.0; 65], 1, 64), length);
    assert_eq!(a, before);
}

#[test]
#[should_panic(expected = "row 2 of a matrix of 2 rows")]
fn a_row_out_of_range_panics_even_without_columns() {
    let mut a = Activations::new();
    a.resize(2, 0).unwrap();
    let _ = a.low(2);
}

/// A quantizer outside the crate, which fills pieces of the matrix on several threads, makes the same one as one call.
#[test]
#[cfg_attr(target_family = "wasm", ignore = "there is one thread")]
fn pieces_filled_by_threads_equal_the_whole() {
    let (rows, cols) = (7, 96);
    let x: Vec<f32> = (0..rows * cols).map(|i| (((i * 7919) % 1013) as f32 - 500.0).powi(3)).collect();
    for precision in [Precision::Int8, Precision::Auto, Precision::Int16] {
        let mut whole = Activations::with_precision(precision);
        whole.quantize(&x, rows, cols).unwrap();
        for chunk in 1..=22 {
            let mut a = Activations::with_precision(precision);
            a.resize(rows, cols).unwrap();
            let mut rest = a.part_mut();
            let mut first = 0;
            std::thread::scope(|scope| {
                while rest.groups() > 0 {
                    let groups = chunk.min(rest.groups());
                    let (mut part, others) = rest.split_at(groups);
                    let (x, at) = (&x, first);
                    scope.spawn(move || {
                        for i in 0..groups {
                            let row = &x[(at + i) / 3 * cols..][..cols];
                            let group = x[(at + i) * 32..][..32].try_into().unwrap();
                            part.set(i, &quantize_group(group, precision.limit(row)));
                        }
                    });
                    (rest, first) = (others, first + groups);
                }
            });
            assert_eq!(a, whole, "pieces of {chunk} groups");
        }
    }
}

#[test]
fn words_of_high_bytes_are_marked() {
    let mut high = [0i8; 32];
    assert_eq!(wide_words(&high), 0);
    (high[3], high[8], high[31]) = (-1, 1, 5);
    assert_eq!(wide_words(&high), 0b1000_0101);
    assert_eq!(wide_words(&[1; 32]), 255);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_group_follows_the_rule(bits in any::<[u32; 32]>(), limit in any::<u32>()) {
        assert_group(&bits.map(f32::from_bits), f32::from_bits(limit).abs());
    }

    #[test]
    fn finite_groups_follow_the_rule_and_its_bound(x in any::<[i32; 32]>(), e in -155..90i32) {
        // e = -155 reaches below the guard, e = 90 near the end of f32.
        let x = x.map(|v| (f64::from(v) * 2f64.powi(e)) as f32);
        for limit in [f32::INFINITY, 0.0, 0.3 * x.iter().fold(0.0, |m: f32, v| m.max(v.abs()))] {
            let Group { codes, scale } = assert_group(&x, limit);
            if scale > 0.0 {
                for (v, q) in x.iter().zip(codes) {
                    let error = (f64::from(*v) - f64::from(scale) * f64::from(q)).abs();
                    // A low byte of -127 may have been one of -128.
                    let steps = if low_byte(q) == -127 { 1.5 } else { 0.5 };
                    let rounding = f64::from(q.unsigned_abs()).max(1.0) * 2f64.powi(-22);
                    prop_assert!(error <= f64::from(scale) * (steps + rounding));
                }
            }
        }
    }

    #[test]
    fn a_row_does_not_depend_on_the_others(
        x in prop::collection::vec(-4.0f32..4.0, 3 * 64), row in 0..3usize,
    ) {
        for precision in [Precision::Int8, Precision::Auto, Precision::Int16] {
            let [mut all, mut one] = [0, 1].map(|_| Activations::with_precision(precision));
            all.quantize(&x, 3, 64).unwrap();
            one.quantize(&x[row * 64..][..64], 1, 64).unwrap();
            prop_assert_eq!((all.low(row), all.high(row)), (one.low(0), one.high(0)));
            prop_assert_eq!((all.wide(row), all.scales(row)), (one.wide(0), one.scales(0)));
            prop_assert_eq!(all.sums(row), one.sums(0));
        }
    }
}
