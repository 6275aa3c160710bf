//! The error of every function of this crate.

/// Why a call of this crate was refused. Nothing has been written when one is returned.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A row does not consist of whole blocks.
    #[error("a row of {got} weights is not a whole number of blocks of {block}")]
    NotWholeBlocks {
        /// Weights in a block.
        block: usize,
        /// Weights in the row.
        got: usize,
    },
    /// A slice has the wrong length.
    #[error("{what}: expected length {expected}, got {got}")]
    Length {
        /// Which argument.
        what: &'static str,
        /// The length that the other arguments require.
        expected: usize,
        /// The length it has.
        got: usize,
    },
    /// A weight is NaN or infinite.
    #[error("weight {index} of the row is {value}, not a finite number")]
    NonFinite {
        /// Offset of the weight in the row.
        index: usize,
        /// The weight.
        value: f32,
    },
    /// The importance of a column is NaN, infinite or negative.
    #[error("importance {index} is {value}, not a finite number of at least 0")]
    Importance {
        /// The column.
        index: usize,
        /// Its importance.
        value: f32,
    },
    /// A weight is beyond what the format can hold.
    #[error("weight {index} of the row is {value}, and {format} ends at {limit}")]
    Overflow {
        /// Offset of the weight in the row.
        index: usize,
        /// The weight.
        value: f32,
        /// ggml's name of the format.
        format: &'static str,
        /// The largest magnitude that any block of the format can hold, of either sign.
        limit: f32,
    },
}

/// [`Error::Length`] unless `got == expected`.
pub(crate) fn check_len(what: &'static str, expected: usize, got: usize) -> Result<(), Error> {
    if expected == got { Ok(()) } else { Err(Error::Length { what, expected, got }) }
}
