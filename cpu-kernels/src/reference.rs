//! The plain f64 twin of every kernel: what the tests of all paths, and of other devices, compare with.
//!
//! Written to be read, from the formulas alone: weights are decoded here bit by bit from what is stored, in f64, by none of
//! the functions that the kernels or the quantizers decode with.

mod codebooks;
mod k_quants;
mod low_bits;
mod recurrent;

pub use recurrent::{
    causal_convolution, decay_exponent, gated_delta, normalize_key, rms_norm_gated, sigmoid,
};

use crate::formats::{Affine, Parameters};
use crate::gated::Activation;
use crate::int8::panel::ParameterType;
use crate::matrix::Matrix;
use crate::packed::{Kind, Panels};
use crate::rope::RopeOrder;
use crate::weights::Weights;
use half::{bf16, f16};
use halfbyte_q8::Activations;
use std::f64::consts::PI;

/// Weight (`row`, `col`) by its format's formula.
///
/// # Panics
/// If there is no such weight.
pub fn weight(w: &Matrix<'_>, row: usize, col: usize) -> f64 {
    assert!(row < w.rows() && col < w.cols(), "weight ({row}, {col}) of {} x {}", w.rows(), w.cols());
    let i = row * w.cols() + col;
    match w.weights() {
        Weights::F32(v) => f64::from(v[i]),
        Weights::F16(v) => v[i].to_f64(),
        Weights::Bf16(v) => v[i].to_f64(),
        Weights::Q8_0(b) => b[i / 32].scale.to_f64() * f64::from(b[i / 32].codes[i % 32]),
        Weights::Q4_0(b) => b[i / 32].scale.to_f64() * (nibble(&b[i / 32].codes, i % 32) - 8.0),
        Weights::Q4_1(b) => {
            b[i / 32].scale.to_f64() * nibble(&b[i / 32].codes, i % 32) + b[i / 32].min.to_f64()
        }
        Weights::Affine(a) => {
            parameter(a.scales, i / a.group) * affine_code(a, i) + parameter(a.biases, i / a.group)
        }
        Weights::Q5_0(b) => {
            b[i / 32].scale.to_f64() * (five_bits(b[i / 32].high, &b[i / 32].codes, i % 32) - 16.0)
        }
        Weights::Q5_1(b) => {
            let block = &b[i / 32];
            block.scale.to_f64() * five_bits(block.high, &block.codes, i % 32) + block.min.to_f64()
        }
        Weights::Q2K(b) => k_quants::q2_k(&b[i / 256], i % 256),
        Weights::Q3K(b) => k_quants::q3_k(&b[i / 256], i % 256),
        Weights::Q4K(b) => k_quants::q4_k(&b[i / 256], i % 256),
        Weights::Q5K(b) => k_quants::q5_k(&b[i / 256], i % 256),
        Weights::Q6K(b) => k_quants::q6_k(&b[i / 256], i % 256),
        Weights::Iq4Nl(b) => low_bits::iq4_nl(&b[i / 32], i % 32),
        Weights::Iq4Xs(b) => low_bits::iq4_xs(&b[i / 256], i % 256),
        Weights::Mxfp4(b) => low_bits::mxfp4(&b[i / 32], i % 32),
        Weights::Nvfp4(b) => low_bits::nvfp4(&b[i / 64], i % 64),
        Weights::Iq1S(b) => codebooks::iq1_s(&b[i / 256], i % 256),
        Weights::Iq1M(b) => codebooks::iq1_m(&b[i / 256], i % 256),
        Weights::Iq2Xxs(b) => codebooks::iq2_xxs(&b[i / 256], i % 256),
        Weights::Iq2Xs(b) => codebooks::iq2_xs(&b[i / 256], i % 256),
        Weights::Iq2S(b) => codebooks::iq2_s(&b[i / 256], i % 256),
        Weights::Iq3Xxs(b) => codebooks::iq3_xxs(&b[i / 256], i % 256),
        Weights::Iq3S(b) => codebooks::iq3_s(&b[i / 256], i % 256),
        Weights::Tq1_0(b) => low_bits::tq1_0(&b[i / 256], i % 256),
        Weights::Tq2_0(b) => low_bits::tq2_0(&b[i / 256], i % 256),
        Weights::Q1_0(b) => low_bits::q1_0(&b[i / 128], i % 128),
        Weights::Q2_0(b) => low_bits::q2_0(&b[i / 64], i % 64),
        Weights::Packed(p) if is_float(p) => packed_float(p, row, col),
        Weights::Packed(p) => {
            let (scale, code, min) = packed(p, row, col);
            scale * code + min
        }
    }
}

