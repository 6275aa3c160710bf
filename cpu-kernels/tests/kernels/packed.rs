//! Packed weights by themselves; that every product has the same bits with them, the products' own tests say.

use crate::ggml::Ggml;
use crate::support::{FLOAT_ONLY, Format, INT8, Parameter, Rng, assert_same, everywhere, plain, run};
use halfbyte_cpu_kernels::{
    Error, Isa, Matrix, PackedMatrix, Weights, gemm_f32, gemm_f32_each, gemm_int8, gemm_int8_each, reference,
};
use halfbyte_q8::Activations;

fn formats() -> impl Iterator<Item = Format> {
    INT8.into_iter()
        .chain(FLOAT_ONLY)
        .filter(|format| !matches!(format, Format::Ggml(_) | Format::Affine8(..)))
}

/// Rows short of a panel, one and a bit; an odd and an even number of groups.
#[test]
fn weights_are_where_the_layout_says() {
    let seed = 17;
    println!("seed {seed}");
    let mut rng = Rng(seed);
    for format in formats() {
        for (rows, groups) in [(1, 1), (16, 2), (19, 3)] {
            let cols = groups * format.group();
            let stored = format.random(rows, cols, &mut rng);
            let w = stored.rows(0, rows, cols);
            for ctx in everywhere() {
                let packed = PackedMatrix::new(ctx, &w).unwrap();
                let p = packed.as_matrix();
                assert_eq!((packed.rows(), packed.cols()), (rows, cols));
                for (row, col) in (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col))) {
                    let (got, want) = (reference::weight(&p, row, col), reference::weight(&w, row, col));
                    assert_eq!(got, want, "{format:?} ({row}, {col}), packed on {}", ctx.isa);
                }
            }
        }
    }
}

#[test]
fn rows_decode_to_the_same_bits() {
    let seed = 18;
    println!("seed {seed}");
    let mut rng = Rng(seed);
    for format in formats() {
        let (rows, cols) = (18, 3 * format.group());
        let stored = format.random(rows, cols, &mut rng);
        let w = stored.rows(0, rows, cols);
        let packed = PackedMatrix::new(plain(), &w).unwrap();
        for isa in Isa::available() {
            for row in [0, 15, 17] {
                let (mut want, mut got) = (vec![f32::NAN; cols], vec![f32::NAN; cols]);
                w.decode_row(isa, row, &mut want).unwrap();
                packed.as_matrix().decode_row(isa, row, &mut got).unwrap();
                assert_same(&got, &want, &format!("{format:?} row {row} on {isa}"));
            }
        }
    }
}

/// In one piece of memory, big enough for a huge page, each matrix is as if it were alone.
#[test]
fn matrices_share_memory() {
    let seed = 19;
    println!("seed {seed}");
    let mut rng = Rng(seed);
    let shapes =
        [(Format::Q4_0, 33, 96), (Format::F16, 7, 33), (Format::Q8_0, 1024, 2080), (Format::F32, 0, 5)];
    let stored = shapes.map(|(format, rows, cols)| format.random(rows, cols, &mut rng));
    let matrices: Vec<Matrix<'_>> =
        stored.iter().zip(shapes).map(|(stored, (_, rows, cols))| stored.rows(0, rows, cols)).collect();
    for ctx in everywhere() {
        let packed = PackedMatrix::pack_all(ctx, &matrices).unwrap();
        assert_eq!(packed.len(), matrices.len());
        for (packed, w) in packed.iter().zip(&matrices) {
            let (mut want, mut got) = (vec![0.0; w.cols()], vec![f32::NAN; w.cols()]);
            for row in [0, w.rows().saturating_sub(1)].into_iter().filter(|&row| row < w.rows()) {
                w.decode_row(ctx.isa, row, &mut want).unwrap();
                packed.as_matrix().decode_row(ctx.isa, row, &mut got).unwrap();
                assert_same(&got, &want, "a row of one of several");
            }
        }
    }
    assert_eq!(PackedMatrix::pack_all(plain(), &[]).unwrap().len(), 0);
}

