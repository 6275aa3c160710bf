//! Wrong arguments: the message names what was expected and what came, and nothing is written.

use crate::ggml::Ggml;
use crate::support::{FLOAT_ONLY, Format, Parameter, Rng, Stored, plain};
use halfbyte_cpu_kernels::{
    Activation, Affine, Error, Isa, Matrix, Parameters, RopeOrder, RopeTable, Weights, add_assign, gated,
    gated_quantize, gemm_f32, gemm_int8, matvec_f32, matvec_int8, multiply_assign, quantize_activations,
    rms_norm, rms_norm_quantize, rope, soft_cap,
};
use halfbyte_q8::Activations;

/// The message of `call`, which must leave `n` outputs as they were.
fn refusal(n: usize, call: impl FnOnce(&mut [f32]) -> Result<(), Error>) -> String {
    let mut y = vec![7.0; n];
    let error = call(&mut y).expect_err("accepted wrong arguments");
    assert_eq!(y, vec![7.0; n], "wrote although it refused: {error}");
    error.to_string()
}

fn activations(rows: usize, cols: usize) -> Activations {
    let mut x = Activations::new();
    x.quantize(&vec![1.0; rows * cols], rows, cols).unwrap();
    x
}

fn weights(format: Format, rows: usize, cols: usize) -> Stored {
    format.random(rows, cols, &mut Rng(1))
}

#[test]
fn int8_kernels_name_the_weights_they_do_not_multiply() {
    for format in FLOAT_ONLY {
        let name = format.name();
        let stored = weights(format, 2, 256);
        let w = stored.rows(0, 2, 256);
        assert!(!w.supports_int8());
        assert_eq!(
            refusal(2, |y| gemm_int8(plain(), &w, &activations(1, 256), y)),
            format!(
                "gemm_int8 does not support {name}; supported: Q8_0, Q4_0, Q4_1, MLX affine 4-bit, Q5_0, Q5_1, Q2_K, \
                 Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4, NVFP4"
            )
        );
    }
}

#[test]
fn products_check_every_size() {
    let stored = weights(Format::Q4_0, 3, 64);
    let w = stored.rows(0, 3, 64);
    let x = activations(2, 64);
    assert!(w.supports_int8());
    assert_eq!(refusal(5, |y| gemm_int8(plain(), &w, &x, y)), "y: expected 6 elements, got 5");
    assert_eq!(
        refusal(6, |y| gemm_int8(plain(), &w, &activations(2, 32), y)),
        "columns of the activations: expected 64, got 32"
    );
    assert_eq!(
        refusal(6, |y| matvec_int8(plain(), &w, &x, y)),
        "rows of the activation vector: expected 1, got 2"
    );
    assert_eq!(refusal(6, |y| gemm_f32(plain(), &w, &[0.0; 127], 2, y)), "x: expected 128 elements, got 127");
    assert_eq!(refusal(7, |y| gemm_f32(plain(), &w, &[0.0; 128], 2, y)), "y: expected 6 elements, got 7");
    assert_eq!(refusal(3, |y| matvec_f32(plain(), &w, &[0.0; 65], y)), "x: expected 64 elements, got 65");
    assert_eq!(
        refusal(63, |y| w.decode_row(Isa::scalar(), 0, y)),
        "decoded row: expected 64 elements, got 63"
    );
    assert_eq!(
        refusal(64, |y| w.decode_row(Isa::scalar(), 3, y)),
        "row below the number of rows: expected 3, got 3"
    );
    // A product of sizes that wraps is a length that nothing has.
    let tokens = usize::MAX / 2;
    assert!(gemm_f32(plain(), &w, &[], tokens, &mut []).is_err());
}