/// Code `i` of a block of 32 whose byte `b` holds code `b` below code `b + 16`.
fn nibble(codes: &[u8; 16], i: usize) -> f64 {
    f64::from(if i < 16 { codes[i] % 16 } else { codes[i - 16] / 16 })
}

/// Code `i` of a block of 32 with nibbles as [`nibble`] reads them, and bit `i` of 32 worth 16 more.
fn five_bits(high: [u8; 4], codes: &[u8; 16], i: usize) -> f64 {
    nibble(codes, i) + if bit(&high, i) { 16.0 } else { 0.0 }
}

/// Bit `i`, counted from the lowest of the first byte.
fn bit(bytes: &[u8], i: usize) -> bool {
    bytes[i / 8] / (1 << (i % 8)) % 2 == 1
}

/// The number of `n` bits from bit `from` on, counted from the lowest of the first byte, the lowest first.
fn bits(bytes: &[u8], from: usize, n: usize) -> usize {
    (0..n).map(|k| usize::from(bit(bytes, from + k)) << k).sum()
}

/// Scale or bias `i`.
fn parameter(parameters: Parameters<'_>, i: usize) -> f64 {
    match parameters {
        Parameters::F32(v) => f64::from(v[i]),
        Parameters::F16(v) => v[i].to_f64(),
        Parameters::Bf16(v) => v[i].to_f64(),
    }
}

/// Code `i` of a stream of bits, the lowest bit of the first word first.
fn affine_code(affine: Affine<'_>, i: usize) -> f64 {
    let bit = |at: usize| affine.codes[at / 32] / (1 << (at % 32)) % 2;
    (0..affine.bits).map(|b| f64::from(bit(i * affine.bits + b)) * f64::from(1 << b)).sum()
}

/// Whether packed weights are plain floats.
fn is_float(w: &Panels) -> bool {
    matches!(w.kind(), Kind::F32 | Kind::F16 | Kind::Bf16)
}

/// A packed float, read as `float/pack.rs` draws it.
fn packed_float(w: &Panels, row: usize, col: usize) -> f64 {
    let bytes: &[u8] = w.as_bytes();
    let size = if matches!(w.kind(), Kind::F32) { 4 } else { 2 };
    let panel = (w.cols() * 16 * size).next_multiple_of(64);
    let at = row / 16 * panel + (col * 16 + row % 16) * size;
    match w.kind() {
        Kind::F32 => f64::from(f32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])),
        Kind::Bf16 => bf16::from_ne_bytes([bytes[at], bytes[at + 1]]).to_f64(),
        _ => f16::from_ne_bytes([bytes[at], bytes[at + 1]]).to_f64(),
    }
}

