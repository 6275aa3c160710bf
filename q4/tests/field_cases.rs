//! What went wrong for users of other quantizers, and what is refused.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{POISON_0, POISON_1, decode_0, decode_1, sse};
use half::f16;
use halfbyte_q4::affine::{self, GroupSize};
use halfbyte_q4::fit::{fit_group, max_rule_group, max7_group};
use halfbyte_q4::{BlockQ4_0, BlockQ4_1, Error};
use halfbyte_q4::{dequantize_row_q4_0, dequantize_row_q4_1, q4_1_row, q4_row, q4_row_fit, q4_row_max};

type Writer = fn(&[f32], &mut [BlockQ4_0]) -> Result<(), Error>;

const WRITERS: [(&str, Writer); 3] =
    [("q4_row", q4_row), ("q4_row_max", q4_row_max), ("q4_row_fit", q4_row_fit)];

fn block(writer: Writer, x: &[f32; 32]) -> BlockQ4_0 {
    let mut out = [POISON_0];
    writer(x, &mut out).unwrap();
    out[0]
}

fn block_1(x: &[f32; 32]) -> BlockQ4_1 {
    let mut out = [POISON_1];
    q4_1_row(x, &mut out).unwrap();
    out[0]
}

#[test]
fn one_outlier_of_the_other_sign_does_not_clip_the_rest() {
    let mut x = [-0.95; 32];
    x[0] = 1.0;
    assert!((sse(&x, &decode_0(&block(q4_row_max, &x))) - 0.1744).abs() < 1e-3);
    let fit = block(q4_row_fit, &x);
    assert!(sse(&x, &decode_0(&fit)) <= 0.0025, "{fit:?}");
}

#[test]
fn opposite_equal_weights_are_exact() {
    let mut x = [0.0; 32];
    (x[0], x[1]) = (1.0, -1.0);
    assert_eq!(sse(&x, &decode_0(&block(q4_row_max, &x))), 1.0 / 64.0);
    let fit = block(q4_row_fit, &x);
    assert_eq!(decode_0(&fit), x.map(f64::from));
    assert_eq!(fit.scale, f16::from_f32(0.25));
}

#[test]
fn zeros_decode_to_plus_zero() {
    for v in [0.0, -0.0] {
        for (name, writer) in WRITERS {
            let block = block(writer, &[v; 32]);
            assert_eq!(block, BlockQ4_0::ZERO, "{name}");
            assert_eq!(bytemuck::bytes_of(&block)[..2], [0, 0]);
            assert_eq!(bytemuck::bytes_of(&block)[2..], [0x88; 16]);
            assert!(block.dequantize().iter().all(|w| w.to_bits() == 0));
        }
        assert!(block_1(&[v; 32]).dequantize().iter().all(|w| w.to_bits() == 0));
    }
}

#[test]
fn vanishing_weights_become_zeros() {
    for v in [1e-30, -1e-30, 1e-40, 1e-45, -1e-45, 1e-9] {
        for (name, writer) in WRITERS {
            assert_eq!(block(writer, &[v; 32]), BlockQ4_0::ZERO, "{name} {v:e}");
        }
        let q4_1 = block_1(&[v; 32]);
        assert_eq!((decode_1(&q4_1), q4_1.scale), ([0.0; 32], f16::ZERO), "{v:e}");
        let mut half = [v; 32];
        half[3] = 0.0;
        assert_eq!(decode_1(&block_1(&half)), [0.0; 32], "{v:e}");
    }
    // Unrounded scales have no smallest value: nothing is lost.
    for fit in [fit_group(&[1e-45; 32]), max7_group(&[1e-45; 32]), max_rule_group(&[1e-45; 32])] {
        assert!(fit.scale.is_finite() && fit.sse <= 1e-120, "{fit:?}");
    }
}

