//! Formats bit by bit: blocks are put together here from codes, and must be read as the formulas say, by the kernels and by
//! their twin alike.

use crate::ggml::Ggml;
use crate::support::{Format, Rng, assert_same};
use half::f16;
use halfbyte_cpu_kernels::{Affine, Isa, Matrix, Parameters, Weights, reference};
use halfbyte_k_quants::{BlockQ4K, BlockQ6K};
use halfbyte_q4::{BlockQ4_0, BlockQ4_1};
use halfbyte_q8::BlockQ8_0;
use std::array::from_fn;

/// Checks that row 0 of `weights` is `expected`, exactly for the twin, and rounded to f32 for the kernels.
#[track_caller]
fn check(weights: Weights<'_>, expected: &[f64]) {
    let cols = expected.len();
    let w = Matrix::new(weights, 1, cols).unwrap();
    for (col, &expected) in expected.iter().enumerate() {
        assert_eq!(reference::weight(&w, 0, col), expected, "weight {col} of the twin");
    }
    let expected: Vec<f32> = expected.iter().map(|&w| w as f32).collect();
    for isa in Isa::available() {
        let mut row = vec![f32::NAN; cols];
        w.decode_row(isa, 0, &mut row).unwrap();
        assert_same(&row, &expected, &format!("decoded on {isa}"));
    }
}

/// A scale or a minimum, in steps that leave the formulas exact in f64.
fn half(rng: &mut Rng) -> f16 {
    f16::from_f32(rng.f32())
}

/// `N` codes below `limit`.
fn codes<const N: usize>(rng: &mut Rng, limit: u8) -> [u8; N] {
    from_fn(|_| rng.byte() % limit)
}

fn rng(seed: u64) -> Rng {
    println!("seed {seed}");
    Rng(seed)
}

#[test]
fn blocks_of_32_are_read_by_their_formulas() {
    let rng = &mut rng(71);
    for _ in 0..50 {
        let (d, m) = (half(rng), half(rng));
        let (d64, m64) = (d.to_f64(), m.to_f64());
        let signed = codes::<32>(rng, 255).map(|q| (i16::from(q) - 128) as i8);
        let block = [BlockQ8_0 { scale: d, codes: signed }];
        check(Weights::Q8_0(&block), &signed.map(|q| d64 * f64::from(q)));

        let q = codes::<32>(rng, 16);
        let packed = from_fn(|i| q[i] | q[i + 16] << 4);
        check(
            Weights::Q4_0(&[BlockQ4_0 { scale: d, codes: packed }]),
            &q.map(|q| d64 * (f64::from(q) - 8.0)),
        );
        check(
            Weights::Q4_1(&[BlockQ4_1 { scale: d, min: m, codes: packed }]),
            &q.map(|q| d64 * f64::from(q) + m64),
        );
    }
}

#[test]
fn q4_k_blocks_are_read_by_their_formula() {
    let rng = &mut rng(72);
    for _ in 0..50 {
        let (d, dmin) = (half(rng), half(rng));
        let (sc, m) = (codes::<8>(rng, 64), codes::<8>(rng, 64));
        let q = codes::<256>(rng, 16);
        let scales = from_fn(|i| match i / 4 {
            0 => sc[i] | sc[i + 4] >> 4 << 6,
            1 => m[i - 4] | m[i] >> 4 << 6,
            _ => sc[i - 4] & 15 | m[i - 4] << 4,
        });
        let codes = from_fn(|i| q[i / 32 * 64 + i % 32] | q[i / 32 * 64 + 32 + i % 32] << 4);
        let expected: [f64; 256] = from_fn(|i| {
            let (sc, m, q) = (f64::from(sc[i / 32]), f64::from(m[i / 32]), f64::from(q[i]));
            d.to_f64() * sc * q - dmin.to_f64() * m
        });
        check(Weights::Q4K(&[BlockQ4K { d, dmin, scales, codes }]), &expected);
    }
}

#[test]
fn q6_k_blocks_are_read_by_their_formula() {
    let rng = &mut rng(73);
    for _ in 0..50 {
        let d = half(rng);
        let scales = codes::<16>(rng, 255).map(|sc| (i16::from(sc) - 128) as i8);
        let q = codes::<256>(rng, 64);
        let (mut low, mut high) = ([0; 128], [0; 64]);
        for (i, &q) in q.iter().enumerate() {
            // Each half of 128 weights is four runs of 32.
            let (half, run, at) = (i / 128, i / 32 % 4, i % 32);
            low[64 * half + 32 * (run % 2) + at] |= (q & 15) << (4 * (run / 2));
            high[32 * half + at] |= q >> 4 << (2 * run);
        }
        let expected: [f64; 256] =
            from_fn(|i| d.to_f64() * f64::from(scales[i / 16]) * (f64::from(q[i]) - 32.0));
        check(Weights::Q6K(&[BlockQ6K { low, high, scales, d }]), &expected);
    }
}

#[test]
fn affine_groups_are_read_by_their_formula() {
    let rng = &mut rng(74);
    for (bits, group) in [(4, 32), (4, 64), (4, 128), (8, 32), (8, 64), (8, 128)] {
        let q: Vec<u8> = (0..256).map(|_| rng.byte() & (((1_u16 << bits) - 1) as u8)).collect();
        let mut words = vec![0_u32; 256 * bits / 32];
        for (i, &q) in q.iter().enumerate() {
            words[i * bits / 32] |= u32::from(q) << (i * bits % 32);
        }
        let [scales, biases]: [Vec<f16>; 2] = from_fn(|_| (0..256 / group).map(|_| half(rng)).collect());
        let expected: Vec<f64> = (0..256)
            .map(|i| scales[i / group].to_f64() * f64::from(q[i]) + biases[i / group].to_f64())
            .collect();
        let (scales, biases) = (Parameters::F16(&scales), Parameters::F16(&biases));
        check(Weights::Affine(Affine { bits, group, codes: &words, scales, biases }), &expected);
    }
}

/// The kernels read the blocks of `halfbyte-k-quants` by its decoders, which that crate's tests compare with ggml's. The
/// twin has formulas of its own.
#[test]
fn twin_and_kernels_read_the_blocks_of_ggml_alike() {
    let rng = &mut rng(75);
    for &format in Ggml::ALL {
        let cols = 1280;
        let stored = Format::Ggml(format).random(3, cols, rng);
        let w = stored.rows(0, 3, cols);
        for row in 0..3 {
            let twin: Vec<f32> = (0..cols).map(|col| reference::weight(&w, row, col) as f32).collect();
            assert!(twin.iter().all(|w| w.is_finite()), "{}", format.name());
            for isa in Isa::available() {
                let mut decoded = vec![f32::NAN; cols];
                w.decode_row(isa, row, &mut decoded).unwrap();
                // Zeros are equal whatever their sign.
                let same = decoded.iter().zip(&twin).position(|(a, b)| a != b);
                assert_eq!(same.map(|at| (at, decoded[at], twin[at])), None, "{} on {isa}", format.name());
            }
        }
    }
}