/// Scale, code and minimum of a packed weight, read as `int8/panel.rs` draws it.
fn packed(w: &Panels, row: usize, col: usize) -> (f64, f64, f64) {
    let bytes: &[u8] = bytemuck::cast_slice(w.lines());
    let number = |kind: ParameterType, at: usize| match kind {
        ParameterType::F32 => {
            f64::from(f32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]))
        }
        ParameterType::F16 => f16::from_ne_bytes([bytes[at], bytes[at + 1]]).to_f64(),
        ParameterType::Bf16 => bf16::from_ne_bytes([bytes[at], bytes[at + 1]]).to_f64(),
    };
    let (row_panel, lane, group, input) = (row / 16, row % 16, col / 32, col % 32);
    let grouped = match w.kind() {
        Kind::Bytes(_) => Some((1, false)),
        Kind::BytesMin(_) => Some((1, true)),
        Kind::Halves(_) => Some((2, false)),
        Kind::HalvesMin(_) => Some((2, true)),
        _ => None,
    };
    if let Some((scales, min)) = grouped {
        // Lines of 64 bytes: two groups' parameters, then eight lines of codes for each group.
        let a_group = scales * if min { 2 } else { 1 };
        let groups = w.cols() / 32;
        let panel = (groups.div_ceil(2) * 2 * a_group + groups * 8) * 64;
        let unit = row_panel * panel + group / 2 * (2 * a_group + 16) * 64;
        let line = group % 2 * a_group + input / 16 * (scales - 1);
        let float = |line: usize| number(ParameterType::F32, unit + line * 64 + lane * 4);
        let code = bytes[unit + (2 * a_group + group % 2 * 8 + input / 4) * 64 + lane * 4 + input % 4];
        return (float(line), f64::from(code.cast_signed()), if min { float(line + scales) } else { 0.0 });
    }
    let half = ParameterType::F16;
    // Bytes of a group's codes; groups of a unit and that share parameters; types of scale and minimum.
    let (codes, unit, share, scale, min) = match w.kind() {
        Kind::Q8_0(_) => (512, 2, 1, half, None),
        Kind::Q4_0(_) => (256, 2, 1, half, None),
        Kind::Q4_1(_) => (256, 2, 1, half, Some(half)),
        Kind::Affine4(a) => (256, a.share.max(2), a.share, a.scales, Some(a.biases)),
        other => unreachable!("{other:?} was read above, or has no codes"),
    };
    let sets = unit / share;
    let scales = sets * 16 * scale.size();
    let parameters = (scales + min.map_or(0, |min| sets * 16 * min.size())).next_multiple_of(64);
    let groups = w.cols() / 32;
    let panel = groups.div_ceil(unit) * parameters + groups * codes;
    let start = row_panel * panel + group / unit * (parameters + unit * codes);
    let (k, set) = (group % unit, group % unit / share);
    let d = number(scale, start + (set * 16 + lane) * scale.size());
    let m = min.map_or(0.0, |min| number(min, start + scales + (set * 16 + lane) * min.size()));
    let code = |input: usize| bytes[start + parameters + k * codes + input / 4 * 64 + lane * 4 + input % 4];
    let q = match w.kind() {
        Kind::Q8_0(_) => f64::from(code(input).cast_signed()),
        _ if input < 16 => f64::from(code(input) & 15),
        _ => f64::from(code(input - 16) >> 4),
    };
    (d, if matches!(w.kind(), Kind::Q4_0(_)) { q - 8.0 } else { q }, m)
}

/// `|d q| + |m|` of weight (`row`, `col`) where the format has a minimum `m`, else the weight's magnitude: kernels
/// on int8 activations add the two terms up apart, so their errors scale with this.
fn magnitude(w: &Matrix<'_>, row: usize, col: usize) -> f64 {
    let i = row * w.cols() + col;
    let min = match w.weights() {
        Weights::Q4_1(b) => b[i / 32].min.to_f64(),
        Weights::Q5_1(b) => b[i / 32].min.to_f64(),
        Weights::Q2K(b) => k_quants::q2_k_min(&b[i / 256], i % 256),
        Weights::Q4K(b) => k_quants::min(b[i / 256].dmin, &b[i / 256].scales, i % 256),
        Weights::Q5K(b) => k_quants::min(b[i / 256].dmin, &b[i / 256].scales, i % 256),
        Weights::Affine(a) => parameter(a.biases, i / a.group),
        Weights::Packed(p) if !is_float(p) => packed(p, row, col).2,
        _ => 0.0,
    };
    (weight(w, row, col) - min).abs() + min.abs()
}

