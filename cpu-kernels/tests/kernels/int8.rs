//! Quantized weights against int8 activations.

use crate::ggml::Ggml;
use crate::support::{
    Format, INT8, Parameter, Rng, any_format, assert_same, assert_within, everywhere, property, relative,
    run, run_everywhere,
};
use halfbyte_cpu_kernels::{Matrix, PackedMatrix, Weights, gemm_int8, matvec_int8, reference};
use halfbyte_q8::{Activations, Group, Precision};
use proptest::prelude::*;

fn quantized(precision: Precision, x: &[f32], rows: usize, cols: usize) -> Activations {
    let mut out = Activations::with_precision(precision);
    out.quantize(x, rows, cols).unwrap();
    out
}

/// Random inputs, a few of them outliers.
fn inputs(n: usize, rng: &mut Rng) -> Vec<f32> {
    let mut x = rng.f32s(n, 4.0);
    for _ in 0..n / 50 {
        let at = rng.bits() as usize % n;
        x[at] *= rng.pick(&[8.0, -40.0, 1000.0]);
    }
    x
}

fn any_precision() -> impl Strategy<Value = Precision> {
    prop::sample::select(vec![Precision::Int8, Precision::Auto, Precision::Int16])
}

/// Activations of scale 1 whose codes come from `code`: products with weights of scale 1 are integers.
fn integers(precision: Precision, rows: usize, cols: usize, mut code: impl FnMut() -> i16) -> Activations {
    let mut x = Activations::with_precision(precision);
    x.resize(rows, cols).unwrap();
    let mut part = x.part_mut();
    for i in 0..part.groups() {
        part.set(i, &Group { codes: [0; 32].map(|_| code()), scale: 1.0 });
    }
    x
}

/// The outputs on every path, which must have the same bits for the packed matrix, whichever path packed it.
fn gemm_everywhere(w: &Matrix<'_>, x: &Activations) -> Vec<f32> {
    let n = x.rows() * w.rows();
    let expected = run_everywhere(n, |ctx, y| gemm_int8(ctx, w, x, y).unwrap());
    for ctx in everywhere() {
        let packed = PackedMatrix::new(ctx, w).unwrap();
        let y = run(ctx, n, |ctx, y| gemm_int8(ctx, &packed.as_matrix(), x, y).unwrap());
        assert_same(&y, &expected, &format!("packed, {} on {} threads", ctx.isa, ctx.pool.threads()));
    }
    expected
}

/// Any shape: rows around multiples of 16, from one group to an odd or even number, no token to 20.
fn shapes() -> impl Strategy<Value = (u64, Format, Precision, usize, usize, usize)> {
    (any::<u64>(), any_format(&INT8), any_precision(), 1usize..40, 1usize..6, 0usize..21)
}

#[test]
fn every_path_is_within_the_bound_of_the_f64_twin_and_equal_to_scalar() {
    property(shapes(), |(seed, format, precision, rows, groups, tokens)| {
        let cols = groups * format.group();
        let mut rng = Rng(seed);
        let stored = format.random(rows, cols, &mut rng);
        let w = stored.rows(0, rows, cols);
        let x = quantized(precision, &inputs(tokens * cols, &mut rng), tokens, cols);
        let y = gemm_everywhere(&w, &x);
        let fmas_a_group = match format {
            Format::Q8_0 | Format::Q4_0 => 1,
            // One for each half, and for a minimum of each.
            Format::Ggml(Ggml::Q2K) => 4,
            _ => 2,
        };
        // The sum of 16-bit activations by 8-bit weights may have more bits than f32.
        let eight_bits = matches!(format, Format::Q8_0 | Format::Ggml(_));
        let rounded = u8::from(eight_bits && precision != Precision::Int8);
        let bound =
            relative((cols / 32).div_ceil(2) as f64 * f64::from(fmas_a_group) + 2.0 + f64::from(rounded));
        for (token, y) in y.chunks(rows).enumerate() {
            for (&got, (want, magnitude)) in y.iter().zip(reference::matvec_int8(&w, &x, token)) {
                assert_within(got, want, bound * magnitude, "gemm_int8");
            }
        }
    });
}

/// Field case: the same request alone, in a batch, with other thread counts; also the same row beside others.
#[test]
fn bits_depend_on_the_row_and_the_token_alone() {
    property((shapes(), any::<u64>()), |((seed, format, precision, rows, groups, tokens), cut)| {
        let cols = groups * format.group();
        let mut rng = Rng(seed);
        let stored = format.random(rows, cols, &mut rng);
        let w = stored.rows(0, rows, cols);
        let x = inputs(tokens * cols, &mut rng);
        let whole = gemm_everywhere(&w, &quantized(precision, &x, tokens, cols));
        for ctx in everywhere().filter(|ctx| ctx.pool.threads() == 2) {
            for token in 0..tokens {
                let alone = quantized(precision, &x[token * cols..][..cols], 1, cols);
                let y = run(ctx, rows, |ctx, y| matvec_int8(ctx, &w, &alone, y).unwrap());
                assert_same(&y, &whole[token * rows..][..rows], "a token alone");
            }
            // A prompt in two chunks.
            let first = cut as usize % (tokens + 1);
            let (a, b) = x.split_at(first * cols);
            for (x, at, n) in [(a, 0, first), (b, first, tokens - first)] {
                let x = quantized(precision, x, n, cols);
                let y = run(ctx, n * rows, |ctx, y| gemm_int8(ctx, &w, &x, y).unwrap());
                assert_same(&y, &whole[at * rows..][..n * rows], "a chunk of the tokens");
            }
            let row = (cut >> 32) as usize % rows;
            let (one, x) = (stored.rows(row, 1, cols), quantized(precision, &x, tokens, cols));
            let y = run(ctx, tokens, |ctx, y| gemm_int8(ctx, &one, &x, y).unwrap());
            let column: Vec<f32> = whole.chunks(rows).map(|y| y[row]).collect();
            assert_same(&y, &column, "a row alone");
        }
    });
}

