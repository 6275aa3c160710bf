//! What can be wrong with an argument.

/// Why a call of this crate was refused. Nothing has been written when one is returned.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A row does not consist of whole groups.
    #[error("a row of {got} numbers is not a whole number of groups of {group}")]
    NotWholeGroups {
        /// Numbers in a group.
        group: usize,
        /// Numbers in the row.
        got: usize,
    },
    /// A slice has the wrong length.
    #[error("{what}: expected length {expected}, got {got}")]
    Length {
        /// Which argument.
        what: &'static str,
        /// The length the other arguments call for.
        expected: usize,
        /// The length that came.
        got: usize,
    },
    /// A weight is NaN or infinite.
    #[error("weight {index} of the row (group {group}) is {value}, not a finite number")]
    NonFinite {
        /// Offset of the weight in the row.
        index: usize,
        /// Group of the weight in the row.
        group: usize,
        /// The weight.
        value: f32,
    },
    /// A weight is so large that no f16 scale reaches it.
    #[error(
        "weight {index} of the row (group {group}) is {value}, the largest storable magnitude is {limit}"
    )]
    Overflow {
        /// Offset of the weight in the row.
        index: usize,
        /// Group of the weight in the row.
        group: usize,
        /// The weight.
        value: f32,
        /// The largest magnitude that can be stored.
        limit: f32,
    },
    /// `rows * cols` does not fit in a `usize`.
    #[error("{rows} rows of {cols} numbers do not fit in memory")]
    TooLarge {
        /// Rows asked for.
        rows: usize,
        /// Columns asked for.
        cols: usize,
    },
}

/// `Ok` when a slice has the length that the other arguments call for.
pub(crate) fn check_len(what: &'static str, expected: usize, got: usize) -> Result<(), Error> {
    if expected == got { Ok(()) } else { Err(Error::Length { what, expected, got }) }
}
