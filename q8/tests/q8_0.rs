//! Q8_0 against the bytes of the `gguf` Python package, the field cases, and its error bounds.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use half::f16;
use halfbyte_q8::{BlockQ8_0, Error, GROUP, dequantize_row, quantize_row, quantize_row_fit};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const SEED: u64 = 0x5108;

fn config() -> ProptestConfig {
    println!("seed {SEED:#x}");
    ProptestConfig {
        cases: 500,
        rng_seed: RngSeed::Fixed(SEED),
        failure_persistence: None,
        ..Default::default()
    }
}

/// A block that no quantizer writes, to find unwritten output.
const POISON: BlockQ8_0 = BlockQ8_0 { scale: f16::NAN, codes: [-128; GROUP] };

fn quantize(x: &[f32]) -> Vec<BlockQ8_0> {
    let mut out = vec![POISON; x.len() / GROUP];
    quantize_row(x, &mut out).unwrap();
    out
}

fn fit(x: &[f32]) -> Vec<BlockQ8_0> {
    let mut out = vec![POISON; x.len() / GROUP];
    quantize_row_fit(x, &mut out).unwrap();
    out
}

/// Squared error of group `g`, from the layout's definition.
fn squared_error(x: &[f32], blocks: &[BlockQ8_0], g: usize) -> f64 {
    (g * GROUP..(g + 1) * GROUP).map(|i| (weight(blocks, i) - f64::from(x[i])).powi(2)).sum()
}

/// Weight `i` of a row of blocks, from the layout's definition, in f64.
fn weight(blocks: &[BlockQ8_0], i: usize) -> f64 {
    let block = &blocks[i / GROUP];
    block.scale.to_f64() * f64::from(block.codes[i % GROUP])
}

#[test]
fn bytes_equal_the_gguf_package() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../goldens/format_bytes.json");
    let golden: serde_json::Value = serde_json::from_reader(std::fs::File::open(path).unwrap()).unwrap();
    let rows = golden["gguf"]["x"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for (row, hex) in rows.iter().zip(golden["gguf"]["Q8_0"].as_array().unwrap()) {
        let x: Vec<f32> = row.as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect();
        let blocks = quantize(&x);
        let bytes: &[u8] = bytemuck::cast_slice(&blocks);
        let got: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(got, hex.as_str().unwrap());
    }
}

#[test]
fn halves_round_away_from_zero() {
    // amax 127 makes the scale 1, an f16, so that the codes are the rounded weights.
    let mut x = [0.0; GROUP];
    x[..7].copy_from_slice(&[127.0, 0.5, -0.5, 1.5, -2.5, 0.499_999_97, -126.5]);
    let block = quantize(&x)[0];
    assert_eq!(block.scale, f16::ONE);
    assert_eq!(block.codes[..7], [127, 1, -1, 2, -3, 0, -127]);
}

#[test]
fn the_scale_of_tiny_weights_is_rounded_first() {
    for block in [quantize(&[1e-5; GROUP])[0], fit(&[1e-5; GROUP])[0]] {
        assert_eq!(block.scale.to_f64(), 2f64.powi(-23));
        assert_eq!(block.codes, [84; GROUP]);
    }
}

#[test]
fn zeros_and_vanishing_weights_are_zero_bytes() {
    for v in [0.0, -0.0, 1e-30, -1e-30, 1e-45] {
        for blocks in [quantize(&[v; GROUP]), fit(&[v; GROUP])] {
            assert_eq!(bytemuck::cast_slice::<_, u8>(&blocks), [0; 34], "{v:e}");
        }
    }
}

#[test]
fn the_format_ends_at_127_times_the_largest_f16() {
    for sign in [1.0, -1.0] {
        let x = [sign * 127.0 * 65504.0; GROUP];
        for block in [quantize(&x)[0], fit(&x)[0]] {
            assert_eq!((block.scale, block.codes), (f16::MAX, [127 * sign as i8; GROUP]));
        }
    }
}

#[test]
fn a_bad_weight_is_named_and_nothing_is_written() {
    let overflow = |index, value| Error::Overflow { index, group: 2, value, limit: 8_319_008.0 };
    let cases = [
        (70, f32::MAX, overflow(70, f32::MAX)),
        (64, -8_319_009.0, overflow(64, -8_319_009.0)),
        (95, f32::INFINITY, Error::NonFinite { index: 95, group: 2, value: f32::INFINITY }),
        (71, f32::NEG_INFINITY, Error::NonFinite { index: 71, group: 2, value: f32::NEG_INFINITY }),
    ];
    for (index, value, expected) in cases {
        let mut x = [0.5; 128];
        x[index] = value;
        let mut out = [POISON; 4];
        assert_eq!(quantize_row(&x, &mut out), Err(expected));
        assert_eq!(quantize_row_fit(&x, &mut out), Err(expected));
        assert!(out.iter().all(|b| b.codes == POISON.codes && b.scale.is_nan()));
    }
    let mut x = [0.5; 64];
    x[40] = f32::NAN;
    let error = quantize_row(&x, &mut [POISON; 2]).unwrap_err();
    assert!(matches!(error, Error::NonFinite { index: 40, group: 1, value } if value.is_nan()));
    assert_eq!(error.to_string(), "weight 40 of the row (group 1) is NaN, not a finite number");
}

