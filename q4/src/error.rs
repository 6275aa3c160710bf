//! The error of every function of this crate.

/// Why a call of this crate was refused. Nothing has been written when one is returned.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A row does not consist of whole groups.
    #[error("a row of {got} weights is not a whole number of groups of {group}")]
    NotWholeGroups {
        /// Weights in a group.
        group: usize,
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
    /// MLX affine groups cannot have this size.
    #[error("affine groups have 32, 64 or 128 weights, not {got}")]
    GroupSize {
        /// The size given.
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
    /// The importance of a column is NaN, infinite or negative.
    #[error("importance {index} is {value}, not a finite number of at least 0")]
    Importance {
        /// The column.
        index: usize,
        /// Its importance.
        value: f32,
    },
    /// The number of weights is not a whole number of rows.
    #[error("expected whole rows of {columns} weights, got {got} weights")]
    NotWholeRows {
        /// Weights in a row.
        columns: usize,
        /// Weights given.
        got: usize,
    },
    /// A second moment of activations is not finite, or negative on the diagonal.
    #[error(
        "second moment at row {row}, column {column} is {value}, not a finite number (and at least 0 on the diagonal)"
    )]
    Moment {
        /// Its row.
        row: usize,
        /// Its column.
        column: usize,
        /// The number.
        value: f64,
    },
    /// The damped second moments have no Cholesky factor.
    #[error("second moments with damping {damping} are not positive definite: expected more damping")]
    NotPositiveDefinite {
        /// The damping that was added, as a share of the mean of the diagonal.
        damping: f64,
    },
    /// A group's scale, minimum or bias does not fit in its stored type.
    #[error(
        "group {group} (weights from {index}) needs a {what} of {value}, the stored type ends at {limit}"
    )]
    Overflow {
        /// Offset in the row of the group's first weight.
        index: usize,
        /// The group.
        group: usize,
        /// Which parameter: `"scale"`, `"min"` or `"bias"`.
        what: &'static str,
        /// The value it would need; infinite when f32 itself cannot hold it.
        value: f32,
        /// The largest magnitude of the stored type.
        limit: f32,
    },
}

/// [`Error::Length`] unless `got == expected`.
pub(crate) fn check_len(what: &'static str, expected: usize, got: usize) -> Result<(), Error> {
    if expected == got { Ok(()) } else { Err(Error::Length { what, expected, got }) }
}

/// [`Error::NonFinite`] for the first weight that is not finite, in a row of groups of `size`.
pub(crate) fn check_finite(x: &[f32], size: usize) -> Result<(), Error> {
    match x.iter().position(|v| !v.is_finite()) {
        None => Ok(()),
        Some(index) => Err(Error::NonFinite { index, group: index / size, value: x[index] }),
    }
}
