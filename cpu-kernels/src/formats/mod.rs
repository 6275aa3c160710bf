//! What this crate knows of each stored weight format: its name, its sizes, how a row becomes f32, and which kernels read
//! its rows without decoding them first.
//!
//! `docs/add-a-weight-format.md` of the repository has all steps to add a format. In this crate, for one whose weights lie
//! in equal blocks, implement [`Block`] for the block's type in a file of this folder, and add a line to the table in
//! `weights.rs`. Sizes, error messages, decoded rows and products with f32 activations follow from these. A format that the int8 tiles can multiply also hands out its rows in [`Block::int8_rows`].

mod affine;
mod blocks;
mod floats;
mod ggml;
mod grouped;

pub use affine::{Affine, Parameters};
pub(crate) use grouped::{Group, GroupedBlock};

use crate::error::{Error, check_len};
use crate::float::Weight;
use crate::int8::PanelRows;
use crate::simd::Simd;
use bytemuck::Pod;
use core::ops::Range;

/// What the kernels of this crate do with a weight format. [`Weights::formats`](crate::Weights::formats) lists all.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatInfo {
    /// The name that messages use; for formats of GGUF files it is GGUF's.
    pub name: &'static str,
    /// Whether [`gemm_int8`](crate::gemm_int8) multiplies such weights. [`gemm_f32`](crate::gemm_f32) multiplies all.
    pub int8: bool,
    /// Whether [`PackedMatrix`](crate::PackedMatrix) packs such weights.
    pub packs: bool,
}

/// Weights of one format, borrowed: rows of whole groups, one after the other.
pub(crate) trait WeightFormat: Copy + Send + Sync {
    /// All infos that [`Self::info`] can give for a checked matrix.
    const INFOS: &'static [FormatInfo];

    /// The info of these weights.
    fn info(&self) -> FormatInfo;

    /// Checks that the weights are those of `rows` x `cols`.
    fn check(&self, rows: usize, cols: usize) -> Result<(), Error>;

    /// The weights of `rows` alone, which exist, of a matrix of `cols` columns.
    fn row_range(&self, rows: Range<usize>, cols: usize) -> Self;

    /// The bytes that the weights take.
    fn bytes(&self) -> usize;

    /// Decodes `out.len()` weights from weight `from` on, both whole groups.
    fn decode<S: Simd>(&self, s: S, from: usize, out: &mut [f32]);

    /// Passes the weights to `user` if they are plain floats.
    fn float_rows<U: UseFloatRows>(&self, _user: U) -> Option<U::Output> {
        None
    }

    /// Passes the rows, of `cols` columns, to `user` if the int8 tiles can multiply them.
    fn int8_rows<U: UseInt8Rows>(&self, _cols: usize, _user: U) -> Option<U::Output> {
        None
    }
}

/// What is done with rows of plain floats, whatever their type.
pub(crate) trait UseFloatRows {
    /// What comes of it.
    type Output;
    /// Does it with `numbers`, row after row.
    fn run<W: Weight>(self, numbers: &[W]) -> Self::Output;
}

/// What is done with rows for the int8 tiles, whatever their format.
pub(crate) trait UseInt8Rows {
    /// What comes of it.
    type Output;
    /// Does it with `rows`.
    fn run<R: PanelRows>(self, rows: R) -> Self::Output;
}

/// A format whose weights lie in equal blocks: a plain number is a block of one weight.
pub(crate) trait Block: Pod + Send + Sync {
    /// What the kernels do with the format.
    const INFO: FormatInfo;
    /// Weights of a block, a divisor of [`crate::float::BLOCK`].
    const WEIGHTS: usize;

    /// Decodes `blocks`; `out` has room for their weights.
    fn decode<S: Simd>(s: S, blocks: &[Self], out: &mut [f32]);

    /// [`WeightFormat::float_rows`] of `blocks`.
    fn float_rows<U: UseFloatRows>(_blocks: &[Self], _user: U) -> Option<U::Output> {
        None
    }

    /// [`WeightFormat::int8_rows`] of `blocks`.
    fn int8_rows<U: UseInt8Rows>(_blocks: &[Self], _cols: usize, _user: U) -> Option<U::Output> {
        None
    }
}

impl<B: Block> WeightFormat for &[B] {
    const INFOS: &'static [FormatInfo] = &[B::INFO];

    fn info(&self) -> FormatInfo {
        B::INFO
    }

    fn check(&self, rows: usize, cols: usize) -> Result<(), Error> {
        check_groups(rows, cols, B::WEIGHTS, self.len())
    }

    fn row_range(&self, rows: Range<usize>, cols: usize) -> Self {
        let blocks = cols / B::WEIGHTS;
        &self[rows.start * blocks..rows.end * blocks]
    }

    fn bytes(&self) -> usize {
        size_of_val(*self)
    }

    #[inline(always)]
    fn decode<S: Simd>(&self, s: S, from: usize, out: &mut [f32]) {
        B::decode(s, &self[from / B::WEIGHTS..(from + out.len()) / B::WEIGHTS], out);
    }

    fn float_rows<U: UseFloatRows>(&self, user: U) -> Option<U::Output> {
        B::float_rows(self, user)
    }

    fn int8_rows<U: UseInt8Rows>(&self, cols: usize, user: U) -> Option<U::Output> {
        B::int8_rows(self, cols, user)
    }
}

/// Checks that a row of `cols` weights is whole groups, and that there are as many groups as `rows` rows need.
fn check_groups(rows: usize, cols: usize, group: usize, got: usize) -> Result<(), Error> {
    if !cols.is_multiple_of(group) {
        return Err(Error::Group { what: "columns of the weights", cols, group });
    }
    check_len("weights", rows.saturating_mul(cols / group), got)
}
