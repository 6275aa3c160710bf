//! What can be wrong with an imatrix file or with what is added to one.

use std::io;
use std::path::PathBuf;

use crate::TensorType;

/// Why an imatrix could not be read, written or added to.
///
/// Names that come from a file are shown quoted and escaped. Entries, rows and columns count from 0.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be opened, or it is not a regular file.
    #[error("cannot open {}", path.display())]
    Open {
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file could not be read to its end.
    #[error("cannot read the imatrix")]
    Read {
        /// What the system said.
        source: io::Error,
    },
    /// The file could not be written. Where it was to replace another, that one is as it was.
    #[error("cannot write the imatrix")]
    Write {
        /// What the system said.
        source: io::Error,
    },
    /// The GGUF file is damaged or could not be written.
    #[error(transparent)]
    Gguf(#[from] crate::Error),
    /// A sound GGUF file that is something else: a model, most likely.
    #[error("general.type of the GGUF file is {got:?}: expected \"imatrix\"")]
    NotImatrix {
        /// The type found; empty if there is none.
        got: String,
    },
    /// No matrix with a count above 0, which llama.cpp refuses as well.
    #[error("the imatrix has no entries")]
    Empty,
    /// The file ends inside a value.
    #[error("{place} takes {expected} bytes, but the file has {got} left")]
    Truncated {
        /// The value: `entry 3: values`, ...
        place: String,
        /// Its size in bytes.
        expected: u64,
        /// Bytes left in the file.
        got: u64,
    },
    /// The file goes on after its last value.
    #[error("{got} bytes follow the end of the imatrix: expected none")]
    TrailingBytes {
        /// How many.
        got: u64,
    },
    /// A count or length that no imatrix has. For [`Format::Dat`](super::Format::Dat) the first of these may just as
    /// well mean a file of another kind.
    #[error("{place} is {got}: expected {min} to {max}")]
    Range {
        /// The number: `entry 3: length of the name`, ...
        place: String,
        /// Its value.
        got: u64,
        /// The least that is accepted.
        min: u64,
        /// The most that is accepted.
        max: u64,
    },
    /// A text that must be UTF-8 and is not.
    #[error("{place} is not UTF-8")]
    Utf8 {
        /// The text: `entry 3: name`, ...
        place: String,
    },
    /// Two entries with one name.
    #[error("{tensor:?} occurs twice: expected each name once")]
    Duplicate {
        /// The name.
        tensor: String,
    },
    /// Sums without counts or counts without sums.
    #[error("{tensor:?} has no tensor {missing}, only the other of the pair")]
    Unpaired {
        /// The matrix that the pair is of.
        tensor: String,
        /// The last part of the missing tensor's name.
        missing: &'static str,
    },
    /// Sums or counts that are not stored as F32.
    #[error("tensor {tensor:?} is stored as {got}: expected F32")]
    Type {
        /// The tensor with the sums or counts.
        tensor: String,
        /// How it is stored.
        got: TensorType,
    },
    /// Sums that cannot be shared out among the counts.
    #[error("{tensor:?} has {counts} counts for {sums} sums: expected the same number of sums for each")]
    Uneven {
        /// The matrix.
        tensor: String,
        /// How many sums there are.
        sums: usize,
        /// How many counts.
        counts: usize,
    },
    /// A sum of squares that is NaN, infinite or negative, or will be when written as f32.
    #[error("{tensor:?}: sum {index} is {value}, expected a number of at least 0 that is finite in f32")]
    Sum {
        /// The matrix.
        tensor: String,
        /// Index of the column, those of the matrices before it counted in.
        index: usize,
        /// What is there instead.
        value: f64,
    },
    /// A count that is not a whole number.
    #[error("{tensor:?}: count {index} is {value}, expected a whole number of at least 0")]
    Count {
        /// The matrix.
        tensor: String,
        /// Index of the expert matrix, 0 if there is one matrix only.
        index: usize,
        /// What is there instead.
        value: f32,
    },
    /// Sums of no rows that are not 0.
    #[error("{tensor:?}: count {index} is 0, but its sums are not")]
    Uncounted {
        /// The matrix.
        tensor: String,
        /// Index of the expert matrix, 0 if there is one matrix only.
        index: usize,
    },
    /// A count grew too large.
    #[error("too many {what} to count")]
    CountOverflow {
        /// What is counted.
        what: &'static str,
    },
    /// Activations that are not whole rows.
    #[error("{tensor:?}: {got} activations are not whole rows of {columns}")]
    Rows {
        /// The matrix.
        tensor: String,
        /// Columns of a row.
        columns: usize,
        /// How many activations came.
        got: usize,
    },
    /// An activation that is NaN, infinite or so large that its square is not an f32.
    #[error(
        "{tensor:?}: the activation in row {row}, column {column} is {value}, expected one whose square is a finite f32"
    )]
    Activation {
        /// The matrix.
        tensor: String,
        /// The row among those that were to be added.
        row: usize,
        /// The column.
        column: usize,
        /// The activation.
        value: f32,
    },
    /// A matrix that has another shape elsewhere.
    #[error(
        "{tensor:?}: expected sums for {} columns of {} matrices, got {} of {}",
        expected.0, expected.1, got.0, got.1
    )]
    Shape {
        /// The matrix.
        tensor: String,
        /// Columns and matrices so far.
        expected: (usize, usize),
        /// Columns and matrices that were to be added.
        got: (usize, usize),
    },
    /// An imatrix of another model: the matrix has another number of columns in it.
    #[error(
        "{tensor:?}: expected sums for {expected} columns, the imatrix has {got}: is it of another model?"
    )]
    Length {
        /// The matrix.
        tensor: String,
        /// Columns that the matrix has, those of all its expert matrices together.
        expected: usize,
        /// Sums in the imatrix.
        got: usize,
    },
}
