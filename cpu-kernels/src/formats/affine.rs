//! MLX affine groups: codes, scales and biases in arrays of their own.

use super::{FormatInfo, UseInt8Rows, WeightFormat, check_groups};
use crate::error::{Error, check_len};
use crate::int8::AffineRows;
use crate::simd::Simd;
use core::ops::Range;
use half::{bf16, f16};

/// MLX affine weights: `w = scale * code + bias` by groups along a row.
///
/// The codes of a row are a stream of bits, the lowest bit of the first word first: with 4 bits a code, a word holds
/// eight codes, the first in its lowest nibble; with 8 bits four, the first in its lowest byte.
#[derive(Clone, Copy, Debug)]
pub struct Affine<'a> {
    /// Bits of a code: 4 or 8.
    pub bits: usize,
    /// Weights that share a scale and a bias: 32, 64 or 128.
    pub group: usize,
    /// `cols * bits / 32` words a row.
    pub codes: &'a [u32],
    /// `cols / group` scales a row.
    pub scales: Parameters<'a>,
    /// `cols / group` biases a row; files store them in the type of the scales, but any will do.
    pub biases: Parameters<'a>,
}

impl Affine<'_> {
    /// The words that hold the codes of `weights` weights.
    fn words(&self, weights: usize) -> usize {
        weights / 32 * self.bits
    }

    /// [`WeightFormat::decode`] for codes of `BITS` bits, by fma.
    #[inline(always)]
    fn decode_bits<const BITS: usize>(&self, from: usize, out: &mut [f32]) {
        let a_word = 32 / BITS;
        for (i, y) in out.chunks_exact_mut(self.group).enumerate() {
            let g = from / self.group + i;
            let (scale, bias) = (self.scales.get(g), self.biases.get(g));
            let words = &self.codes[g * self.group / a_word..][..self.group / a_word];
            for (word, y) in words.iter().zip(y.chunks_exact_mut(a_word)) {
                for (n, y) in y.iter_mut().enumerate() {
                    *y = scale.mul_add((word >> (BITS * n) & ((1 << BITS) - 1)) as f32, bias);
                }
            }
        }
    }
}

impl WeightFormat for Affine<'_> {
    const INFOS: &'static [FormatInfo] = &[
        FormatInfo { name: "MLX affine 4-bit", int8: true, packs: true },
        FormatInfo { name: "MLX affine 8-bit", int8: false, packs: false },
    ];

    fn info(&self) -> FormatInfo {
        Self::INFOS[usize::from(self.bits != 4)]
    }

    fn check(&self, rows: usize, cols: usize) -> Result<(), Error> {
        if ![4, 8].contains(&self.bits) {
            return Err(Error::Shape { what: "affine bits (4 or 8)", expected: 4, got: self.bits });
        }
        if ![32, 64, 128].contains(&self.group) {
            return Err(Error::Shape { what: "affine group (32, 64 or 128)", expected: 64, got: self.group });
        }
        check_groups(rows, cols, self.group, self.scales.len())?;
        check_len("affine codes", rows.saturating_mul(self.words(cols)), self.codes.len())?;
        check_len("affine biases", self.scales.len(), self.biases.len())
    }

    fn row_range(&self, rows: Range<usize>, cols: usize) -> Self {
        let of = |a_row: usize| rows.start * a_row..rows.end * a_row;
        Self {
            codes: &self.codes[of(self.words(cols))],
            scales: self.scales.range(of(cols / self.group)),
            biases: self.biases.range(of(cols / self.group)),
            ..*self
        }
    }

    fn bytes(&self) -> usize {
        size_of_val(self.codes) + self.scales.bytes() + self.biases.bytes()
    }

    #[inline(always)]
    fn decode<S: Simd>(&self, _: S, from: usize, out: &mut [f32]) {
        match self.bits {
            4 => self.decode_bits::<4>(from, out),
            _ => self.decode_bits::<8>(from, out),
        }
    }

    fn int8_rows<U: UseInt8Rows>(&self, cols: usize, user: U) -> Option<U::Output> {
        (self.bits == 4).then(|| user.run(AffineRows::new(*self, cols)))
    }
}

/// Scales or biases in the type that a file stores.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Parameters<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// IEEE half precision.
    F16(&'a [f16]),
    /// bfloat16.
    Bf16(&'a [bf16]),
}

impl Parameters<'_> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(v) => v.len(),
            Self::F16(v) => v.len(),
            Self::Bf16(v) => v.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those in `range`, which is in bounds.
    fn range(&self, range: Range<usize>) -> Self {
        match self {
            Self::F32(v) => Self::F32(&v[range]),
            Self::F16(v) => Self::F16(&v[range]),
            Self::Bf16(v) => Self::Bf16(&v[range]),
        }
    }

    /// Bytes that they take.
    fn bytes(&self) -> usize {
        match self {
            Self::F32(v) => size_of_val(*v),
            Self::F16(v) => size_of_val(*v),
            Self::Bf16(v) => size_of_val(*v),
        }
    }

    /// Number `i`, exactly.
    ///
    /// # Panics
    /// If `i` is out of range.
    #[inline(always)]
    pub fn get(&self, i: usize) -> f32 {
        match self {
            Self::F32(v) => v[i],
            Self::F16(v) => v[i].to_f32(),
            Self::Bf16(v) => v[i].to_f32(),
        }
    }
}