/// One token's outputs, and for each the sum of the magnitudes of its products, which error bounds scale with.
///
/// # Panics
/// If `x` is not `w.cols()` long.
pub fn matvec_f32(w: &Matrix<'_>, x: &[f32]) -> Vec<(f64, f64)> {
    assert_eq!(x.len(), w.cols());
    let products = |row| x.iter().enumerate().map(move |(k, &x)| weight(w, row, k) * f64::from(x));
    (0..w.rows()).map(|row| (products(row).sum(), products(row).map(f64::abs).sum())).collect()
}

/// The same for row `token` of integer activations, `x = a * code`; the magnitudes are sums of `(|d q| + |m|) |x|` for
/// formats with a minimum `m`.
///
/// # Panics
/// If the columns differ or there is no such row.
pub fn matvec_int8(w: &Matrix<'_>, x: &Activations, token: usize) -> Vec<(f64, f64)> {
    let (scales, code) = (x.scales(token), |k| f64::from(x.code(token, k)));
    let x: Vec<f64> = (0..x.cols()).map(|k| code(k) * f64::from(scales[k / 32])).collect();
    assert_eq!(x.len(), w.cols());
    let inputs = || x.iter().enumerate();
    (0..w.rows())
        .map(|row| {
            let sum = inputs().map(|(k, x)| weight(w, row, k) * x).sum();
            (sum, inputs().map(|(k, x)| magnitude(w, row, k) * x.abs()).sum())
        })
        .collect()
}

/// One row of [`crate::rms_norm`].
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32) -> Vec<f64> {
    let mean = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (mean + f64::from(eps)).sqrt();
    x.iter().zip(weight).map(|(&x, &w)| f64::from(x) * scale * f64::from(w)).collect()
}

/// One head of [`crate::rope`] at `position`.
pub fn rope(head: &[f32], frequencies: &[f64], order: RopeOrder, position: usize) -> Vec<f64> {
    let mut out: Vec<f64> = head.iter().map(|&x| f64::from(x)).collect();
    for (i, f) in frequencies.iter().enumerate() {
        let (a, b) = match order {
            RopeOrder::Adjacent => (2 * i, 2 * i + 1),
            RopeOrder::Halves => (i, i + frequencies.len()),
        };
        let (sin, cos) = (position as f64 * f).sin_cos();
        let (x, y) = (f64::from(head[a]), f64::from(head[b]));
        (out[a], out[b]) = (x * cos - y * sin, x * sin + y * cos);
    }
    out
}

/// One element of [`crate::gated`].
pub fn gated(activation: Activation, gate: f32, up: f32) -> f64 {
    let (mut gate, mut up) = (f64::from(gate), f64::from(up));
    let exponent = match activation {
        Activation::Silu => gate,
        Activation::ClampedSilu => {
            (gate, up) = (gate.min(7.0), up.clamp(-7.0, 7.0) + 1.0);
            1.702 * gate
        }
        Activation::GeluTanh => (8.0 / PI).sqrt() * (gate + 0.044_715 * gate.powi(3)),
    };
    gate / (1.0 + (-exponent).exp()) * up
}

/// One element of [`crate::soft_cap`].
pub fn soft_cap(x: f32, cap: f32) -> f64 {
    let cap = f64::from(cap);
    cap * (f64::from(x) / cap).tanh()
}

/// [`crate::softmax`] of finite numbers.
pub fn softmax(x: &[f32]) -> Vec<f64> {
    let top = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let e: Vec<f64> = x.iter().map(|&x| (f64::from(x) - f64::from(top)).exp()).collect();
    let sum: f64 = e.iter().sum();
    e.iter().map(|e| e / sum).collect()
}
