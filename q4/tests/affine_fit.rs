//! Affine groups by least squares: never worse than MLX's rule as stored, and what they refuse.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{config, groups_at};
use half::{bf16, f16};
use halfbyte_q4::Error;
use halfbyte_q4::affine::{
    AffineScale, GroupSize, dequantize_row, quantize_row, quantize_row_fit, quantize_row_weighted, unpack8,
};
use proptest::prelude::*;

const SIZES: [GroupSize; 3] = [GroupSize::G32, GroupSize::G64, GroupSize::G128];

/// Weights of a row: whole groups of every size.
const ROW: usize = 128;

/// A row as stored.
#[derive(Debug, Clone, PartialEq)]
struct Row<S> {
    packed: Vec<u32>,
    scales: Vec<S>,
    biases: Vec<S>,
}

impl<S: AffineScale> Row<S> {
    /// Bytes that no quantizer writes, to find unwritten output.
    fn poison(size: GroupSize) -> Self {
        let poison = vec![S::from_f32(f32::NAN); ROW / size.weights()];
        Self { packed: vec![0xa5a5_a5a5; ROW / 8], scales: poison.clone(), biases: poison }
    }

    fn rule(x: &[f32], size: GroupSize) -> Self {
        let mut row = Self::poison(size);
        quantize_row(x, size, &mut row.packed, &mut row.scales, &mut row.biases).unwrap();
        row
    }

    fn fit(x: &[f32], size: GroupSize) -> Self {
        let mut row = Self::poison(size);
        quantize_row_fit(x, size, &mut row.packed, &mut row.scales, &mut row.biases).unwrap();
        row
    }

    /// And how many groups had no importance.
    fn weighted(x: &[f32], importance: &[f32], size: GroupSize) -> (Self, usize) {
        let mut row = Self::poison(size);
        let Self { packed, scales, biases } = &mut row;
        let report = quantize_row_weighted(x, importance, size, packed, scales, biases).unwrap();
        (row, report.uniform_groups)
    }

    /// The weights from the formula, in f64.
    fn decode(&self) -> Vec<f64> {
        let size = ROW / self.scales.len();
        let codes = self.packed.iter().flat_map(|&word| unpack8(word));
        let of = |v: S| f64::from(v.to_f32());
        codes
            .enumerate()
            .map(|(i, q)| of(self.scales[i / size]) * f64::from(q) + of(self.biases[i / size]))
            .collect()
    }

    fn bytes(&self) -> Vec<u8> {
        [
            bytemuck::cast_slice(&self.packed),
            bytemuck::cast_slice(&self.scales),
            bytemuck::cast_slice(&self.biases),
        ]
        .concat()
    }

    /// What MLX decodes, in the type of the parameters, is finite.
    fn decodes_finite(&self, size: GroupSize) -> bool {
        let mut out = [f32::NAN; ROW];
        dequantize_row(&self.packed, &self.scales, &self.biases, size, &mut out).unwrap();
        out.iter().all(|w| w.is_finite())
    }
}

/// Weighted squared errors of the groups of a row.
fn errors(x: &[f32], importance: &[f32], row: &[f64], size: GroupSize) -> Vec<f64> {
    let squares = (0..ROW).map(|i| f64::from(importance[i]) * (f64::from(x[i]) - row[i]).powi(2));
    squares.collect::<Vec<f64>>().chunks(size.weights()).map(|group| group.iter().sum()).collect()
}

fn rows(exponents: std::ops::Range<i32>) -> impl Strategy<Value = Vec<f32>> {
    let one_magnitude = exponents.prop_flat_map(|e| prop::collection::vec(groups_at(e..e + 1), ROW / 32));
    one_magnitude.prop_map(|groups| groups.concat())
}

/// Importances over many orders of magnitude, a fifth of them 0.
fn importances() -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(prop_oneof![1 => Just(0.0f32), 4 => (-20.0f32..20.0).prop_map(f32::exp2)], ROW)
}

fn never_worse<S: AffineScale>(x: &[f32], importance: &[f32]) {
    for size in SIZES {
        let rule = Row::<S>::rule(x, size).decode();
        let (weighted, uniform) = Row::<S>::weighted(x, importance, size);
        assert_eq!(
            uniform,
            importance.chunks(size.weights()).filter(|g| g.iter().all(|&v| v == 0.0)).count()
        );
        let fit = Row::<S>::fit(x, size);
        for (row, importance) in [(weighted, importance), (fit, [1.0; ROW].as_slice())] {
            let ours = errors(x, importance, &row.decode(), size);
            let theirs = errors(x, importance, &rule, size);
            assert!(ours.iter().zip(&theirs).all(|(a, b)| a <= b), "{size:?}: {ours:?} for {theirs:?}");
            assert!(row.decodes_finite(size));
        }
    }
}