#[test]
fn codes_of_tiny_weights_belong_to_the_stored_scale() {
    // A scale for 3e-7 would be 3.75e-8 (max rule) or 4.3e-8 (max/7), which f16 rounds to 2^-24 = 6e-8.
    let x: [f32; 32] = std::array::from_fn(|i| 3e-7 * (i as f32 - 15.5) / 15.5);
    for (name, writer) in WRITERS {
        let w = decode_0(&block(writer, &x));
        for (x, w) in x.iter().zip(w) {
            assert!((f64::from(*x) - w).abs() <= 2f64.powi(-25), "{name}: {x:e} became {w:e}");
        }
    }
    for (x, w) in x.iter().zip(decode_1(&block_1(&x))) {
        // Half a step, and the rounding of the minimum.
        assert!((f64::from(*x) - w).abs() <= 2f64.powi(-24), "Q4_1: {x:e} became {w:e}");
    }
}

#[test]
fn codes_belong_to_the_stored_minimum() {
    // f16s near 100 are 1/16 apart, six times the range of the group: the stored minimum, 100, is
    // below all of the weights, and no scale could be worse than no codes.
    let x: [f32; 32] = std::array::from_fn(|i| 100.02 + 0.01 * i as f32 / 31.0);
    let w = decode_1(&block_1(&x));
    for (x, w) in x.iter().zip(w) {
        assert!((f64::from(*x) - w).abs() <= 0.021, "{x} became {w}");
    }
    let constant = block_1(&[0.1; 32]);
    assert_eq!((constant.scale, constant.min), (f16::ZERO, f16::from_f32(0.1)));
}

#[test]
fn the_largest_weights_of_each_rule() {
    for (limit, writer) in [(7.0 * 65504.0, q4_row as Writer), (8.0 * 65504.0, q4_row_max)] {
        for v in [limit, -limit] {
            assert_eq!(decode_0(&block(writer, &[v; 32])), [f64::from(v); 32]);
            let beyond = f32::from_bits(v.to_bits() + 1);
            let error = writer(&[beyond; 32], &mut [POISON_0]).unwrap_err();
            assert!(matches!(error, Error::Overflow { what: "scale", group: 0, .. }), "{error}");
        }
    }
    // The fit is never worse than the max rule, and reaches as far.
    assert_eq!(decode_0(&block(q4_row_fit, &[-8.0 * 65504.0; 32])), [-8.0 * 65504.0; 32]);
}

#[test]
fn a_bad_weight_is_named_and_nothing_is_written() {
    let mut x = [0.25; 96];
    for (at, value) in [(40, f32::NAN), (63, f32::INFINITY), (32, f32::NEG_INFINITY)] {
        x[40..].fill(0.25);
        x[32..40].fill(0.25);
        x[at] = value;
        let named = |e: &Error| {
            matches!(e, Error::NonFinite { index, group: 1, value: v }
                if *index == at && v.to_bits() == value.to_bits())
        };
        for (name, writer) in WRITERS {
            let mut out = [POISON_0; 3];
            let error = writer(&x, &mut out).unwrap_err();
            assert!(named(&error), "{name}: {error:?}");
            assert!(out.iter().all(|b| b.scale.is_nan() && b.codes == POISON_0.codes));
        }
        let mut out = [POISON_1; 3];
        let error = q4_1_row(&x, &mut out).unwrap_err();
        assert!(named(&error), "{error:?}");
        assert!(out.iter().all(|b| b.min.is_nan() && b.codes == POISON_1.codes));
        let (mut packed, mut scales, mut biases) = ([7; 12], [7.0f32; 3], [7.0f32; 3]);
        let error =
            affine::quantize_row(&x, GroupSize::G32, &mut packed, &mut scales, &mut biases).unwrap_err();
        assert!(named(&error), "{error:?}");
        assert_eq!((packed, scales, biases), ([7; 12], [7.0; 3], [7.0; 3]));
        for fit in [fit_group, max7_group, max_rule_group].map(|f| f(x[32..64].try_into().unwrap())) {
            assert!(fit.sse.is_nan() && fit.scale == 0.0 && fit.codes == [0; 32]);
        }
    }
}

