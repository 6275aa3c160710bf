//! Products of groups of tokens, and the sum of what chosen experts give.

use crate::support::{
    Format, INT8, Parameter, Rng, any_format, assert_same, everywhere, plain, property, run, run_everywhere,
};
use halfbyte_cpu_kernels::{
    Chosen, Context, Error, Matrix, PackedMatrix, Precision, add_chosen, gemm_f32, gemm_f32_grouped,
    gemm_int8, gemm_int8_grouped, quantize_activations,
};
use halfbyte_q8::Activations;
use proptest::prelude::*;

/// Groups of any sizes, empty ones and single tokens among them, over `rows` rows of activations.
fn groups(count: usize, rows: usize, rng: &mut Rng) -> Vec<Vec<usize>> {
    let group = |rng: &mut Rng| {
        let tokens = rng.pick(&[0, 1, 1, 2, 3, 5, 8, 11, 17]);
        (0..tokens).map(|_| rng.bits() as usize % rows).collect()
    };
    (0..count).map(|_| group(rng)).collect()
}

/// What one product a group gives, on one thread without vectors.
fn one_by_one(
    matrices: &[Matrix<'_>],
    groups: &[Vec<usize>],
    product: impl Fn(&Matrix<'_>, usize, &mut [f32]),
) -> Vec<f32> {
    let mut expected = Vec::new();
    for (w, tokens) in matrices.iter().zip(groups) {
        for &token in tokens {
            let mut y = vec![f32::NAN; w.rows()];
            product(w, token, &mut y);
            expected.extend(y);
        }
    }
    expected
}

fn quantized(ctx: Context<'_>, precision: Precision, x: &[f32], rows: usize) -> Activations {
    let mut out = Activations::with_precision(precision);
    quantize_activations(ctx, x, rows, x.len() / rows, &mut out).unwrap();
    out
}

fn pairs<'a>(matrices: &[Matrix<'a>], groups: &'a [Vec<usize>]) -> Vec<(Matrix<'a>, &'a [usize])> {
    matrices.iter().copied().zip(groups.iter().map(Vec::as_slice)).collect()
}

#[test]
fn a_group_gets_what_its_tokens_get_alone() {
    let shapes = (any::<u64>(), any_format(&INT8), 0usize..6, 1usize..40, 1usize..4);
    property(shapes, |(seed, format, count, rows, col_groups)| {
        let cols = col_groups * format.group();
        let mut rng = Rng(seed);
        let tokens = 1 + rng.bits() as usize % 9;
        let stored = format.random(rows * count.max(1), cols, &mut rng);
        let matrices: Vec<_> = (0..count).map(|i| stored.rows(i * rows, rows, cols)).collect();
        let groups = groups(count, tokens, &mut rng);
        let x = rng.f32s(tokens * cols, 4.0);
        for precision in [Precision::Int8, Precision::Auto] {
            let expected = one_by_one(&matrices, &groups, |w, token, y| {
                let x = quantized(plain(), precision, &x[token * cols..][..cols], 1);
                gemm_int8(plain(), w, &x, y).unwrap();
            });
            let x = quantized(plain(), precision, &x, tokens);
            let check = |matrices: &[Matrix<'_>], what: &str| {
                let y = run_everywhere(expected.len(), |ctx, y| {
                    gemm_int8_grouped(ctx, &pairs(matrices, &groups), &x, y).unwrap();
                });
                assert_same(&y, &expected, what);
            };
            check(&matrices, "in place");
            let packed = PackedMatrix::pack_all(plain(), &matrices).unwrap();
            let packed: Vec<_> = packed.iter().map(PackedMatrix::as_matrix).collect();
            check(&packed, "packed");
            // Some packed, and others not.
            let mixed: Vec<_> = (0..count).map(|i| [&matrices, &packed][i % 2][i]).collect();
            check(&mixed, "mixed");
        }
        let expected = one_by_one(&matrices, &groups, |w, token, y| {
            gemm_f32(plain(), w, &x[token * cols..][..cols], 1, y).unwrap();
        });
        let y = run_everywhere(expected.len(), |ctx, y| {
            gemm_f32_grouped(ctx, &pairs(&matrices, &groups), &x, tokens, y).unwrap();
        });
        assert_same(&y, &expected, "f32");
    });
}

