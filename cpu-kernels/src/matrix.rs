//! A weight matrix, borrowed from a file or from memory, whose sizes have been checked.

use crate::error::{Error, check_len};
use crate::{Isa, Weights};
use std::ops::Range;

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
    /// more or fewer than the shape needs, [`Error::Shape`] for affine bits other than 4 or 8 or an affine group other than
    /// 32, 64 or 128.
    pub fn new(weights: Weights<'a>, rows: usize, cols: usize) -> Result<Self, Error> {
        weights.check(rows, cols)?;
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
        let count = rows.len();
        let weights = self.weights.row_range(rows, self.cols).ok_or_else(|| Error::Unsupported {
            what: "row_range",
            got: self.weights.name(),
            supported: "matrices before they are packed".to_owned(),
        })?;
        Ok(Self { weights, rows: count, cols: self.cols })
    }

    /// Whether [`crate::PackedMatrix`] packs these weights.
    pub fn supports_packing(&self) -> bool {
        self.weights.info().packs && !matches!(self.weights, Weights::Packed(_))
    }

    /// Bytes that the weights take.
    pub fn bytes(&self) -> usize {
        self.weights.bytes()
    }

    /// Whether [`crate::gemm_int8`] multiplies these weights; [`crate::gemm_f32`] multiplies all.
    pub fn supports_int8(&self) -> bool {
        self.weights.info().int8
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
