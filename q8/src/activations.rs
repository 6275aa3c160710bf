//! int8 activations: the input of a layer, quantized before it is multiplied by 4-bit or 8-bit weights.
//!
//! A matrix of `rows` tokens by `cols` features. Each group of 32 along a row has an f32 scale and
//! the i32 sum of its codes. With the sum a kernel corrects for the constant offset of weight codes,
//! `sum((q - 8) * x) = sum(q * x) - 8 * sum(x)`, which is then computed once per vector and not once per weight row.
//!
//! ```text
//! codes   rows x cols        i8,  row-major
//! scales  rows x cols / 32   f32, row-major
//! sums    rows x cols / 32   i32, row-major
//! ```
//!
//! # The rule
//!
//! Exact to the bit, so that a vectorised twin can be compared with [`quantize_group`]. With
//! `amax = max |x|` of the group, every operation in f32, rounded to nearest even:
//!
//! 1. some `x` is NaN or infinite: `scale = NaN`, codes 0, sum 0. Every output that uses the group
//!    is NaN, as it would be without quantization.
//! 2. `amax < 127 * f32::MIN_POSITIVE` (1.5e-36): `scale = 0`, codes 0, sum 0.
//! 3. else `scale = amax / 127`, `inv = 127 / amax`, `code = round_ties_even(x * inv)`.
//!
//! Rule 2 keeps `scale` and `inv` normal numbers, so the result does not depend on whether the
//! processor flushes subnormals. Codes stay within -127..=127: `|x * inv|` is at most 127 with two
//! roundings, far from 127.5. -128 never occurs, so that negation, and with it the sign trick of some
//! dot-product instructions, is safe.

use crate::GROUP;
use crate::error::{Error, check_len};

/// Below this a group counts as zero; the guard of rule 2.
const AMAX_MIN: f32 = 127.0 * f32::MIN_POSITIVE;

/// Quantizes one group: the reference for every faster quantizer.
///
/// Returns codes, scale and the sum of the codes, as the three rules of [`Activations`] say;
/// `x[i]` is `scale * codes[i]` to within `scale / 2` and a rounding error.
///
/// ```
/// let mut x = [0.0; 32];
/// x[0] = -254.0;
/// x[1] = 3.0;
/// let (codes, scale, sum) = halfbyte_q8::quantize_group(&x);
/// assert_eq!((codes[0], codes[1], scale, sum), (-127, 2, 2.0, -125));
/// ```
#[must_use]
pub fn quantize_group(x: &[f32; GROUP]) -> ([i8; GROUP], f32, i32) {
    // The bits of |x| as integers order like the numbers, with infinity and the NaNs on top:
    // a maximum that does not lose a NaN, and vectorises.
    let amax = f32::from_bits(x.iter().fold(0, |m, v| m.max(v.abs().to_bits())));
    if !amax.is_finite() {
        return ([0; GROUP], f32::NAN, 0);
    }
    if amax < AMAX_MIN {
        return ([0; GROUP], 0.0, 0);
    }
    let inv = 127.0 / amax;
    let codes = x.map(|v| round_ties_even(v * inv) as i8);
    let sum = codes.iter().map(|&q| i32::from(q)).sum();
    (codes, amax / 127.0, sum)
}

/// `v.round_ties_even()` for `|v| < 2^22`, to an integer. At 1.5 * 2^23 the spacing of f32 is 1, so
/// the addition rounds; the low bits of the sum are the result. Unlike the method it needs no libm
/// call on plain x86-64.
fn round_ties_even(v: f32) -> i32 {
    const SHIFT: f32 = 12_582_912.0;
    (v + SHIFT).to_bits().wrapping_sub(SHIFT.to_bits()) as i32
}

/// A matrix of int8 activations with group scales and group sums.
///
/// The buffers keep their memory when the shape changes, so one value serves every step of a model
/// without allocating. Numerics: [`quantize_group`]'s, group by group, so a row's bits do not
/// depend on the rows beside it. In full: with `amax` the largest magnitude of a group, a non-finite
/// `amax` gives scale NaN and codes 0; `amax < 127 * f32::MIN_POSITIVE` gives scale 0 and codes 0; else
/// `scale = amax / 127` and `code = round_ties_even(x * (127 / amax))`, in f32, within -127..=127.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Activations {
    rows: usize,
    cols: usize,
    codes: Vec<i8>,
    scales: Vec<f32>,
    sums: Vec<i32>,
}

/// Numbers in the matrix, or why the shape is impossible.
fn check_shape(rows: usize, cols: usize) -> Result<usize, Error> {
    if !cols.is_multiple_of(GROUP) {
        return Err(Error::NotWholeGroups { group: GROUP, got: cols });
    }
    rows.checked_mul(cols).filter(|&n| n <= isize::MAX as usize).ok_or(Error::TooLarge { rows, cols })
}

