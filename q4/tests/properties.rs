//! Round trips, bounds and order of the writers, on random groups.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{POISON_0, POISON_1, config, decode_0, decode_1, groups, groups_at, sse};
use half::f16;
use halfbyte_q4::affine::{self, GroupSize, pack8, unpack8};
use halfbyte_q4::fit::{fit_group, max_rule_group, max7_group};
use halfbyte_q4::*;
use proptest::prelude::*;

fn amax(x: &[f32]) -> f64 {
    x.iter().fold(0.0, |m: f64, &v| m.max(f64::from(v).abs()))
}

proptest! {
    #![proptest_config(config(0x404, 1000))]

    #[test]
    fn nibbles_and_words_round_trip(packed in any::<[u8; 16]>(), word in any::<u32>()) {
        let codes = unpack_nibbles(&packed);
        prop_assert_eq!(pack_nibbles(&codes), packed);
        for i in 0..16 {
            prop_assert_eq!((codes[i], codes[i + 16]), (packed[i] % 16, packed[i] / 16));
        }
        let codes = unpack8(word);
        prop_assert_eq!(pack8(&codes), word);
        let value = codes.iter().enumerate().map(|(i, &q)| u32::from(q) * 16u32.pow(i as u32)).sum::<u32>();
        prop_assert_eq!(value, word);
    }

    #[test]
    fn dequantizing_follows_the_formula(bits in prop::collection::vec(any::<[u8; 20]>(), 0..4)) {
        let q4_1: Vec<BlockQ4_1> = bits.iter().map(|b| bytemuck::pod_read_unaligned(b)).collect();
        let q4_0: Vec<BlockQ4_0> = bits.iter().map(|b| bytemuck::pod_read_unaligned(&b[..18])).collect();
        let mut out = vec![0.5; bits.len() * 32];
        dequantize_row_q4_0(&q4_0, &mut out).unwrap();
        for (w, expected) in out.iter().zip(q4_0.iter().flat_map(decode_0)) {
            prop_assert!(f64::from(*w) == expected || (w.is_nan() && expected.is_nan()));
        }
        dequantize_row_q4_1(&q4_1, &mut out).unwrap();
        for (w, expected) in out.iter().zip(q4_1.iter().flat_map(decode_1)) {
            prop_assert!(*w == expected as f32 || (w.is_nan() && expected.is_nan()));
        }
    }

    #[test]
    fn the_fit_is_never_worse_than_the_max_rule_as_stored(x in groups()) {
        let mut out = [POISON_0; 2];
        q4_row_fit(&x, &mut out[..1]).unwrap();
        q4_row_max(&x, &mut out[1..]).unwrap();
        let [fit, max] = out.map(|b| sse(&x, &decode_0(&b)));
        prop_assert!(fit <= max, "{fit:e} > {max:e}");
        prop_assert!(out.iter().all(|b| b.scale.is_finite()));
    }

    #[test]
    fn the_unrounded_fit_is_never_worse_than_either_rule(x in groups()) {
        let (fit, max, max7) = (fit_group(&x), max_rule_group(&x), max7_group(&x));
        let slack = 1e-12 * amax(&x).powi(2);
        prop_assert!(fit.sse <= max7.sse + slack);
        // -8 is among its tries, with the codes of the max rule but for ties.
        prop_assert!(fit.sse <= max.sse + slack, "{} for {}", fit.sse, max.sse);
        // The scale is the least-squares one for its codes: the derivative of the error is zero.
        let slope: f64 = x.iter().zip(fit.codes)
            .map(|(&x, q)| (f64::from(x) - fit.scale * f64::from(q)) * f64::from(q)).sum();
        prop_assert!(slope.abs() <= 1e-10 * amax(&x), "{slope:e}");
    }

    #[test]
    fn max7_is_off_by_half_a_stored_step_at_most(x in groups()) {
        let mut out = [POISON_0];
        q4_row(&x, &mut out).unwrap();
        // All zeros: as if with a step that is too large.
        let step = out[0].scale.to_f64().max(2f64.powi(-24));
        prop_assert!(out[0].codes().iter().all(|&q| q >= 1));
        for (x, w) in x.iter().zip(decode_0(&out[0])) {
            prop_assert!((f64::from(*x) - w).abs() <= step / 2.0 * (1.0 + 1e-6));
        }
    }

    #[test]
    fn q4_1_is_off_by_a_step_and_the_rounding_of_its_minimum(x in groups()) {
        let mut out = [POISON_1];
        q4_1_row(&x, &mut out).unwrap();
        let (lo, hi) = x.iter().fold((f64::MAX, f64::MIN), |(lo, hi), &v| (lo.min(v.into()), hi.max(v.into())));
        let bound = (hi - lo) / 15.0 + (out[0].min.to_f64() - lo).abs() + 2f64.powi(-24);
        for (x, w) in x.iter().zip(decode_1(&out[0])) {
            prop_assert!((f64::from(*x) - w).abs() <= bound * (1.0 + 1e-6), "{x:e} became {w:e}");
        }
    }

    #[test]
    fn doubling_a_row_doubles_its_blocks(x in groups_at(0..10)) {
        // Away from the ends of f16 every rule commutes with powers of two.
        for writer in [q4_row, q4_row_max, q4_row_fit] {
            let (mut one, mut two) = ([POISON_0], [POISON_0]);
            writer(&x, &mut one).unwrap();
            writer(&x.map(|v| 2.0 * v), &mut two).unwrap();
            prop_assert_eq!(one[0].codes, two[0].codes);
            prop_assert_eq!(one[0].scale.to_f32() * 2.0, two[0].scale.to_f32());
        }
    }

    #[test]
    fn quarters_of_the_biggest_weight_are_stored_without_error(
        quarters in prop::array::uniform32(-4..=4i8), at in 0..32usize, max in 0x0c00..0x7c00u16, sign: bool,
    ) {
        // `max` runs over the bits of all f16s from 2^-12 up.
        let mut quarters = quarters;
        quarters[at] = if sign { 4 } else { -4 };
        let x = quarters.map(|q| f16::from_bits(max).to_f32() / 4.0 * f32::from(q));
        let mut out = [POISON_0];
        q4_row_fit(&x, &mut out).unwrap();
        prop_assert_eq!(decode_0(&out[0]), x.map(f64::from));
    }

    #[test]
    fn a_group_does_not_depend_on_the_others(x in prop::array::uniform3(groups()), at in 0..3usize) {
        for writer in [q4_row, q4_row_max, q4_row_fit] {
            let (mut row, mut one) = ([POISON_0; 3], [POISON_0]);
            writer(x.as_flattened(), &mut row).unwrap();
            writer(&x[at], &mut one).unwrap();
            prop_assert_eq!(row[at], one[0]);
        }
    }

    #[test]
    fn full_range_blocks_come_back_unchanged(codes in any::<[u8; 16]>(), e in -13..14i32) {
        // With a code of 0 (that is -8) the max rule finds the scale again, and a full Q4_1 both parameters.
        let mut codes = codes;
        codes[5] = 0xf0;
        let scale = f16::from_f32(2f32.powi(e));
        let block = BlockQ4_0 { scale, codes };
        let mut out = [POISON_0];
        q4_row_max(&block.dequantize(), &mut out).unwrap();
        prop_assert_eq!(out[0], block);
        let block = BlockQ4_1 { scale, min: f16::from_f32(-3.0 * scale.to_f32()), codes };
        let mut out = [POISON_1];
        q4_1_row(&block.dequantize(), &mut out).unwrap();
        prop_assert_eq!(out[0], block);
    }

    #[test]
    fn affine_groups_are_off_by_a_step_at_most(x in prop::array::uniform4(groups()), size in 0..3usize) {
        let group = [GroupSize::G32, GroupSize::G64, GroupSize::G128][size];
        let n = group.weights();
        let (mut packed, mut scales, mut biases) = ([0; 16], [f32::NAN; 4], [f32::NAN; 4]);
        let (scales, biases) = (&mut scales[..128 / n], &mut biases[..128 / n]);
        affine::quantize_row(x.as_flattened(), group, &mut packed, scales, biases).unwrap();
        let mut out = [f32::NAN; 128];
        affine::dequantize_row(&packed, scales, biases, group, &mut out).unwrap();
        for (i, (x, w)) in x.as_flattened().chunks(n).zip(out.chunks(n)).enumerate() {
            // Moving zero onto a code changes the step by up to a half of itself (q0 = 1).
            let step = f64::from(scales[i]).abs();
            let (lo, hi) = x.iter().fold((f32::MAX, f32::MIN), |(lo, hi), &v| (lo.min(v), hi.max(v)));
            let least = (f64::from(hi) - f64::from(lo)) / 15.0;
            let short = (least * 15.0 - step * 15.0).max(0.0);
            let bound = step / 2.0 + short + 1e-5 * amax(x);
            for (x, w) in x.iter().zip(w) {
                let error = (f64::from(*x) - f64::from(*w)).abs();
                prop_assert!(error <= bound, "{x:e} became {w:e}: {error:e} of {bound:e}");
            }
        }
    }
}