/// Field cases: extreme codes through `vpmaddubsw` (255 * 127 * 2 saturates there, nibbles never do), and weights
/// of -128 with the sign trick. With scales of 1 every sum is an integer that f32 holds exactly, so an output is
/// the i64 sum or it is wrong.
#[test]
fn integer_sums_of_extreme_codes_are_exact() {
    const EIGHT: [&[u8]; 5] = [&[0x80], &[0x7f], &[0x80, 0x7f], &[0x80, 0x81, 0xff, 0, 1, 0x7f], &[0x81]];
    const FOUR: [&[u8]; 5] = [&[0x00], &[0xff], &[0x00, 0xff], &[0x0f, 0xf0], &[0x0f, 0xf8, 0x80]];
    const X: [(Precision, &[i16]); 9] = [
        (Precision::Int8, &[127]),
        (Precision::Int8, &[-127]),
        (Precision::Int8, &[127, -127]),
        (Precision::Int8, &[-127, -1, 0, 1, 127]),
        (Precision::Auto, &[0]),
        (Precision::Auto, &[32512]),
        (Precision::Auto, &[-32512]),
        (Precision::Int16, &[32512, -32512, 1, 0]),
        // Bytes of both signs, and few of them.
        (Precision::Auto, &[127, -127, 383, -383, 129, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ];
    let seed = 7;
    println!("seed {seed}");
    let mut rng = Rng(seed);
    let mut exact = 0;
    let formats = [
        (Format::Q8_0, 0),
        (Format::Q4_0, -8),
        (Format::Q4_1, -5),
        (Format::Affine(32, Parameter::F32), -15),
        (Format::Affine(64, Parameter::F16), 15),
        (Format::Affine(128, Parameter::Bf16), -8),
    ];
    for (format, offset) in formats {
        let (rows, cols, tokens) = (19, 3 * format.group(), 9);
        for bytes in if format == Format::Q8_0 { EIGHT } else { FOUR } {
            let min = |_: &mut Rng| offset as f32;
            let stored = format.build(rows, cols, &mut rng, |_| 1.0, min, |rng| rng.pick(bytes));
            let w = stored.rows(0, rows, cols);
            for (precision, codes) in X {
                let x = integers(precision, tokens, cols, || rng.pick(codes));
                let y = gemm_everywhere(&w, &x);
                for (i, y) in y.into_iter().enumerate() {
                    let (token, row) = (i / rows, i % rows);
                    let product =
                        |col| reference::weight(&w, row, col) as i64 * i64::from(x.code(token, col));
                    let groups: Vec<i64> =
                        (0..cols / 32).map(|g| (32 * g..32 * g + 32).map(product).sum()).collect();
                    let sum: i64 = groups.iter().sum();
                    if groups.iter().map(|sum| sum.abs()).sum::<i64>() < 1 << 24 {
                        assert_eq!(y, sum as f32, "{format:?} row {row} token {token}");
                        exact += 1;
                    } else {
                        // Then the sums of the groups are rounded, and nothing worse.
                        let magnitude: i64 = groups.iter().map(|sum| sum.abs()).sum();
                        assert_within(y, sum as f64, relative(8.0) * magnitude as f64 * 2.0, "a large sum");
                    }
                }
            }
        }
    }
    assert!(exact > 10_000, "{exact} sums were exact");
}

/// The order of the additions is documented, so the bits can be computed without the kernels.
#[test]
fn sums_run_in_the_documented_order() {
    let seed = 9;
    println!("seed {seed}");
    let mut rng = Rng(seed);
    let (rows, tokens) = (18, 11);
    for format in [Format::Q8_0, Format::Q4_0, Format::Q4_1] {
        for (precision, groups) in [
            (Precision::Int8, 1),
            (Precision::Auto, 2),
            (Precision::Int8, 7),
            (Precision::Auto, 7),
            (Precision::Int16, 7),
        ] {
            let cols = 32 * groups;
            let stored = format.random(rows, cols, &mut rng);
            let w = stored.rows(0, rows, cols);
            let x = quantized(precision, &inputs(tokens * cols, &mut rng), tokens, cols);
            for (i, y) in gemm_everywhere(&w, &x).into_iter().enumerate() {
                let (token, row) = (i / rows, i % rows);
                let mut sums = [0f32; 2];
                for g in 0..groups {
                    let (scale, min, codes) = block(w.weights(), row * groups + g);
                    let dot: i32 = codes.iter().zip(32 * g..).map(|(&q, i)| q * x.code(token, i)).sum();
                    let (a, sum) = (x.scales(token)[g], &mut sums[g % 2]);
                    *sum = (dot as f32).mul_add(scale * a, *sum);
                    if let Some(min) = min {
                        *sum = min.mul_add(a * x.sums(token)[g] as f32, *sum);
                    }
                }
                assert_eq!(
                    y.to_bits(),
                    (sums[0] + sums[1]).to_bits(),
                    "{format:?}, {groups} groups, output {i}"
                );
            }
        }
    }
}

/// Scale, minimum and signed codes of block `i`.
fn block(weights: Weights<'_>, i: usize) -> (f32, Option<f32>, Vec<i32>) {
    match weights {
        Weights::Q8_0(b) => (b[i].scale.to_f32(), None, b[i].codes.map(i32::from).to_vec()),
        Weights::Q4_0(b) => (b[i].scale.to_f32(), None, b[i].codes().map(|q| i32::from(q) - 8).to_vec()),
        Weights::Q4_1(b) => {
            (b[i].scale.to_f32(), Some(b[i].min.to_f32()), b[i].codes().map(i32::from).to_vec())
        }
        other => panic!("{other:?} has no such blocks"),
    }
}

/// Values worked out by hand: the twin could share a misreading of the formats with the kernels.
#[test]
fn hand_computed_products() {
    use half::f16;
    use halfbyte_cpu_kernels::{Affine, Parameters};
    use halfbyte_q4::{BlockQ4_0, BlockQ4_1};
    // Input i is i + 1: the sum of all is 528, of the first sixteen 136.
    let mut next = 0;
    let x = integers(Precision::Int8, 1, 32, || {
        next += 1;
        next
    });
    let half = f16::from_f32;
    // Low nibbles (inputs 0 to 15) 9, high nibbles (16 to 31) 7.
    let codes = [0x79; 16];
    let q4_0 = [BlockQ4_0 { scale: half(0.5), codes }];
    let q4_1 = [BlockQ4_1 { scale: half(0.5), min: half(-1.0), codes }];
    // The same weights: words 0 and 1 hold inputs 0 to 15.
    let words = [0x9999_9999, 0x9999_9999, 0x7777_7777, 0x7777_7777];
    let (scales, biases) = (Parameters::F32(&[0.5]), Parameters::F32(&[-1.0]));
    let affine = Affine { bits: 4, group: 32, codes: &words, scales, biases };
    // One code set, input 3 of the second word: input 11, which is 12.
    let single = Affine { codes: &[0, 0x5000, 0, 0], biases: Parameters::F32(&[0.0]), ..affine };
    let cases = [
        (Weights::Q4_0(&q4_0), 0.5 * (136.0 - 392.0)),
        (Weights::Q4_1(&q4_1), 0.5 * (9.0 * 136.0 + 7.0 * 392.0) - 528.0),
        (Weights::Affine(affine), 0.5 * (9.0 * 136.0 + 7.0 * 392.0) - 528.0),
        (Weights::Affine(single), 0.5 * 5.0 * 12.0),
    ];
    for (weights, want) in cases {
        let w = Matrix::new(weights, 1, 32).unwrap();
        assert_eq!(gemm_everywhere(&w, &x), [want], "{weights:?}");
    }
}

#[test]
fn a_non_finite_activation_makes_its_token_nan_and_no_other() {
    let seed = 11;
    println!("seed {seed}");
    for format in INT8 {
        let mut rng = Rng(seed);
        let (rows, cols, tokens) = (17, 3 * format.group(), 5);
        let stored = format.random(rows, cols, &mut rng);
        let w = stored.rows(0, rows, cols);
        let precision = rng.pick(&[Precision::Int8, Precision::Auto, Precision::Int16]);
        let mut x = inputs(tokens * cols, &mut rng);
        let clean = gemm_everywhere(&w, &quantized(precision, &x, tokens, cols));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            x[2 * cols + cols / 2] = bad;
            let y = gemm_everywhere(&w, &quantized(precision, &x, tokens, cols));
            for token in 0..tokens {
                let y = &y[token * rows..][..rows];
                if token == 2 {
                    assert!(y.iter().all(|y| y.is_nan()), "{format:?} with {bad}");
                } else {
                    assert_same(y, &clean[token * rows..][..rows], "a token beside a NaN");
                }
            }
        }
    }
}

#[test]
fn empty_shapes() {
    let stored = Format::Q4_0.random(0, 32, &mut Rng(1));
    assert_eq!(
        gemm_everywhere(&stored.rows(0, 0, 32), &quantized(Precision::Auto, &[0.0; 64], 2, 32)),
        Vec::<f32>::new()
    );
    let no_columns = stored.rows(0, 3, 0);
    assert_eq!(gemm_everywhere(&no_columns, &quantized(Precision::Auto, &[], 2, 0)), [0.0; 6]);
}
