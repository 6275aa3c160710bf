//! Weight matrices as they lie in a file or in memory: borrowed, row-major, checked once.

use crate::error::{Error, check_len, check_shape};
use crate::{Isa, Panels};
use half::{bf16, f16};
use halfbyte_q4::k_quants::{BlockQ4K, BlockQ6K};
use halfbyte_q4::{BlockQ4_0, BlockQ4_1};
use halfbyte_q8::BlockQ8_0;
use std::ops::Range;

/// The weights of a matrix, row after row.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Weights<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// IEEE half precision.
    F16(&'a [f16]),
    /// bfloat16.
    Bf16(&'a [bf16]),
    /// Groups of 32: f16 scale, 8-bit codes.
    Q8_0(&'a [BlockQ8_0]),
    /// Groups of 32: f16 scale, 4-bit codes, `w = d * (q - 8)`.
    Q4_0(&'a [BlockQ4_0]),
    /// Groups of 32: f16 scale and min, 4-bit codes, `w = d * q + m`.
    Q4_1(&'a [BlockQ4_1]),
    /// MLX affine 4-bit groups.
    Affine4(Affine4<'a>),
    /// MLX affine 8-bit groups; read by dequantizing.
    Affine8(Affine8<'a>),
    /// K-quant super-blocks of 256, 4-bit; read by dequantizing.
    Q4K(&'a [BlockQ4K]),
    /// K-quant super-blocks of 256, 6-bit; read by dequantizing.
    Q6K(&'a [BlockQ6K]),
    /// Weights packed for these kernels, by [`crate::PackedMatrix`].
    Packed(&'a Panels),
}

impl Weights<'_> {
    /// What messages call the format.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::F32(_) => "F32",
            Self::F16(_) => "F16",
            Self::Bf16(_) => "BF16",
            Self::Q8_0(_) => "Q8_0",
            Self::Q4_0(_) => "Q4_0",
            Self::Q4_1(_) => "Q4_1",
            Self::Affine4(_) => "MLX affine 4-bit",
            Self::Affine8(_) => "MLX affine 8-bit",
            Self::Q4K(_) => "Q4_K",
            Self::Q6K(_) => "Q6_K",
            Self::Packed(w) => w.name(),
        }
    }
}

/// MLX affine 4-bit weights: `w = scale * code + bias` by groups along a row.
#[derive(Clone, Copy, Debug)]
pub struct Affine4<'a> {
    /// Eight codes a word, lowest nibble first: `cols / 8` words a row.
    pub codes: &'a [u32],
    /// `cols / group` scales a row.
    pub scales: Parameters<'a>,
    /// `cols / group` biases a row; files store them in the type of the scales, but any will do.
    pub biases: Parameters<'a>,
    /// Weights that share a scale and a bias: 32, 64 or 128.
    pub group: usize,
}

/// MLX affine 8-bit weights: `w = scale * code + bias` by groups along a row.
#[derive(Clone, Copy, Debug)]
pub struct Affine8<'a> {
    /// Four codes of 0 to 255 a word, the first in the lowest byte: `cols / 4` words a row.
    pub codes: &'a [u32],
    /// `cols / group` scales a row.
    pub scales: Parameters<'a>,
    /// `cols / group` biases a row; files store them in the type of the scales, but any will do.
    pub biases: Parameters<'a>,
    /// Weights that share a scale and a bias: 32, 64 or 128.
    pub group: usize,
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

/// A weight matrix of `rows` outputs by `cols` inputs, borrowed; its sizes are known to agree.
///
/// ```
/// use halfbyte_cpu_kernels::{Isa, Matrix, Weights};
/// let w = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
/// let m = Matrix::new(Weights::F32(&w), 2, 3).unwrap();
/// let mut row = [0.0; 3];
/// m.decode_row(Isa::fastest(), 1, &mut row).unwrap();
/// assert_eq!(row, [4.0, 5.0, 6.0]);
/// assert_eq!(
///     Matrix::new(Weights::F32(&w), 4, 3).unwrap_err().to_string(),
///     "weights: expected 12 elements, got 6"
/// );
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    weights: Weights<'a>,
    rows: usize,
    cols: usize,
}

impl<'a> Matrix<'a> {
    /// `weights` as `rows` x `cols`.
    ///
    /// # Errors
    /// [`Error::Group`] if `cols` is no multiple of the format's group, [`Error::Length`] if the weights are
    /// more or fewer than the shape needs, [`Error::Shape`] for an affine group other than 32, 64 or 128.
    pub fn new(weights: Weights<'a>, rows: usize, cols: usize) -> Result<Self, Error> {
        let blocks = |group: usize, len: usize| {
            if !cols.is_multiple_of(group) {
                return Err(Error::Group { what: "columns of the weights", cols, group });
            }
            check_len("weights", rows.saturating_mul(cols / group), len)
        };
        match weights {
            Weights::F32(w) => blocks(1, w.len())?,
            Weights::F16(w) => blocks(1, w.len())?,
            Weights::Bf16(w) => blocks(1, w.len())?,
            Weights::Q8_0(w) => blocks(32, w.len())?,
            Weights::Q4_0(w) => blocks(32, w.len())?,
            Weights::Q4_1(w) => blocks(32, w.len())?,
            Weights::Q4K(w) => blocks(256, w.len())?,
            Weights::Q6K(w) => blocks(256, w.len())?,
            Weights::Affine4(w) => {
                check_affine_group(w.group)?;
                blocks(w.group, w.scales.len())?;
                check_len("affine codes", rows.saturating_mul(cols / 8), w.codes.len())?;
                check_len("affine biases", w.scales.len(), w.biases.len())?;
            }
            Weights::Affine8(w) => {
                check_affine_group(w.group)?;
                blocks(w.group, w.scales.len())?;
                check_len("affine codes", rows.saturating_mul(cols / 4), w.codes.len())?;
                check_len("affine biases", w.scales.len(), w.biases.len())?;
            }
            Weights::Packed(w) => {
                check_shape("rows of the packed weights", w.rows(), rows)?;
                check_shape("columns of the packed weights", w.cols(), cols)?;
            }
        }
        Ok(Self { weights, rows, cols })
    }

    /// Weights whose sizes agree, as [`Self::new`] has found before.
    pub(crate) fn of_packed(weights: Weights<'a>, rows: usize, cols: usize) -> Self {
        Self { weights, rows, cols }
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The weights.
    pub fn weights(&self) -> Weights<'a> {
        self.weights
    }

    /// The matrix of these rows alone, borrowed from the same place.
    ///
    /// # Errors
    /// [`Error::Shape`] if the range ends before it begins or behind the last row, [`Error::Unsupported`] for packed
    /// weights, whose rows lie side by side.
    ///
    /// ```
    /// use halfbyte_cpu_kernels::{Isa, Matrix, Weights};
    /// let m = Matrix::new(Weights::F32(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), 3, 2)?;
    /// let last = m.row_range(2..3)?;
    /// let mut row = [0.0; 2];
    /// last.decode_row(Isa::fastest(), 0, &mut row)?;
    /// assert_eq!((last.rows(), row), (1, [5.0, 6.0]));
    /// # Ok::<(), halfbyte_cpu_kernels::Error>(())
    /// ```
    pub fn row_range(&self, rows: Range<usize>) -> Result<Self, Error> {
        if rows.end > self.rows {
            let (expected, got) = (self.rows, rows.end);
            return Err(Error::Shape { what: "end of the rows within the matrix", expected, got });
        }
        if rows.start > rows.end {
            let (expected, got) = (rows.end, rows.start);
            return Err(Error::Shape { what: "start of the rows before their end", expected, got });
        }
        // Units of `group` weights each.
        let of = |group: usize| {
            let units = self.cols / group;
            rows.start * units..rows.end * units
        };
        let weights = match self.weights {
            Weights::F32(w) => Weights::F32(&w[of(1)]),
            Weights::F16(w) => Weights::F16(&w[of(1)]),
            Weights::Bf16(w) => Weights::Bf16(&w[of(1)]),
            Weights::Q8_0(w) => Weights::Q8_0(&w[of(32)]),
            Weights::Q4_0(w) => Weights::Q4_0(&w[of(32)]),
            Weights::Q4_1(w) => Weights::Q4_1(&w[of(32)]),
            Weights::Q4K(w) => Weights::Q4K(&w[of(256)]),
            Weights::Q6K(w) => Weights::Q6K(&w[of(256)]),
            Weights::Affine4(w) => Weights::Affine4(Affine4 {
                codes: &w.codes[of(8)],
                scales: w.scales.range(of(w.group)),
                biases: w.biases.range(of(w.group)),
                ..w
            }),
            Weights::Affine8(w) => Weights::Affine8(Affine8 {
                codes: &w.codes[of(4)],
                scales: w.scales.range(of(w.group)),
                biases: w.biases.range(of(w.group)),
                ..w
            }),
            Weights::Packed(w) => {
                let supported = "matrices before they are packed";
                return Err(Error::Unsupported { what: "row_range", got: w.name(), supported });
            }
        };
        Ok(Self { weights, rows: rows.len(), cols: self.cols })
    }

    /// Whether [`crate::PackedMatrix`] packs these weights.
    pub fn supports_packing(&self) -> bool {
        !matches!(self.weights, Weights::Affine8(_) | Weights::Q4K(_) | Weights::Q6K(_) | Weights::Packed(_))
    }

    /// Bytes that the weights take.
    pub fn bytes(&self) -> usize {
        match self.weights {
            Weights::F32(w) => size_of_val(w),
            Weights::F16(w) => size_of_val(w),
            Weights::Bf16(w) => size_of_val(w),
            Weights::Q8_0(w) => size_of_val(w),
            Weights::Q4_0(w) => size_of_val(w),
            Weights::Q4_1(w) => size_of_val(w),
            Weights::Q4K(w) => size_of_val(w),
            Weights::Q6K(w) => size_of_val(w),
            Weights::Affine4(w) => size_of_val(w.codes) + w.scales.bytes() + w.biases.bytes(),
            Weights::Affine8(w) => size_of_val(w.codes) + w.scales.bytes() + w.biases.bytes(),
            Weights::Packed(w) => w.bytes(),
        }
    }

    /// Whether [`crate::gemm_int8`] multiplies these weights; [`crate::gemm_f32`] multiplies all.
    pub fn supports_int8(&self) -> bool {
        match self.weights {
            Weights::Q8_0(_) | Weights::Q4_0(_) | Weights::Q4_1(_) | Weights::Affine4(_) => true,
            Weights::Packed(w) => w.is_quantized(),
            _ => false,
        }
    }

    /// Writes row `row` as f32, by the format's own formula: what an embedding look-up needs. The bits do not depend
    /// on `isa`.
    ///
    /// # Errors
    /// [`Error::Length`] if `out` is not `cols` long, [`Error::Shape`] if there is no such row.
    pub fn decode_row(&self, isa: Isa, row: usize, out: &mut [f32]) -> Result<(), Error> {
        check_len("decoded row", self.cols, out.len())?;
        if row >= self.rows {
            return Err(Error::Shape { what: "row below the number of rows", expected: self.rows, got: row });
        }
        isa.dispatch(crate::float::DecodeRow { matrix: *self, row, from: 0, out });
        Ok(())
    }
}

/// A group that MLX's affine formats have.
fn check_affine_group(group: usize) -> Result<(), Error> {
    if [32, 64, 128].contains(&group) {
        Ok(())
    } else {
        Err(Error::Shape { what: "affine group (32, 64 or 128)", expected: 64, got: group })
    }
}