#[test]
fn packed_weights_are_as_big_as_stored_ones() {
    // An even number of groups and whole panels: to the byte.
    for format in formats() {
        let (rows, cols) = (32, 4 * format.group() * if format.group() == 1 { 16 } else { 1 });
        let stored = format.random(rows, cols, &mut Rng(1));
        let w = stored.rows(0, rows, cols);
        assert_eq!(PackedMatrix::new(plain(), &w).unwrap().bytes(), w.bytes(), "{format:?}");
    }
    // 17 rows take two panels, 3 groups two lines of scales: 2 * (2 + 3 * 4) lines of 64 bytes.
    let stored = Format::Q4_0.random(17, 96, &mut Rng(1));
    assert_eq!(PackedMatrix::new(plain(), &stored.rows(0, 17, 96)).unwrap().bytes(), 2 * 14 * 64);
}

/// The table of formats, which messages are made of, says of each what the kernels do.
#[test]
fn the_table_of_formats_is_true() {
    let mut names = Vec::new();
    for format in INT8.into_iter().chain(FLOAT_ONLY) {
        let cols = if format.group() == 1 { 32 } else { format.group() };
        let stored = format.random(1, cols, &mut Rng(1));
        let w = stored.rows(0, 1, cols);
        let mut x = Activations::new();
        x.quantize(&vec![1.0; cols], 1, cols).unwrap();
        let multiplies = |w: &Matrix<'_>| gemm_int8(plain(), w, &x, &mut [0.0]).is_ok();
        let packed = PackedMatrix::new(plain(), &w);
        let info = Weights::formats()
            .find(|info| {
                info.int8 == multiplies(&w) && info.packs == packed.is_ok() && info.name == format.name()
            })
            .unwrap_or_else(|| panic!("no entry for {format:?}"));
        assert_eq!((w.supports_int8(), w.supports_packing()), (info.int8, info.packs), "{format:?}");
        if let Ok(packed) = &packed {
            assert_eq!(packed.as_matrix().supports_int8(), info.int8, "{format:?}");
            assert_eq!(multiplies(&packed.as_matrix()), info.int8, "{format:?}");
        }
        names.push(info.name);
    }
    assert!(Weights::formats().all(|info| names.contains(&info.name)), "an entry that no test format has");
}

#[test]
fn refusals_name_the_weights() {
    let supported = "F32, F16, BF16, Q8_0, Q4_0, Q4_1, MLX affine 4-bit, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, \
                     IQ4_NL, IQ4_XS, MXFP4, NVFP4";
    for format in [Format::Ggml(Ggml::Tq2_0), Format::Ggml(Ggml::Iq2Xxs), Format::Affine8(64, Parameter::F16)]
    {
        let name = format.name();
        let stored = format.random(1, 256, &mut Rng(1));
        let w = stored.rows(0, 1, 256);
        assert!(!w.supports_packing());
        let error = PackedMatrix::pack_all(plain(), &[w]).unwrap_err().to_string();
        assert_eq!(error, format!("PackedMatrix does not support {name}; supported: {supported}"));
    }
    let stored = Format::Q4_0.random(2, 64, &mut Rng(1));
    let packed = PackedMatrix::new(plain(), &stored.rows(0, 2, 64)).unwrap();
    let again = PackedMatrix::new(plain(), &packed.as_matrix()).unwrap_err().to_string();
    assert_eq!(again, format!("PackedMatrix does not support packed Q4_0; supported: {supported}"));
    let Weights::Packed(panels) = packed.as_matrix().weights() else { panic!("Q4_0 packs into panels") };
    assert_eq!(
        Matrix::new(Weights::Packed(panels), 3, 64).unwrap_err().to_string(),
        "rows of the packed weights: expected 2, got 3"
    );
    assert_eq!(
        Matrix::new(Weights::Packed(panels), 2, 32).unwrap_err().to_string(),
        "columns of the packed weights: expected 64, got 32"
    );
}

