//! int8 activations against a restatement of their rule, and the shape of their buffers.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use halfbyte_q8::{Activations, Error, GROUP, quantize_group};
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

/// The documented rule, operation by operation.
fn rule(x: &[f32]) -> (Vec<i8>, f32, i32) {
    let zero = vec![0; x.len()];
    if x.iter().any(|v| !v.is_finite()) {
        return (zero, f32::NAN, 0);
    }
    let amax = x.iter().map(|v| v.abs()).fold(0.0, f32::max);
    if amax < 127.0 * f32::MIN_POSITIVE {
        return (zero, 0.0, 0);
    }
    let inv = 127.0 / amax;
    let codes: Vec<i32> = x.iter().map(|v| (v * inv).round_ties_even() as i32).collect();
    assert!(codes.iter().all(|q| (-127..=127).contains(q)));
    (codes.iter().map(|&q| q as i8).collect(), amax / 127.0, codes.iter().sum())
}

fn assert_group(x: &[f32; GROUP]) {
    let (codes, scale, sum) = quantize_group(x);
    let (codes2, scale2, sum2) = rule(x);
    assert_eq!(codes.as_slice(), codes2, "{x:?}");
    assert_eq!((scale.is_nan(), sum), (scale2.is_nan(), sum2));
    assert!(scale == scale2 || scale.is_nan());
}

#[test]
fn ties_go_to_even() {
    let mut x = [0.0; GROUP];
    x[..8].copy_from_slice(&[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, -126.5]);
    let (codes, scale, sum) = quantize_group(&x);
    assert_eq!(codes[..8], [127, 0, 2, 2, 0, -2, -2, -126]);
    assert_eq!((scale, sum), (1.0, 1));
}

#[test]
fn extremes_follow_the_rule() {
    let guard = 127.0 * f32::MIN_POSITIVE;
    let below = f32::from_bits(guard.to_bits() - 1);
    for v in [0.0, -0.0, 1e-45, 1e-38, below, guard, 1e-30, 1.0, 1e30, f32::MAX] {
        for v in [v, -v] {
            let mut x = [v / 3.0; GROUP];
            x[17] = v;
            assert_group(&x);
        }
    }
    assert_eq!(quantize_group(&[below; GROUP]), ([0; GROUP], 0.0, 0));
    assert_eq!(quantize_group(&[guard; GROUP]), ([127; GROUP], f32::MIN_POSITIVE, 127 * 32));
    assert_eq!(quantize_group(&[-f32::MAX; GROUP]), ([-127; GROUP], f32::MAX / 127.0, -127 * 32));
}

#[test]
fn a_group_with_a_nan_or_an_infinity_has_scale_nan() {
    for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in [0, 13, 31] {
            let mut x = [f32::MAX; GROUP];
            x[at] = bad;
            let (codes, scale, sum) = quantize_group(&x);
            assert!(scale.is_nan() && codes == [0; GROUP] && sum == 0);
        }
    }
    // Only that group.
    let mut x = [1.0; 96];
    x[40] = f32::NAN;
    let mut a = Activations::new();
    a.quantize(&x, 1, 96).unwrap();
    assert_eq!(a.scales(0).iter().map(|s| s.is_nan()).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(a.sums(0), [127 * 32, 0, 127 * 32]);
}

#[test]
fn capacity_is_kept_across_shapes() {
    let mut a = Activations::with_capacity(3, 128).unwrap();
    assert_eq!((a.rows(), a.cols(), a.groups()), (0, 128, 4));
    a.resize(1, 32).unwrap();
    let place = a.codes(0).as_ptr();
    for (rows, cols) in [(3, 128), (12, 32), (0, 64), (1, 384), (3, 0), (1, 32)] {
        a.resize(rows, cols).unwrap();
        assert_eq!((a.rows(), a.cols(), a.groups()), (rows, cols, cols / 32));
        for row in 0..rows {
            assert_eq!((a.codes(row).len(), a.scales(row).len()), (cols, cols / 32));
            let (codes, scales, sums) = a.row_mut(row);
            assert_eq!((codes.len(), scales.len(), sums.len()), (cols, cols / 32, cols / 32));
        }
    }
    assert_eq!(a.codes(0).as_ptr(), place);
}