#[test]
fn groups_of_matrices_in_several_formats_are_multiplied() {
    let mut rng = Rng(5);
    let stored = [Format::Q4_0, Format::Q8_0, Format::Affine(32, Parameter::F32)]
        .map(|format| format.random(20, 64, &mut rng));
    let matrices: Vec<_> = stored.iter().map(|stored| stored.rows(0, 20, 64)).collect();
    let groups = [vec![0, 2], vec![1], vec![2, 1, 0]];
    let x = quantized(plain(), Precision::Auto, &rng.f32s(3 * 64, 1.0), 3);
    let mut expected = Vec::new();
    for (w, tokens) in matrices.iter().zip(&groups) {
        let mut all = vec![0.0; 3 * 20];
        gemm_int8(plain(), w, &x, &mut all).unwrap();
        tokens.iter().for_each(|&token| expected.extend(&all[token * 20..][..20]));
    }
    let packed: Vec<_> = matrices.iter().map(|w| PackedMatrix::new(plain(), w).unwrap()).collect();
    let packed: Vec<_> = packed.iter().map(PackedMatrix::as_matrix).collect();
    for ctx in everywhere() {
        for matrices in [&matrices, &packed] {
            let y = run(ctx, expected.len(), |ctx, y| {
                gemm_int8_grouped(ctx, &pairs(matrices, &groups), &x, y).unwrap();
            });
            assert_same(&y, &expected, "several formats");
        }
    }
}

#[test]
fn chosen_rows_are_added_in_their_order() {
    property(
        (any::<u64>(), 1usize..70, 0usize..5, 1usize..5, 1usize..9),
        |(seed, width, tokens, k, rows)| {
            let mut rng = Rng(seed);
            let (x, before) = (rng.f32s(rows * width, 3.0), rng.f32s(tokens * width, 3.0));
            let weights = rng.f32s(tokens * k, 1.0);
            let chosen: Vec<_> =
                weights.iter().map(|&weight| Chosen { row: rng.bits() as usize % rows, weight }).collect();
            let mut expected = before.clone();
            for (t, chosen) in chosen.chunks(k).enumerate() {
                for i in 0..width {
                    for chosen in chosen {
                        let product = chosen.weight * x[chosen.row * width + i];
                        expected[t * width + i] += product;
                    }
                }
            }
            for ctx in everywhere() {
                let mut y = before.clone();
                add_chosen(ctx, &chosen, k, &x, width, &mut y).unwrap();
                assert_same(&y, &expected, "weighted sums");
            }
        },
    );
}

#[test]
fn what_is_wrong_with_groups_is_named() {
    let stored = Format::Q4_0.random(48, 64, &mut Rng(1));
    let [a, b] = [stored.rows(0, 16, 64), stored.rows(16, 32, 64)];
    let x = quantized(plain(), Precision::Int8, &[1.0; 128], 2);
    let refusal = |groups: &[(Matrix<'_>, &[usize])], n: usize| {
        let mut y = vec![7.0; n];
        let error = gemm_int8_grouped(plain(), groups, &x, &mut y).unwrap_err();
        let mut y_f32 = vec![7.0; n];
        let same = gemm_f32_grouped(plain(), groups, &[1.0; 128], 2, &mut y_f32).unwrap_err();
        assert_eq!((error.to_string(), &y, &y_f32), (same.to_string(), &vec![7.0; n], &vec![7.0; n]));
        error.to_string()
    };
    assert_eq!(refusal(&[(a, &[0, 1])], 31), "y: expected 32 elements, got 31");
    assert_eq!(refusal(&[(a, &[0]), (b, &[1])], 48), "rows of a group's matrix: expected 16, got 32");
    assert_eq!(refusal(&[(a, &[2])], 16), "rows of the activations of a group: expected 3, got 2");
    let float = Format::F16.random(16, 64, &mut Rng(1));
    let error = gemm_int8_grouped(plain(), &[(float.rows(0, 16, 64), &[0])], &x, &mut [0.0; 16]).unwrap_err();
    assert!(
        error.to_string().starts_with("gemm_int8_grouped does not support F16; supported: Q8_0"),
        "{error}"
    );
    let narrow = quantized(plain(), Precision::Int8, &[1.0; 64], 2);
    let error = gemm_int8_grouped(plain(), &[(a, &[0])], &narrow, &mut [0.0; 16]).unwrap_err();
    assert_eq!(error.to_string(), "columns of the activations: expected 64, got 32");

    let sum = |chosen: &[Chosen], x: &[f32], y: &mut [f32]| add_chosen(plain(), chosen, 1, x, 4, y);
    let one = Chosen { row: 1, weight: 1.0 };
    assert_eq!(
        sum(&[one], &[0.0; 4], &mut [0.0; 4]),
        Err(Error::Shape { what: "rows of x", expected: 2, got: 1 })
    );
    assert_eq!(
        sum(&[one], &[0.0; 8], &mut [0.0; 8]),
        Err(Error::Length { what: "chosen", expected: 2, got: 1 })
    );
    assert!(sum(&[one], &[0.0; 7], &mut [0.0; 4]).is_err());
}