#[test]
fn matrices_check_groups_and_lengths() {
    fn message(weights: Weights<'_>, rows: usize, cols: usize) -> String {
        Matrix::new(weights, rows, cols).unwrap_err().to_string()
    }
    for (format, cols) in
        [(Format::Q8_0, 48), (Format::Q4_0, 48), (Format::Q4_1, 48), (Format::Ggml(Ggml::Q4K), 384)]
    {
        let stored = weights(format, 1, 256);
        let w = stored.rows(0, 1, 256).weights();
        assert_eq!(
            message(w, 1, cols),
            format!("columns of the weights: {cols} is not a whole number of groups of {}", format.group())
        );
        let blocks = 256 / format.group();
        let wrong = format!("weights: expected {} elements, got {blocks}", 2 * blocks);
        assert_eq!(message(w, 2, 256), wrong);
    }
    assert_eq!(
        message(Weights::F32(&[0.0; 4]), usize::MAX, 2),
        format!("weights: expected {} elements, got 4", usize::MAX)
    );
    let (codes, four) = ([0; 16], [0.0; 4]);
    let of_bits = |bits, codes, scales, biases, group| {
        let parameters = |n: usize| Parameters::F32(&four[..n]);
        Weights::Affine(Affine { bits, group, codes, scales: parameters(scales), biases: parameters(biases) })
    };
    let affine = |codes, scales, biases, group| of_bits(4, codes, scales, biases, group);
    for bits in [0, 3, 32] {
        let expected = format!("affine bits (4 or 8): expected 4, got {bits}");
        assert_eq!(message(of_bits(bits, &codes, 2, 2, 64), 1, 128), expected);
    }
    assert_eq!(message(affine(&codes, 2, 2, 48), 1, 96), "affine group (32, 64 or 128): expected 64, got 48");
    assert_eq!(
        message(affine(&codes, 2, 2, 64), 1, 96),
        "columns of the weights: 96 is not a whole number of groups of 64"
    );
    assert_eq!(message(affine(&codes, 1, 2, 64), 1, 128), "weights: expected 2 elements, got 1");
    assert_eq!(message(affine(&codes[1..], 2, 2, 64), 1, 128), "affine codes: expected 16 elements, got 15");
    assert_eq!(message(affine(&codes, 2, 3, 64), 1, 128), "affine biases: expected 2 elements, got 3");
    let affine8 = |codes, scales, biases, group| of_bits(8, codes, scales, biases, group);
    assert_eq!(
        message(affine8(&codes, 1, 1, 48), 1, 48),
        "affine group (32, 64 or 128): expected 64, got 48"
    );
    assert_eq!(message(affine8(&codes, 2, 1, 64), 1, 64), "weights: expected 1 elements, got 2");
    assert_eq!(message(affine8(&codes[1..], 1, 1, 64), 1, 64), "affine codes: expected 16 elements, got 15");
    assert_eq!(message(affine8(&codes, 1, 2, 64), 1, 64), "affine biases: expected 1 elements, got 2");
}

#[test]
fn matrices_know_their_bytes() {
    let bytes = |format, cols| weights(format, 2, cols).rows(0, 2, cols).bytes();
    assert_eq!(bytes(Format::F32, 10), 80);
    assert_eq!(bytes(Format::Bf16, 10), 40);
    assert_eq!(bytes(Format::Q8_0, 64), 2 * 2 * 34);
    assert_eq!(bytes(Format::Q4_0, 64), 2 * 2 * 18);
    assert_eq!(bytes(Format::Q4_1, 64), 2 * 2 * 20);
    assert_eq!(bytes(Format::Affine(64, Parameter::F16), 128), 2 * (64 + 2 * 2 * 2));
    assert_eq!(bytes(Format::Affine(32, Parameter::F32), 128), 2 * (64 + 2 * 4 * 4));
    assert_eq!(bytes(Format::Affine8(64, Parameter::Bf16), 128), 2 * (128 + 2 * 2 * 2));
    assert_eq!(bytes(Format::Ggml(Ggml::Q4K), 256), 2 * 144);
    assert_eq!(bytes(Format::Ggml(Ggml::Mxfp4), 64), 2 * 2 * 17);
}