#[test]
fn bad_shapes_change_nothing() {
    let mut a = Activations::new();
    a.quantize(&[2.0; 64], 2, 32).unwrap();
    let before = a.clone();
    assert_eq!(a.resize(1, 33), Err(Error::NotWholeGroups { group: 32, got: 33 }));
    let too_large = Error::TooLarge { rows: usize::MAX / 16, cols: 32 };
    assert_eq!(a.resize(usize::MAX / 16, 32), Err(too_large));
    assert_eq!(Activations::with_capacity(usize::MAX / 16, 32), Err(too_large));
    let length = Err(Error::Length { what: "x", expected: 64, got: 65 });
    assert_eq!(a.quantize(&[0.0; 65], 1, 64), length);
    assert_eq!(a, before);
}

#[test]
#[should_panic(expected = "row 2 of a matrix of 2 rows")]
fn a_row_out_of_range_panics_even_without_columns() {
    let mut a = Activations::new();
    a.resize(2, 0).unwrap();
    let _ = a.codes(2);
}

/// A quantizer outside the crate, which fills pieces of the parts on several threads, makes the same matrix as one call.
#[test]
#[cfg_attr(target_family = "wasm", ignore = "there is one thread")]
fn pieces_filled_by_threads_equal_the_whole() {
    let (rows, cols) = (7, 96);
    let x: Vec<f32> = (0..rows * cols).map(|i| ((i * 7919) % 1013) as f32 - 500.0).collect();
    let mut whole = Activations::new();
    whole.quantize(&x, rows, cols).unwrap();
    for chunk in 1..=22 {
        let mut a = Activations::new();
        a.resize(rows, cols).unwrap();
        let (codes, scales, sums) = a.parts_mut();
        assert_eq!((codes.len(), scales.len(), sums.len()), (672, 21, 21));
        std::thread::scope(|scope| {
            let codes = codes.chunks_mut(chunk * 32).zip(x.chunks(chunk * 32));
            let parameters = scales.chunks_mut(chunk).zip(sums.chunks_mut(chunk));
            for ((codes, x), (scales, sums)) in codes.zip(parameters) {
                scope.spawn(move || {
                    let groups = codes.as_chunks_mut::<32>().0.iter_mut().zip(x.as_chunks::<32>().0);
                    for ((codes, x), (scale, sum)) in groups.zip(scales.iter_mut().zip(sums)) {
                        (*codes, *scale, *sum) = quantize_group(x);
                    }
                });
            }
        });
        assert_eq!(a, whole, "pieces of {chunk} groups");
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_group_follows_the_rule(bits in any::<[u32; 32]>()) {
        assert_group(&bits.map(f32::from_bits));
    }

    #[test]
    fn finite_groups_follow_the_rule_and_its_bound(x in any::<[i32; 32]>(), e in -155..90i32) {
        // e = -155 reaches below the guard, e = 90 near the end of f32.
        let x = x.map(|v| (f64::from(v) * 2f64.powi(e)) as f32);
        assert_group(&x);
        let (codes, scale, _) = quantize_group(&x);
        if scale > 0.0 {
            for (v, q) in x.iter().zip(codes) {
                let error = (f64::from(*v) - f64::from(scale) * f64::from(q)).abs();
                prop_assert!(error <= f64::from(scale) * (0.5 + 127.0 * 2f64.powi(-22)));
            }
        }
    }

    #[test]
    fn a_row_does_not_depend_on_the_others(
        x in prop::collection::vec(-4.0f32..4.0, 3 * 64), row in 0..3usize,
    ) {
        let (mut all, mut one) = (Activations::new(), Activations::new());
        all.quantize(&x, 3, 64).unwrap();
        one.quantize(&x[row * 64..][..64], 1, 64).unwrap();
        prop_assert_eq!(all.codes(row), one.codes(0));
        prop_assert_eq!(all.scales(row), one.scales(0));
        prop_assert_eq!(all.sums(row), one.sums(0));
    }
}
