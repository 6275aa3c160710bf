//! Integer activations: the input of a layer, quantized before it is multiplied by 4-bit or 8-bit weights.
//!
//! A matrix of `rows` tokens by `cols` features. Each group of 32 along a row has an f32 scale and
//! the i32 sum of its codes. With the sum a kernel corrects for the constant offset of weight codes,
//! `sum((q - 8) * x) = sum(q * x) - 8 * sum(x)`, which is then computed once per vector and not once per weight row.
//!
//! A code has 8 bits or 16: `code = low + 256 * high`. Few codes have a high byte that is not 0, and kernels look only
//! at those: `wide` has a bit for each four inputs of a group that says whether any of them has one.
//!
//! ```text
//! low     rows x cols        i8,  row-major
//! high    rows x cols        i8,  row-major   | none with Precision::Int8
//! wide    rows x cols / 32   u8,  row-major   | bit j: inputs 4 j .. 4 j + 4 of the group
//! scales  rows x cols / 32   f32, row-major
//! sums    rows x cols / 32   i32, row-major
//! ```

use crate::GROUP;
use crate::error::{Error, check_len};
use crate::rounding::{Group, Precision, high_byte, low_byte, quantize_group};

/// A matrix of integer activations with group scales and group sums.
///
/// The buffers keep their memory when the shape changes, so one value serves every step of a model
/// without allocating. Numerics: [`quantize_group`]'s, group by group, with the limit that [`Precision::limit`] gives for
/// the row, so a row's bits do not depend on the rows beside it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Activations {
    precision: Precision,
    rows: usize,
    cols: usize,
    low: Vec<i8>,
    high: Vec<i8>,
    wide: Vec<u8>,
    scales: Vec<f32>,
    sums: Vec<i32>,
}

/// All numbers of an [`Activations`], row-major, for a quantizer outside this crate that splits them among threads.
///
/// Whoever writes keeps them in agreement, as [`Part::set`] does, and -128 out of the bytes of the codes.
#[derive(Debug)]
pub struct Part<'a> {
    /// Low bytes of the codes, 32 for each group.
    pub low: &'a mut [i8],
    /// High bytes, as many, or none with [`Precision::Int8`].
    pub high: &'a mut [i8],
    /// Which quarters of eight of a group have high bytes; one for each group, or none.
    pub wide: &'a mut [u8],
    /// Steps, one for each group.
    pub scales: &'a mut [f32],
    /// Sums of the codes, one for each group.
    pub sums: &'a mut [i32],
}

impl<'a> Part<'a> {
    /// Groups in this part.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.scales.len()
    }

    /// Group `i` becomes `group`. Without high bytes its codes must be within -127..=127.
    ///
    /// # Panics
    ///
    /// If there is no group `i`.
    pub fn set(&mut self, i: usize, group: &Group) {
        let bytes = i * GROUP..(i + 1) * GROUP;
        for (low, &code) in self.low[bytes.clone()].iter_mut().zip(&group.codes) {
            *low = low_byte(code);
        }
        if let Some(wide) = self.wide.get_mut(i) {
            let high = &mut self.high[bytes];
            for (high, &code) in high.iter_mut().zip(&group.codes) {
                *high = high_byte(code);
            }
            *wide = wide_words(high);
        }
        (self.scales[i], self.sums[i]) = (group.scale, group.sum());
    }

    /// The first `groups` groups, and the others.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    #[must_use]
    pub fn split_at(self, groups: usize) -> (Part<'a>, Part<'a>) {
        let wide = groups.min(self.wide.len());
        let (low, low2) = self.low.split_at_mut(groups * GROUP);
        let (high, high2) = self.high.split_at_mut(wide * GROUP);
        let (wide, wide2) = self.wide.split_at_mut(wide);
        let (scales, scales2) = self.scales.split_at_mut(groups);
        let (sums, sums2) = self.sums.split_at_mut(groups);
        (
            Part { low, high, wide, scales, sums },
            Part { low: low2, high: high2, wide: wide2, scales: scales2, sums: sums2 },
        )
    }
}

/// Bit `j` says whether any of bytes `4 j .. 4 j + 4` is not 0; eight words at most.
#[must_use]
pub fn wide_words(high: &[i8]) -> u8 {
    high.chunks(4).take(8).enumerate().fold(0, |bits, (j, word)| bits | u8::from(word != [0; 4]) << j)
}

/// Numbers in the matrix, or why the shape is impossible.
fn check_shape(rows: usize, cols: usize) -> Result<usize, Error> {
    if !cols.is_multiple_of(GROUP) {
        return Err(Error::NotWholeGroups { group: GROUP, got: cols });
    }
    rows.checked_mul(cols).filter(|&n| n <= isize::MAX as usize).ok_or(Error::TooLarge { rows, cols })
}

