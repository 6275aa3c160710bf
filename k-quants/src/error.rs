//! The error of every function of this crate.

/// Why a call of this crate was refused. Nothing has been written when one is returned.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
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
}

/// [`Error::Length`] unless `got == expected`.
pub(crate) fn check_len(what: &'static str, expected: usize, got: usize) -> Result<(), Error> {
    if expected == got { Ok(()) } else { Err(Error::Length { what, expected, got }) }
}