fn equal_is_unweighted<S: AffineScale + PartialEq>(x: &[f32], v: f32) {
    for size in SIZES {
        let fit = Row::<S>::fit(x, size);
        assert_eq!(Row::weighted(x, &[v; ROW], size), (fit.clone(), 0));
        assert_eq!(Row::weighted(x, &[0.0; ROW], size), (fit, ROW / size.weights()));
    }
}

fn doubling_doubles<S: AffineScale>(x: &[f32], importance: &[f32]) {
    let two: Vec<f32> = x.iter().map(|v| 2.0 * v).collect();
    for size in SIZES {
        let [one, two] = [x, &two].map(|x| Row::<S>::weighted(x, importance, size).0.decode());
        assert!(one.iter().map(|w| 2.0 * w).eq(two), "{size:?}");
    }
}

proptest! {
    #![proptest_config(config(0x0419, 150))]

    #[test]
    fn never_worse_than_the_rule_as_stored(x in rows(-40..10), importance in importances()) {
        never_worse::<bf16>(&x, &importance);
        never_worse::<f16>(&x, &importance);
        never_worse::<f32>(&x, &importance);
    }

    #[test]
    fn equal_importances_change_nothing(x in rows(-40..10), v in 1e-30f32..1e30) {
        equal_is_unweighted::<bf16>(&x, v);
        equal_is_unweighted::<f16>(&x, v);
        equal_is_unweighted::<f32>(&x, v);
    }

    #[test]
    fn doubling_a_row_doubles_it(x in rows(0..9), importance in importances()) {
        // Not in f16, whose exponents end near a bias that is hardly needed.
        doubling_doubles::<bf16>(&x, &importance);
        doubling_doubles::<f32>(&x, &importance);
    }

    #[test]
    fn a_group_does_not_depend_on_the_others(x in rows(-10..9), importance in importances()) {
        let (row, _) = Row::<bf16>::weighted(&x, &importance, GroupSize::G32);
        for (i, group) in x.chunks(32).enumerate() {
            let (mut packed, mut scale, mut bias) = ([0; 4], [bf16::NAN], [bf16::NAN]);
            let importance = &importance[32 * i..][..32];
            let _ = quantize_row_weighted(group, importance, GroupSize::G32, &mut packed, &mut scale, &mut bias);
            prop_assert_eq!(&row.packed[4 * i..][..4], packed);
            prop_assert_eq!((row.scales[i], row.biases[i]), (scale[0], bias[0]));
        }
    }
}

/// The slope and offset of least squares for the codes of a group, from the normal equations.
#[test]
fn an_unrounded_fit_is_a_least_squares_line() {
    let x: Vec<f32> = (0..ROW).map(|i| ((i * i + 3 * i) as f32).sin()).collect();
    let importance: Vec<f32> = (0..ROW).map(|i| 1.0 + (i % 7) as f32).collect();
    let (row, _) = Row::<f32>::weighted(&x, &importance, GroupSize::G128);
    let q: Vec<f64> = row.packed.iter().flat_map(|&word| unpack8(word)).map(f64::from).collect();
    let sum = |f: &dyn Fn(usize) -> f64| (0..ROW).map(|i| f64::from(importance[i]) * f(i)).sum::<f64>();
    let (w, wq, wqq) = (sum(&|_| 1.0), sum(&|i| q[i]), sum(&|i| q[i] * q[i]));
    let (wx, wxq) = (sum(&|i| f64::from(x[i])), sum(&|i| f64::from(x[i]) * q[i]));
    let slope = (w * wxq - wx * wq) / (w * wqq - wq * wq);
    let offset = (wx - slope * wq) / w;
    assert!((f64::from(row.scales[0]) - slope).abs() <= 1e-7 * slope.abs());
    assert!((f64::from(row.biases[0]) - offset).abs() <= 1e-7 * offset.abs());
}

#[test]
fn weights_on_a_line_come_back_exactly() {
    // Zero is none of the weights and no whole number of steps away, which MLX's rule would insist on.
    let x: Vec<f32> = (0..ROW).map(|i| 0.375 * ((i * 7) % 16) as f32 + 2.0625).collect();
    for size in SIZES {
        let decoded: Vec<f32> = Row::<bf16>::fit(&x, size).decode().iter().map(|&w| w as f32).collect();
        assert_eq!(decoded, x);
        assert_ne!(Row::<bf16>::rule(&x, size).decode(), Row::<bf16>::fit(&x, size).decode());
    }
}