#[test]
fn rounding_first_pays_off() {
    let x: Vec<f32> = (0..64 * GROUP).map(|i| ((i * i + 3 * i) as f32).sin()).collect();
    let (blocks, rule) = (fit(&x), quantize(&x));
    let lower = (0..64).filter(|&g| squared_error(&x, &blocks, g) < squared_error(&x, &rule, g)).count();
    assert!(lower > 8, "{lower} of 64 groups");
}

#[test]
fn lengths_are_checked() {
    let mut out = [POISON; 2];
    assert_eq!(quantize_row(&[0.0; 33], &mut out), Err(Error::NotWholeGroups { group: 32, got: 33 }));
    let length = |what, expected, got| Err(Error::Length { what, expected, got });
    assert_eq!(quantize_row(&[0.0; 32], &mut out), length("blocks", 1, 2));
    assert_eq!(dequantize_row(&out, &mut [0.0; 63]), length("out", 64, 63));
    assert_eq!(out[0].codes, POISON.codes);
    assert_eq!(quantize_row(&[], &mut []), Ok(()));
    assert_eq!(quantize_row_fit(&[0.0; 33], &mut out), Err(Error::NotWholeGroups { group: 32, got: 33 }));
    assert_eq!(quantize_row_fit(&[0.0; 32], &mut out), length("blocks", 1, 2));
    assert_eq!(quantize_row_fit(&[], &mut []), Ok(()));
}

/// A row of one to four groups, each of its own magnitude from 2^-30 to 2^22.
fn rows() -> impl Strategy<Value = Vec<f32>> {
    let group = (-30..23i32, prop::collection::vec(-1.0f32..1.0, GROUP))
        .prop_map(|(e, x)| x.into_iter().map(|v| v * 2f32.powi(e)).collect::<Vec<_>>());
    prop::collection::vec(group, 1..5).prop_map(|groups| groups.concat())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn weights_stay_within_the_stated_bound(x in rows()) {
        let blocks = quantize(&x);
        for (g, group) in x.chunks(GROUP).enumerate() {
            let amax = group.iter().fold(0.0, |m: f64, &v| m.max(f64::from(v).abs()));
            let step = amax / 127.0;
            let bound =
                if amax >= 0.008 { step / 2.0 + amax / 2000.0 } else { step.max(2f64.powi(-25)) };
            for (i, &v) in group.iter().enumerate() {
                let error = (weight(&blocks, g * GROUP + i) - f64::from(v)).abs();
                prop_assert!(error <= bound * (1.0 + 1e-6), "{v:e}: off by {error:e} of {bound:e}");
                prop_assert!(blocks[g].codes[i] != -128);
            }
        }
    }

    #[test]
    fn the_fit_is_never_worse_and_has_the_nearest_codes(x in rows()) {
        let (blocks, rule) = (fit(&x), quantize(&x));
        let mut lower = 0;
        for (g, block) in blocks.iter().enumerate() {
            let [ours, theirs] = [&blocks, &rule].map(|blocks| squared_error(&x, blocks, g));
            prop_assert!(ours <= theirs, "{ours:e} > {theirs:e}");
            lower += usize::from(ours < theirs);
            prop_assert!(block.scale.is_finite() && block.codes.iter().all(|&q| q >= -127));
            if *block != rule[g] {
                let d = block.scale.to_f64();
                for (i, &q) in block.codes.iter().enumerate() {
                    let steps = f64::from(x[g * GROUP + i]) / d;
                    let off = (steps - f64::from(q)).abs();
                    prop_assert!(off <= 0.5 * (1.0 + 1e-6) || q.abs() == 127 && steps.abs() > 127.0);
                }
            }
        }
        prop_assert_eq!(lower > 0, blocks != rule);
    }

    #[test]
    fn doubling_a_row_doubles_the_fit(x in prop::collection::vec(-1.0f32..1.0, GROUP), e in 0..20i32) {
        let scaled: Vec<f32> = x.iter().map(|v| v * 2f32.powi(e)).collect();
        let [one, many] = [fit(&x)[0], fit(&scaled)[0]];
        prop_assert_eq!(one.codes, many.codes);
        prop_assert_eq!(one.scale.to_f64() * 2f64.powi(e), many.scale.to_f64());
    }

    #[test]
    fn dequantizing_is_exact(bits in prop::collection::vec(any::<[u8; 34]>(), 0..5)) {
        let blocks: Vec<BlockQ8_0> = bits.iter().map(|b| bytemuck::pod_read_unaligned(b)).collect();
        let mut out = vec![f32::NAN; blocks.len() * GROUP];
        dequantize_row(&blocks, &mut out).unwrap();
        for (i, &got) in out.iter().enumerate() {
            let expected = weight(&blocks, i);
            prop_assert!(f64::from(got) == expected || (got.is_nan() && expected.is_nan()));
        }
    }

    #[test]
    fn stored_groups_come_back_unchanged(codes in any::<[i8; 32]>(), e in -14..15i32, at in 0..32usize) {
        // A group with a code of 127 and a scale that is a power of two loses nothing.
        let mut codes = codes.map(|q| q.max(-127));
        codes[at] = 127;
        let block = BlockQ8_0 { scale: f16::from_f32(2f32.powi(e)), codes };
        prop_assert_eq!(quantize(&block.dequantize())[0], block);
    }
}
