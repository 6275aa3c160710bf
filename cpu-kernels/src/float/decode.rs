//! Stored rows to f32 rows.

use super::source::{Ready, Weight};
use crate::int8::panel::PanelFormat;
use crate::matrix::{Affine4, Affine8, Matrix, Weights};
use crate::packed::{Kind, Panels};
use crate::simd::{Kernel, LANES, Simd};
use half::{bf16, f16};
use halfbyte_q4::{BlockQ4_0, BlockQ4_1};
use halfbyte_q8::BlockQ8_0;

/// Writes inputs `from..from + out.len()` of a row as f32: all of them, or blocks of 256, of which `from` is a multiple.
pub(crate) struct DecodeRow<'a, 'o> {
    pub(crate) matrix: Matrix<'a>,
    pub(crate) row: usize,
    pub(crate) from: usize,
    pub(crate) out: &'o mut [f32],
}

impl Kernel for DecodeRow<'_, '_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let out = self.out;
        let n = out.len();
        let from = self.row * self.matrix.cols() + self.from;
        match self.matrix.weights() {
            Weights::F32(w) => out.copy_from_slice(&w[from..from + n]),
            Weights::F16(w) => decode_f16(s, &w[from..from + n], out),
            Weights::Bf16(w) => decode_bf16(s, &w[from..from + n], out),
            Weights::Q8_0(w) => decode_q8_0(s, &w[from / 32..(from + n) / 32], out),
            Weights::Q4_0(w) => decode_q4_0(s, &w[from / 32..(from + n) / 32], out),
            Weights::Q4_1(w) => decode_q4_1(s, &w[from / 32..(from + n) / 32], out),
            Weights::Affine4(w) => decode_affine(&w, from, out),
            Weights::Affine8(w) => decode_affine8(&w, from, out),
            Weights::Packed(w) => decode_packed(s, w, self.row, self.from, out),
            Weights::Q4K(w) => {
                for (block, y) in w[from / 256..(from + n) / 256].iter().zip(out.chunks_exact_mut(256)) {
                    y.copy_from_slice(&block.dequantize());
                }
            }
            Weights::Q6K(w) => {
                for (block, y) in w[from / 256..(from + n) / 256].iter().zip(out.chunks_exact_mut(256)) {
                    y.copy_from_slice(&block.dequantize());
                }
            }
        }
    }
}

#[inline(always)]
fn decode_f16<S: Simd>(s: S, w: &[f16], out: &mut [f32]) {
    let full = w.len() / LANES * LANES;
    for i in (0..full).step_by(LANES) {
        let from = &w[i..i + LANES];
        // SAFETY: `from` holds 16 half-precision numbers.
        s.store_slice(&mut out[i..], unsafe { s.load_f16(from.as_ptr().cast()) });
    }
    for i in full..w.len() {
        out[i] = w[i].to_f32();
    }
}

#[inline(always)]
fn decode_bf16<S: Simd>(s: S, w: &[bf16], out: &mut [f32]) {
    let full = w.len() / LANES * LANES;
    for i in (0..full).step_by(LANES) {
        let from = &w[i..i + LANES];
        // SAFETY: `from` holds 16 bfloat16 numbers.
        s.store_slice(&mut out[i..], unsafe { s.load_bf16(from.as_ptr().cast()) });
    }
    for i in full..w.len() {
        out[i] = w[i].to_f32();
    }
}

#[inline(always)]
fn decode_q8_0<S: Simd>(s: S, blocks: &[BlockQ8_0], out: &mut [f32]) {
    for (block, y) in blocks.iter().zip(out.chunks_exact_mut(32)) {
        eight_bits(s, block.scale.to_f32(), &block.codes, y);
    }
}

#[inline(always)]
fn decode_q4_0<S: Simd>(s: S, blocks: &[BlockQ4_0], out: &mut [f32]) {
    for (block, y) in blocks.iter().zip(out.chunks_exact_mut(32)) {
        four_bits(s, block.scale.to_f32(), &block.codes, y);
    }
}

#[inline(always)]
fn decode_q4_1<S: Simd>(s: S, blocks: &[BlockQ4_1], out: &mut [f32]) {
    for (block, y) in blocks.iter().zip(out.chunks_exact_mut(32)) {
        four_bits_and_min(s, block.scale.to_f32(), block.min.to_f32(), &block.codes, y);
    }
}

/// A group of Q8_0: `w = d * q`.
#[inline(always)]
fn eight_bits<S: Simd>(s: S, d: f32, codes: &[i8; 32], y: &mut [f32]) {
    for half in 0..2 {
        let codes = &codes[LANES * half..][..LANES];
        // SAFETY: `codes` holds 16 bytes.
        let q = unsafe { s.load_i8(codes.as_ptr()) };
        s.store_slice(&mut y[LANES * half..], s.mul(s.splat(d), s.from_i32(q)));
    }
}

/// The low and the high nibbles of 16 bytes.
#[inline(always)]
fn nibbles<S: Simd>(s: S, codes: &[u8; 16]) -> [S::I32; 2] {
    // SAFETY: 16 bytes are readable.
    let bytes = unsafe { s.load_u8(codes.as_ptr()) };
    [s.and(bytes, s.splat_i32(15)), s.shr::<4>(bytes)]
}