impl Activations {
    /// A matrix with no rows and no columns; allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty matrix (0 x `cols`) with room for `max_rows` rows of `cols` numbers, or for any other
    /// shape of no more numbers.
    ///
    /// # Errors
    ///
    /// [`Error::NotWholeGroups`] when `cols` is not a multiple of 32, [`Error::TooLarge`].
    pub fn with_capacity(max_rows: usize, cols: usize) -> Result<Self, Error> {
        let n = check_shape(max_rows, cols)?;
        Ok(Self {
            rows: 0,
            cols,
            codes: Vec::with_capacity(n),
            scales: Vec::with_capacity(n / GROUP),
            sums: Vec::with_capacity(n / GROUP),
        })
    }

    /// Gives the matrix a shape. Allocates only beyond the capacity; contents are unspecified (but
    /// initialised) until a quantizer has written them.
    ///
    /// # Errors
    ///
    /// [`Error::NotWholeGroups`] when `cols` is not a multiple of 32, [`Error::TooLarge`]; the
    /// matrix is unchanged then.
    pub fn resize(&mut self, rows: usize, cols: usize) -> Result<(), Error> {
        let n = check_shape(rows, cols)?;
        self.codes.resize(n, 0);
        self.scales.resize(n / GROUP, 0.0);
        self.sums.resize(n / GROUP, 0);
        (self.rows, self.cols) = (rows, cols);
        Ok(())
    }

    /// Resizes to `rows` x `cols` and quantizes `x` (`rows * cols` numbers, row-major), one pass
    /// over each group. NaN and infinity are no error: the scale of their group becomes NaN.
    ///
    /// This is the plain form, on the calling thread. Programs that multiply with `halfbyte-cpu-kernels` use its
    /// `quantize_activations`, which writes the same bits with SIMD and on all threads of a pool.
    ///
    /// # Errors
    ///
    /// [`Error::NotWholeGroups`], [`Error::TooLarge`], [`Error::Length`] for `x`; the matrix is
    /// unchanged then.
    pub fn quantize(&mut self, x: &[f32], rows: usize, cols: usize) -> Result<(), Error> {
        check_len("x", check_shape(rows, cols)?, x.len())?;
        self.resize(rows, cols)?;
        let groups = x.as_chunks::<GROUP>().0.iter().zip(self.codes.as_chunks_mut::<GROUP>().0);
        for ((x, codes), (scale, sum)) in groups.zip(self.scales.iter_mut().zip(&mut self.sums)) {
            (*codes, *scale, *sum) = quantize_group(x);
        }
        Ok(())
    }

    /// Rows, usually tokens.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers in a row, a multiple of 32.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Groups in a row, `cols / 32`.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.cols / GROUP
    }

    /// The codes of a row, `cols` of them.
    ///
    /// # Panics
    ///
    /// When `row >= rows`, as do the other accessors by row.
    #[must_use]
    pub fn codes(&self, row: usize) -> &[i8] {
        self.check_row(row);
        &self.codes[row * self.cols..][..self.cols]
    }

    /// The group scales of a row, `groups` of them.
    ///
    /// # Panics
    ///
    /// When `row >= rows`.
    #[must_use]
    pub fn scales(&self, row: usize) -> &[f32] {
        self.check_row(row);
        &self.scales[row * self.groups()..][..self.groups()]
    }

    /// The sums of the codes of a row's groups, `groups` of them, each within ±4064.
    ///
    /// # Panics
    ///
    /// When `row >= rows`.
    #[must_use]
    pub fn sums(&self, row: usize) -> &[i32] {
        self.check_row(row);
        &self.sums[row * self.groups()..][..self.groups()]
    }

    /// Codes, scales and sums of one row, for a quantizer outside this crate. Whoever writes keeps the
    /// three in agreement and -128 out of the codes.
    ///
    /// # Panics
    ///
    /// When `row >= rows`.
    pub fn row_mut(&mut self, row: usize) -> (&mut [i8], &mut [f32], &mut [i32]) {
        self.check_row(row);
        let groups = self.groups();
        (
            &mut self.codes[row * self.cols..][..self.cols],
            &mut self.scales[row * groups..][..groups],
            &mut self.sums[row * groups..][..groups],
        )
    }

    /// The codes (`rows * cols`), scales and sums (`rows * cols / 32` each) of all rows, row-major, for a quantizer
    /// outside this crate that splits them among threads. Whoever writes keeps the three in agreement and -128 out of
    /// the codes.
    pub fn parts_mut(&mut self) -> (&mut [i8], &mut [f32], &mut [i32]) {
        (&mut self.codes, &mut self.scales, &mut self.sums)
    }

    /// A row out of range is a bug of the caller that slicing alone would miss when `cols` is 0.
    fn check_row(&self, row: usize) {
        assert!(row < self.rows, "row {row} of a matrix of {} rows", self.rows);
    }
}
