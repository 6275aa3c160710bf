//! What a caller can get wrong.

use thiserror::Error;

/// Why a kernel or a constructor refused its arguments. Nothing was written.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// A slice has the wrong number of elements.
    #[error("{what}: expected {expected} elements, got {got}")]
    Length {
        /// Which argument.
        what: &'static str,
        /// The elements it must have.
        expected: usize,
        /// The elements it has.
        got: usize,
    },
    /// A number of elements is no multiple of what they come in: the format's group, or a row.
    #[error("{what}: {cols} is not a whole number of groups of {group}")]
    Group {
        /// Which number.
        what: &'static str,
        /// The elements.
        cols: usize,
        /// The elements of a group.
        group: usize,
    },
    /// Two arguments disagree on a size.
    #[error("{what}: expected {expected}, got {got}")]
    Shape {
        /// Which size of which argument.
        what: &'static str,
        /// The size it must have.
        expected: usize,
        /// The size it has.
        got: usize,
    },
    /// A kernel does not support this combination.
    #[error("{what} does not support {got}; supported: {supported}")]
    Unsupported {
        /// The kernel.
        what: &'static str,
        /// What was asked for.
        got: String,
        /// What there is.
        supported: String,
    },
    /// No ISA path of this name exists in this build.
    #[error("unknown ISA path {name:?}; this build knows: {known}")]
    UnknownIsa {
        /// The name.
        name: String,
        /// The names of this build's paths.
        known: String,
    },
    /// The ISA path exists but this machine can't run it.
    #[error("ISA path {name:?} can't run on this machine; available here: {available}")]
    IsaNotAvailable {
        /// The name.
        name: String,
        /// The names of the paths that can run here.
        available: String,
    },
}

/// [`Error::Length`] unless `got == expected`.
pub(crate) fn check_len(what: &'static str, expected: usize, got: usize) -> Result<(), Error> {
    if got == expected { Ok(()) } else { Err(Error::Length { what, expected, got }) }
}

/// [`Error::Shape`] unless `got == expected`.
pub(crate) fn check_shape(what: &'static str, expected: usize, got: usize) -> Result<(), Error> {
    if got == expected { Ok(()) } else { Err(Error::Shape { what, expected, got }) }
}
