//! Weights of every format against f32 activations.

use crate::support::{
    FLOAT_ONLY, Format, INT8, Rng, any_format, assert_same, assert_within, everywhere, plain, property,
    relative, run, run_everywhere,
};
use halfbyte_cpu_kernels::{Isa, Matrix, PackedMatrix, Weights, gemm_f32, matvec_f32, reference};
use proptest::prelude::*;

fn formats() -> Vec<Format> {
    [&FLOAT_ONLY[..], &INT8[..]].concat()
}

/// The outputs on every path, which must have the same bits for a packed matrix, where the format can be packed.
fn gemm_everywhere(w: &Matrix<'_>, x: &[f32], tokens: usize) -> Vec<f32> {
    let n = tokens * w.rows();
    let expected = run_everywhere(n, |ctx, y| gemm_f32(ctx, w, x, tokens, y).unwrap());
    if w.supports_packing() {
        let packed = PackedMatrix::new(plain(), w).unwrap();
        let y = run_everywhere(n, |ctx, y| gemm_f32(ctx, &packed.as_matrix(), x, tokens, y).unwrap());
        assert_same(&y, &expected, "packed");
    }
    expected
}

/// Any shape; columns of the plain float formats any number from 1 on, of the others whole groups.
fn shapes() -> impl Strategy<Value = (u64, Format, usize, usize, usize)> {
    let shape = (any::<u64>(), any_format(&formats()), 1usize..40, 1usize..100, 0usize..21);
    shape.prop_map(|(seed, format, rows, size, tokens)| {
        let group = format.group();
        let cols = if group == 1 { size } else { group * (1 + size % if group == 256 { 3 } else { 5 }) };
        (seed, format, rows, cols, tokens)
    })
}

#[test]
fn every_path_is_within_the_bound_of_the_f64_twin_and_equal_to_scalar() {
    property(shapes(), |(seed, format, rows, cols, tokens)| {
        let mut rng = Rng(seed);
        let stored = format.random(rows, cols, &mut rng);
        let w = stored.rows(0, rows, cols);
        let x = rng.f32s(tokens * cols, 4.0);
        let y = gemm_everywhere(&w, &x, tokens);
        let bound = relative((cols.div_ceil(2).min(128) + 2 * cols.div_ceil(256) + 1) as f64);
        for (x, y) in x.chunks(cols).zip(y.chunks(rows)) {
            for (&got, (want, magnitude)) in y.iter().zip(reference::matvec_f32(&w, x)) {
                assert_within(got, want, bound * magnitude, "gemm_f32");
            }
        }
    });
}

/// Field case: the same request alone, in a batch, with other thread counts; also the same row beside others.
#[test]
fn bits_depend_on_the_row_and_the_token_alone() {
    property((shapes(), any::<u64>()), |((seed, format, rows, cols, tokens), cut)| {
        let mut rng = Rng(seed);
        let stored = format.random(rows, cols, &mut rng);
        let w = stored.rows(0, rows, cols);
        let x = rng.f32s(tokens * cols, 4.0);
        let whole = gemm_everywhere(&w, &x, tokens);
        for ctx in everywhere().filter(|ctx| ctx.pool.threads() == 2) {
            for token in 0..tokens {
                let y = run(ctx, rows, |ctx, y| matvec_f32(ctx, &w, &x[token * cols..][..cols], y).unwrap());
                assert_same(&y, &whole[token * rows..][..rows], "a token alone");
            }
            let first = cut as usize % (tokens + 1);
            let (a, b) = x.split_at(first * cols);
            for (x, at, n) in [(a, 0, first), (b, first, tokens - first)] {
                let y = run(ctx, n * rows, |ctx, y| gemm_f32(ctx, &w, x, n, y).unwrap());
                assert_same(&y, &whole[at * rows..][..n * rows], "a chunk of the tokens");
            }
            let row = (cut >> 32) as usize % rows;
            let one = stored.rows(row, 1, cols);
            let y = run(ctx, tokens, |ctx, y| gemm_f32(ctx, &one, &x, tokens, y).unwrap());
            let column: Vec<f32> = whole.chunks(rows).map(|y| y[row]).collect();
            assert_same(&y, &column, "a row alone");
        }
    });
}