/// Whether they share the work, as packed matrices of one format do, or not: formats and packing of three matrices.
#[test]
fn several_products_are_those_of_each() {
    let seed = 20;
    println!("seed {seed}");
    let mut rng = Rng(seed);
    let cases = [
        ([Format::Q4_0; 3], true),
        ([Format::Q8_0; 3], true),
        ([Format::Q4_1; 3], true),
        ([INT8[4]; 3], true),
        ([Format::F16; 3], true),
        ([Format::F32; 3], true),
        ([Format::Bf16; 3], true),
        ([Format::Q4_0; 3], false),
        ([Format::F16; 3], false),
        ([Format::Q4_0, Format::Q8_0, Format::Q4_0], true),
        ([Format::F32, Format::F16, Format::F32], true),
    ];
    let (rows, cols) = ([40, 16, 7], 320);
    for (formats, pack) in cases {
        let stored: [_; 3] = core::array::from_fn(|i| formats[i].random(rows[i], cols, &mut rng));
        let plain_matrices: [Matrix<'_>; 3] = core::array::from_fn(|i| stored[i].rows(0, rows[i], cols));
        let packed = plain_matrices.map(|w| PackedMatrix::new(plain(), &w).unwrap());
        let matrices: [Matrix<'_>; 3] =
            core::array::from_fn(|i| if pack { packed[i].as_matrix() } else { plain_matrices[i] });
        for tokens in [1, 5] {
            let x = rng.f32s(tokens * cols, 4.0);
            let mut int8 = Activations::new();
            int8.quantize(&x, tokens, cols).unwrap();
            let quantized = matrices.iter().all(Matrix::supports_int8);
            for ctx in everywhere() {
                let one = |i: usize, y: &mut [f32]| match quantized {
                    true => gemm_int8(ctx, &matrices[i], &int8, y).unwrap(),
                    false => gemm_f32(ctx, &matrices[i], &x, tokens, y).unwrap(),
                };
                let want = [0, 1, 2].map(|i| run(plain(), tokens * rows[i], |_, y| one(i, y)));
                let mut got = rows.map(|rows| vec![f32::NAN; tokens * rows]);
                let [a, b, c] = &mut got;
                let products = [(&matrices[0], &mut a[..]), (&matrices[1], b), (&matrices[2], c)];
                match quantized {
                    true => gemm_int8_each(ctx, products, &int8).unwrap(),
                    false => gemm_f32_each(ctx, products, &x, tokens).unwrap(),
                }
                for (got, want) in got.iter().zip(&want) {
                    assert_same(got, want, &format!("{formats:?}, packed {pack}, on {}", ctx.isa));
                }
            }
        }
    }
}

#[test]
fn several_products_refuse_before_any_is_written() {
    let (q4, f16) = (Format::Q4_0.random(2, 64, &mut Rng(1)), Format::F16.random(3, 64, &mut Rng(2)));
    let (q4, f16) = (q4.rows(0, 2, 64), f16.rows(0, 3, 64));
    let packed = PackedMatrix::new(plain(), &f16).unwrap();
    let mut x = Activations::new();
    x.quantize(&[1.0; 64], 1, 64).unwrap();
    let (mut a, mut b) = ([7.0; 2], [7.0; 3]);
    for (w, name) in [(f16, "F16"), (packed.as_matrix(), "packed F16")] {
        let error = gemm_int8_each(plain(), [(&q4, &mut a[..]), (&w, &mut b)], &x).unwrap_err();
        assert!(matches!(&error, Error::Unsupported { got, .. } if got == name), "{error}");
    }
    let error = gemm_int8_each(plain(), [(&q4, &mut a[..]), (&q4, &mut b)], &x).unwrap_err();
    assert_eq!(error, Error::Length { what: "y", expected: 2, got: 3 });
    let error = gemm_f32_each(plain(), [(&q4, &mut a[..]), (&q4, &mut b)], &[1.0; 64], 1).unwrap_err();
    assert_eq!(error, Error::Length { what: "y", expected: 2, got: 3 });
    assert_eq!((a, b), ([7.0; 2], [7.0; 3]));
    assert_eq!(gemm_f32_each(plain(), [], &[], 1), Ok(()));
    assert_eq!(gemm_int8_each(plain(), [], &x), Ok(()));
}