impl Activations {
    /// A matrix of 8-bit codes with no rows and no columns; allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A matrix with no rows and no columns whose codes will have these bits; allocates nothing.
    #[must_use]
    pub fn with_precision(precision: Precision) -> Self {
        Self { precision, ..Self::default() }
    }

    /// Makes room for `max_rows` rows of `cols` numbers, or for any other shape of no more numbers, so that no later
    /// call has to.
    ///
    /// # Errors
    ///
    /// [`Error::NotWholeGroups`] when `cols` is not a multiple of 32, [`Error::TooLarge`].
    pub fn reserve(&mut self, max_rows: usize, cols: usize) -> Result<(), Error> {
        let n = check_shape(max_rows, cols)?;
        let more = |len: usize, n: usize| n.saturating_sub(len);
        self.low.reserve(more(self.low.len(), n));
        if self.precision.has_high_bytes() {
            self.high.reserve(more(self.high.len(), n));
            self.wide.reserve(more(self.wide.len(), n / GROUP));
        }
        self.scales.reserve(more(self.scales.len(), n / GROUP));
        self.sums.reserve(more(self.sums.len(), n / GROUP));
        Ok(())
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
        self.low.resize(n, 0);
        if self.precision.has_high_bytes() {
            self.high.resize(n, 0);
            self.wide.resize(n / GROUP, 0);
        }
        self.scales.resize(n / GROUP, 0.0);
        self.sums.resize(n / GROUP, 0);
        (self.rows, self.cols) = (rows, cols);
        Ok(())
    }

    /// Resizes to `rows` x `cols` and quantizes `x` (`rows * cols` numbers, row-major). NaN and infinity are no error: the
    /// scale of their group becomes NaN.
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
        let (precision, groups) = (self.precision, self.groups());
        let mut all = self.part_mut();
        for (r, row) in x.chunks_exact(cols.max(1)).enumerate() {
            let limit = precision.limit(row);
            for (g, x) in row.as_chunks::<GROUP>().0.iter().enumerate() {
                all.set(r * groups + g, &quantize_group(x, limit));
            }
        }
        Ok(())
    }

    /// How many bits the codes may have.
    #[must_use]
    pub fn precision(&self) -> Precision {
        self.precision
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

    /// The low bytes of the codes of a row, `cols` of them: the codes themselves with [`Precision::Int8`].
    ///
    /// # Panics
    ///
    /// When `row >= rows`, as do the other accessors by row.
    #[must_use]
    pub fn low(&self, row: usize) -> &[i8] {
        self.check_row(row);
        &self.low[row * self.cols..][..self.cols]
    }

    /// The high bytes of the codes of a row, `cols` of them, or none with [`Precision::Int8`].
    ///
    /// # Panics
    ///
    /// When `row >= rows`.
    #[must_use]
    pub fn high(&self, row: usize) -> &[i8] {
        self.check_row(row);
        if self.precision.has_high_bytes() { &self.high[row * self.cols..][..self.cols] } else { &[] }
    }

    /// For each group of a row, which of its words of four inputs have high bytes that are not 0: bit `j` stands for
    /// inputs `4 j .. 4 j + 4`. None with [`Precision::Int8`].
    ///
    /// # Panics
    ///
    /// When `row >= rows`.
    #[must_use]
    pub fn wide(&self, row: usize) -> &[u8] {
        self.check_row(row);
        if self.precision.has_high_bytes() { &self.wide[row * self.groups()..][..self.groups()] } else { &[] }
    }

    /// Code `col` of a row, `low + 256 * high`.
    ///
    /// # Panics
    ///
    /// When `row >= rows` or `col >= cols`.
    #[must_use]
    pub fn code(&self, row: usize, col: usize) -> i32 {
        let high = self.high(row).get(col).copied().unwrap_or(0);
        i32::from(self.low(row)[col]) + 256 * i32::from(high)
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

    /// The sums of the codes of a row's groups, `groups` of them, each within 32 times the largest code.
    ///
    /// # Panics
    ///
    /// When `row >= rows`.
    #[must_use]
    pub fn sums(&self, row: usize) -> &[i32] {
        self.check_row(row);
        &self.sums[row * self.groups()..][..self.groups()]
    }

    /// All rows, for a quantizer outside this crate.
    pub fn part_mut(&mut self) -> Part<'_> {
        Part {
            low: &mut self.low,
            high: &mut self.high,
            wide: &mut self.wide,
            scales: &mut self.scales,
            sums: &mut self.sums,
        }
    }

    /// A row out of range is a bug of the caller that slicing alone would miss when `cols` is 0.
    fn check_row(&self, row: usize) {
        assert!(row < self.rows, "row {row} of a matrix of {} rows", self.rows);
    }
}