/// A group of Q4_0: `w = d * (q - 8)`.
#[inline(always)]
fn four_bits<S: Simd>(s: S, d: f32, codes: &[u8; 16], y: &mut [f32]) {
    let q = nibbles(s, codes);
    for half in 0..2 {
        let signed = s.add_i32(q[half], s.splat_i32(-8));
        s.store_slice(&mut y[LANES * half..], s.mul(s.splat(d), s.from_i32(signed)));
    }
}

/// A group of Q4_1 or, packed, of an affine format: `w = d * q + m`, rounded once.
#[inline(always)]
fn four_bits_and_min<S: Simd>(s: S, d: f32, m: f32, codes: &[u8; 16], y: &mut [f32]) {
    let q = nibbles(s, codes);
    for half in 0..2 {
        s.store_slice(&mut y[LANES * half..], s.fma(s.splat(d), s.from_i32(q[half]), s.splat(m)));
    }
}

/// `w = scale * q + bias`, by fma.
#[inline(always)]
fn decode_affine(w: &Affine4<'_>, from: usize, out: &mut [f32]) {
    for (i, y) in out.chunks_exact_mut(w.group).enumerate() {
        let g = from / w.group + i;
        let (scale, bias) = (w.scales.get(g), w.biases.get(g));
        let words = &w.codes[g * w.group / 8..][..w.group / 8];
        for (word, y) in words.iter().zip(y.chunks_exact_mut(8)) {
            for (n, y) in y.iter_mut().enumerate() {
                *y = scale.mul_add((word >> (4 * n) & 15) as f32, bias);
            }
        }
    }
}

/// The same for codes of 8 bits.
#[inline(always)]
fn decode_affine8(w: &Affine8<'_>, from: usize, out: &mut [f32]) {
    for (i, y) in out.chunks_exact_mut(w.group).enumerate() {
        let g = from / w.group + i;
        let (scale, bias) = (w.scales.get(g), w.biases.get(g));
        let words = &w.codes[g * w.group / 4..][..w.group / 4];
        for (word, y) in words.iter().zip(y.chunks_exact_mut(4)) {
            for (code, y) in word.to_le_bytes().into_iter().zip(y) {
                *y = scale.mul_add(f32::from(code), bias);
            }
        }
    }
}

/// Inputs from `from` on of row `row` of packed weights.
#[inline(always)]
fn decode_packed<S: Simd>(s: S, w: &Panels, row: usize, from: usize, out: &mut [f32]) {
    match w.kind() {
        Kind::F32 => decode_floats::<f32>(w, row, from, out),
        Kind::F16 => decode_floats::<f16>(w, row, from, out),
        Kind::Bf16 => decode_floats::<bf16>(w, row, from, out),
        Kind::Q8_0(format) => decode_panels(s, w, format, row, from, out),
        Kind::Q4_0(format) => decode_panels(s, w, format, row, from, out),
        Kind::Q4_1(format) => decode_panels(s, w, format, row, from, out),
        Kind::Affine4(format) => decode_panels(s, w, format, row, from, out),
    }
}

#[inline(always)]
fn decode_floats<W: Weight + Into<f32>>(w: &Panels, row: usize, from: usize, out: &mut [f32]) {
    let panel = Ready::<W>::new(w).panel(row / LANES);
    for (y, numbers) in out.iter_mut().zip(panel[from * LANES..].chunks_exact(LANES)) {
        *y = numbers[row % LANES].into();
    }
}

#[inline(always)]
fn decode_panels<S: Simd, F: PanelFormat>(
    s: S,
    w: &Panels,
    format: F,
    row: usize,
    from: usize,
    out: &mut [f32],
) {
    let panel_lines = format.panel_lines(w.cols() / 32);
    let (panel, lane) = (row / LANES, row % LANES);
    let panel = &w.lines()[panel * panel_lines..][..panel_lines];
    let inputs = 32 * format.unit_groups();
    let units = panel.chunks(format.unit_lines()).skip(from / inputs).zip(out.chunks_mut(inputs));
    for (unit, y) in units {
        for (k, y) in y.chunks_exact_mut(32).enumerate() {
            let codes = &unit[format.parameter_lines() + F::CODE_LINES * k..][..F::CODE_LINES];
            let d = s.to_array(format.scales(s, unit, k))[lane];
            if F::CODE_LINES == 8 {
                let codes: [u32; 8] = core::array::from_fn(|j| codes[j].0[lane]);
                eight_bits(s, d, bytemuck::cast_ref(&codes), y);
                continue;
            }
            let codes: [u32; 4] = core::array::from_fn(|j| codes[j].0[lane]);
            if F::MIN {
                let m = s.to_array(format.minima(s, unit, k))[lane];
                four_bits_and_min(s, d, m, bytemuck::cast_ref(&codes), y);
            } else {
                four_bits(s, d, bytemuck::cast_ref(&codes), y);
            }
        }
    }
}