#[test]
fn an_overflow_is_named_and_nothing_is_written() {
    let mut x = [0.25; 64];
    x[50] = f32::MAX;
    for (name, writer) in WRITERS {
        let mut out = [POISON_0; 2];
        let error = writer(&x, &mut out).unwrap_err();
        assert!(
            matches!(error, Error::Overflow { index: 32, group: 1, what: "scale", limit: 65504.0, .. }),
            "{name}: {error}"
        );
        assert_eq!(out[0].codes, POISON_0.codes);
    }
    let q4_1 = |x: &[f32; 64]| q4_1_row(x, &mut [POISON_1; 2]).unwrap_err();
    assert!(matches!(q4_1(&x), Error::Overflow { index: 32, group: 1, what: "scale", .. }));
    x[50] = -65600.0;
    let expected = Error::Overflow { index: 32, group: 1, what: "min", value: -65600.0, limit: 65504.0 };
    assert_eq!(q4_1(&x), expected);
    assert_eq!(
        expected.to_string(),
        "group 1 (weights from 32) needs a min of -65600, the stored type ends at 65504"
    );
    // The range of the group is beyond f32.
    (x[50], x[51]) = (f32::MAX, f32::MIN);
    let mut packed = [7; 8];
    let error = affine::quantize_row(&x, GroupSize::G32, &mut packed, &mut [0.0f32; 2], &mut [0.0f32; 2]);
    assert!(matches!(error, Err(Error::Overflow { index: 32, group: 1, what: "scale", value, .. })
        if value.is_infinite()));
    // The bias is beyond f16.
    (x[50], x[51]) = (70000.0, 70000.0);
    let error =
        affine::quantize_row(&x, GroupSize::G64, &mut packed, &mut [f16::ZERO; 1], &mut [f16::ZERO; 1]);
    let bias = Error::Overflow { index: 0, group: 0, what: "bias", value: 70000.0, limit: 65504.0 };
    assert_eq!(error, Err(bias));
    assert_eq!(packed, [7; 8]);
}

#[test]
fn lengths_are_checked() {
    let length = |what, expected, got| Err(Error::Length { what, expected, got });
    let whole = |group, got| Err(Error::NotWholeGroups { group, got });
    for (_, writer) in WRITERS {
        assert_eq!(writer(&[0.0; 40], &mut [POISON_0]), whole(32, 40));
        assert_eq!(writer(&[0.0; 64], &mut [POISON_0]), length("blocks", 2, 1));
        assert_eq!(writer(&[], &mut []), Ok(()));
    }
    assert_eq!(q4_1_row(&[0.0; 31], &mut [POISON_1]), whole(32, 31));
    assert_eq!(q4_1_row(&[0.0; 32], &mut []), length("blocks", 1, 0));
    let mut out = [7.0; 33];
    assert_eq!(dequantize_row_q4_0(&[BlockQ4_0::ZERO], &mut out), length("out", 32, 33));
    assert_eq!(dequantize_row_q4_1(&[POISON_1], &mut out), length("out", 32, 33));
    assert_eq!(out, [7.0; 33]);

    assert_eq!(GroupSize::try_from(48), Err(Error::GroupSize { got: 48 }));
    let (mut p, mut s, mut b) = ([0; 8], [0.0f32; 2], [0.0f32; 2]);
    let x = [0.0; 64];
    assert_eq!(affine::quantize_row(&x, GroupSize::G128, &mut p, &mut s, &mut b), whole(128, 64));
    assert_eq!(affine::quantize_row(&x, GroupSize::G64, &mut p, &mut s, &mut b), length("scales", 1, 2));
    let short = affine::quantize_row(&x, GroupSize::G32, &mut p[1..], &mut s, &mut b);
    assert_eq!(short, length("packed", 8, 7));
    let short = affine::quantize_row(&x, GroupSize::G32, &mut p, &mut s, &mut b[1..]);
    assert_eq!(short, length("biases", 2, 1));
    let mut out = [7.0; 64];
    let short = affine::dequantize_row(&p, &s[1..], &b, GroupSize::G32, &mut out);
    assert_eq!(short, length("scales", 2, 1));
    let short = affine::dequantize_row(&p, &s, &b, GroupSize::G32, &mut out[1..]);
    assert_eq!(short, whole(32, 63));
    assert_eq!(out, [7.0; 64]);
}