#[test]
fn row_kernels_check_every_size() {
    let ctx = plain();
    let (five, six) = ([1.0; 5], [1.0; 6]);
    assert_eq!(refusal(5, |y| rms_norm(ctx, &six, &[1.0; 3], 0.0, y)), "y: expected 6 elements, got 5");
    assert_eq!(
        refusal(6, |y| rms_norm(ctx, &six, &[1.0; 4], 0.0, y)),
        "elements of x, rows of the length of weight: 6 is not a whole number of groups of 4"
    );
    assert_eq!(
        refusal(6, |y| rms_norm(ctx, &six, &[], 0.0, y)),
        "elements of x, rows of the length of weight: 6 is not a whole number of groups of 0"
    );
    assert_eq!(
        refusal(6, |y| gated(ctx, Activation::Silu, &six, &five, y)),
        "up: expected 6 elements, got 5"
    );
    assert_eq!(refusal(5, |y| gated(ctx, Activation::Silu, &six, &six, y)), "y: expected 6 elements, got 5");
    for cap in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let expected =
            format!("soft_cap does not support a cap of {cap}; supported: positive normal numbers");
        assert_eq!(refusal(6, |y| soft_cap(ctx, y, cap)), expected);
    }
    assert_eq!(refusal(6, |y| add_assign(ctx, y, &five)), "x: expected 6 elements, got 5");
    assert_eq!(refusal(6, |y| multiply_assign(ctx, y, &five)), "x: expected 6 elements, got 5");

    let mut table = RopeTable::new(vec![1.0, 0.1], RopeOrder::Halves);
    table.extend_to(3);
    assert_eq!((table.pairs(), table.positions()), (2, 3));
    let rows = "elements of x, rows of n_heads x head_dim";
    assert_eq!(
        refusal(6, |y| rope(ctx, y, 1, 4, &table, 0)),
        format!("{rows}: 6 is not a whole number of groups of 4")
    );
    assert_eq!(
        refusal(6, |y| rope(ctx, y, 0, 4, &table, 0)),
        format!("{rows}: 6 is not a whole number of groups of 0")
    );
    assert!(refusal(6, |y| rope(ctx, y, usize::MAX, 4, &table, 0)).starts_with(rows));
    assert_eq!(
        refusal(6, |y| rope(ctx, y, 2, 3, &table, 0)),
        "head_dim, at least the rotated elements: expected 4, got 3"
    );
    assert_eq!(
        refusal(12, |y| rope(ctx, y, 1, 6, &table, 2)),
        "positions in the rope table: expected 4, got 3"
    );
}

#[test]
fn a_refused_quantization_leaves_the_activations() {
    let before = activations(1, 32);
    let mut x = before.clone();
    let error = quantize_activations(plain(), &[0.0; 63], 2, 32, &mut x).unwrap_err();
    assert_eq!(error.to_string(), "x: expected 64 elements, got 63");
    let error = quantize_activations(plain(), &[0.0; 66], 2, 33, &mut x).unwrap_err();
    assert_eq!(error.to_string(), "columns of the activations: 33 is not a whole number of groups of 32");
    assert_eq!(x, before);
}

#[test]
fn fused_quantizers_check_what_their_parts_check() {
    let before = activations(1, 32);
    let mut x = before.clone();
    let mut norm = |n: usize, weight: usize| {
        rms_norm_quantize(plain(), &vec![1.0; n], &vec![1.0; weight], 1e-5, &mut x).unwrap_err().to_string()
    };
    let rows = "elements of x, rows of the length of weight";
    assert_eq!(norm(65, 32), format!("{rows}: 65 is not a whole number of groups of 32"));
    assert_eq!(norm(0, 0), format!("{rows}: 0 is not a whole number of groups of 0"));
    assert_eq!(norm(66, 33), "columns of the activations: 33 is not a whole number of groups of 32");
    let mut gated = |gate: usize, up: usize, rows: usize| {
        let (gate, up) = (vec![1.0; gate], vec![1.0; up]);
        gated_quantize(plain(), Activation::GeluTanh, &gate, &up, rows, &mut x).unwrap_err().to_string()
    };
    assert_eq!(gated(64, 63, 2), "up: expected 64 elements, got 63");
    assert_eq!(gated(64, 64, 3), "elements of gate, by rows: 64 is not a whole number of groups of 3");
    assert_eq!(gated(66, 66, 2), "columns of the activations: 33 is not a whole number of groups of 32");
    assert_eq!(x, before);
}