fn field_cases_in<S: AffineScale>(limit: f32) {
    let ramp: Vec<f32> = (0..ROW).map(|i| i as f32).collect();
    let opposite: Vec<f32> = (0..ROW).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
    let with =
        |v: f32, rest: f32| (0..ROW).map(|i| if i % 128 == 5 { v } else { rest }).collect::<Vec<f32>>();
    let rows = [
        vec![0.0; ROW],
        vec![-0.0; ROW],
        vec![1e-30; ROW],
        vec![f32::from_bits(1); ROW],
        vec![0.5; ROW],
        vec![-0.7; ROW],
        vec![limit; ROW],
        vec![-limit; ROW],
        with(1.0, -0.95),
        with(-1.0, 0.95),
        with(limit, 0.0),
        with(-limit / 2.0, limit / 4.0),
        opposite,
        ramp.clone(),
    ];
    for x in rows {
        never_worse::<S>(&x, &ramp);
    }
    for v in [0.0, -0.0] {
        assert!(SIZES.iter().all(|&size| Row::<S>::fit(&[v; ROW], size).decode().iter().all(|&w| w == 0.0)));
    }
    for size in SIZES {
        assert!(Row::<S>::fit(&[0.5; ROW], size).decode().iter().all(|&w| w == 0.5));
        let outlier = with(1.0, -0.95);
        let errors = errors(&outlier, &[1.0; ROW], &Row::<S>::fit(&outlier, size).decode(), size);
        assert!(errors.iter().all(|&e| e <= 0.0025), "{size:?}: {errors:?}");
    }
}

#[test]
fn field_cases() {
    field_cases_in::<bf16>(1e37);
    field_cases_in::<f16>(32_000.0);
    field_cases_in::<f32>(1e37);
}

#[test]
fn importance_moves_the_error_to_where_it_matters_less() {
    let x: Vec<f32> = (0..ROW).map(|i| ((i * i + 3 * i) as f32).sin()).collect();
    for size in SIZES {
        let mut importance = [1.0; ROW];
        importance[7] = 1e6;
        let off = |row: Row<f16>| (row.decode()[7] - f64::from(x[7])).abs();
        assert!(off(Row::weighted(&x, &importance, size).0) < off(Row::fit(&x, size)), "{size:?}");
        // One weight that matters: all that is left is the rounding of its parameters.
        let only: Vec<f32> = (0..ROW).map(|i| f32::from(u8::from(i == 7))).collect();
        assert!(off(Row::weighted(&x, &only, size).0) <= 2f64.powi(-11));
    }
}

#[test]
fn refusals_name_the_place_and_write_nothing() {
    let size = GroupSize::G64;
    let expect = |x: &[f32], importance: &[f32], words: usize, error: &str| {
        let mut row = Row::<f16>::poison(size);
        row.packed.truncate(words);
        let before = row.bytes();
        let Row { packed, scales, biases } = &mut row;
        let got = quantize_row_weighted(x, importance, size, packed, scales, biases).unwrap_err();
        assert!(got.to_string().contains(error), "{got}");
        if !matches!(got, Error::Importance { .. }) && importance.len() == x.len() {
            assert_eq!(
                quantize_row_fit(x, size, packed, scales, biases).unwrap_err().to_string(),
                got.to_string()
            );
        }
        assert_eq!(row.bytes(), before);
    };
    let (x, good) = ([0.5; ROW], [1.0; ROW]);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0] {
        let mut importance = good;
        importance[100] = bad;
        expect(&x, &importance, 16, "importance 100 is");
    }
    expect(&x, &good[..127], 16, "importance: expected length 128, got 127");
    expect(&x, &good, 15, "packed: expected length 16, got 15");
    expect(&x[..100], &good[..100], 16, "100 weights is not a whole number of groups of 64");
    expect(&x[..64], &good[..64], 8, "scales: expected length 1, got 2");
    for (v, message) in [
        (f32::NAN, "weight 90 of the row (group 1) is NaN"),
        (f32::INFINITY, "weight 90 of the row (group 1) is inf"),
        (1e5, "group 1 (weights from 64) needs a bias of 100000, the stored type ends at 65504"),
    ] {
        let mut x = x;
        x[90] = v;
        expect(&x, &good, 16, message);
    }
}