/// The order of the additions is documented, so the bits can be computed without the kernels.
#[test]
fn sums_run_in_the_documented_order() {
    let seed = 4;
    println!("seed {seed}");
    let mut rng = Rng(seed);
    for cols in [1, 2, 16, 41, 256, 257, 333, 770] {
        let (rows, tokens) = (21, 19);
        let (w, x) = (rng.f32s(rows * cols, 4.0), rng.f32s(tokens * cols, 4.0));
        let y = gemm_everywhere(&Matrix::new(Weights::F32(&w), rows, cols).unwrap(), &x, tokens);
        for (i, y) in y.into_iter().enumerate() {
            let mut total = 0f32;
            for block in (0..cols).step_by(256) {
                let mut sums = [0f32; 2];
                for k in block..cols.min(block + 256) {
                    sums[k % 2] = w[i % rows * cols + k].mul_add(x[i / rows * cols + k], sums[k % 2]);
                }
                total += sums[0];
                total += sums[1];
            }
            assert_eq!(y.to_bits(), total.to_bits(), "{cols} columns, output {i}");
        }
    }
}

/// Sums of small integers have no rounding at all, so any order gives the same: the exact i64 sum.
#[test]
fn sums_of_small_integers_are_exact() {
    let seed = 3;
    println!("seed {seed}");
    let mut rng = Rng(seed);
    for cols in [1, 15, 16, 17, 31, 33, 250, 600] {
        let (rows, tokens) = (21, 7);
        let w: Vec<f32> = (0..rows * cols).map(|_| f32::from(rng.byte() as i8)).collect();
        let x: Vec<f32> = (0..tokens * cols).map(|_| f32::from(rng.byte() as i8)).collect();
        let y = gemm_everywhere(&Matrix::new(Weights::F32(&w), rows, cols).unwrap(), &x, tokens);
        for (i, y) in y.into_iter().enumerate() {
            let (x, w) = (&x[i / rows * cols..][..cols], &w[i % rows * cols..][..cols]);
            let sum: i64 = x.iter().zip(w).map(|(&x, &w)| x as i64 * w as i64).sum();
            assert_eq!(y, sum as f32);
        }
    }
}

#[test]
fn decoded_rows_are_the_formula_rounded_once() {
    let seed = 5;
    println!("seed {seed}");
    let mut rng = Rng(seed);
    for format in formats() {
        let (rows, cols) = (3, if format.group() == 1 { 37 } else { 3 * format.group() });
        let stored = format.random(rows, cols, &mut rng);
        let w = stored.rows(0, rows, cols);
        for row in 0..rows {
            for isa in Isa::available() {
                let mut out = vec![f32::NAN; cols];
                w.decode_row(isa, row, &mut out).unwrap();
                for (col, &got) in out.iter().enumerate() {
                    // In f64 the formula is exact: an f32 scale by a code takes 28 bits, and a bias near it fits too.
                    assert_eq!(
                        got,
                        reference::weight(&w, row, col) as f32,
                        "{format:?} ({row}, {col}) on {isa}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_nan_makes_its_token_nan_and_no_other() {
    let seed = 13;
    println!("seed {seed}");
    for format in formats() {
        let mut rng = Rng(seed);
        let (rows, cols, tokens) = (18, if format.group() == 1 { 35 } else { format.group() }, 8);
        let stored = format.random(rows, cols, &mut rng);
        let w = stored.rows(0, rows, cols);
        let mut x = rng.f32s(tokens * cols, 4.0);
        let clean = gemm_everywhere(&w, &x, tokens);
        x[6 * cols + cols - 1] = f32::NAN;
        let y = gemm_everywhere(&w, &x, tokens);
        for token in 0..tokens {
            let y = &y[token * rows..][..rows];
            if token == 6 {
                assert!(y.iter().all(|y| y.is_nan()), "{format:?}");
            } else {
                assert_same(y, &clean[token * rows..][..rows], "a token beside a NaN");
            }
        }
    }
}

#[test]
fn empty_shapes() {
    let none = Matrix::new(Weights::F32(&[]), 0, 5).unwrap();
    assert_eq!(gemm_everywhere(&none, &[1.0; 10], 2), Vec::<f32>::new());
    let no_columns = Matrix::new(Weights::F32(&[]), 3, 0).unwrap();
    assert_eq!(gemm_everywhere(&no_columns, &[], 2), [0.0; 6]);
}
