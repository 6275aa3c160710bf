//! The error of every function of this crate.

/// Why a call of this crate was refused. Nothing has been written when one is returned.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A copy of another cache was to be put into this one.
    #[error(
        "a copy of a KV cache: expected {} heads of {} in {}, got {} heads of {} in {}",
        .expected.0, .expected.1, .expected.2, .got.0, .got.1, .got.2
    )]
    Saved {
        /// The cache's heads, their size and their type.
        expected: (usize, usize, &'static str),
        /// The copy's.
        got: (usize, usize, &'static str),
    },
    /// A slice has the wrong length.
    #[error("{what}: expected {expected} elements, got {got}")]
    Length {
        /// Which argument.
        what: &'static str,
        /// The elements it must have.
        expected: usize,
        /// The elements it has.
        got: usize,
    },
    /// A slice is not a whole number of rows.
    #[error("{what}: {got} elements are not a whole number of rows of {width}")]
    NotWholeRows {
        /// Which argument.
        what: &'static str,
        /// Elements in a row.
        width: usize,
        /// The elements it has.
        got: usize,
    },
    /// A size that must be positive is 0.
    #[error("{what} must be at least 1, got 0")]
    Zero {
        /// Which size.
        what: &'static str,
    },
    /// The number of query heads is not a multiple of the number of key/value heads.
    #[error("n_heads ({n_heads}) is not a multiple of n_kv_heads ({n_kv_heads})")]
    HeadGroups {
        /// Query heads.
        n_heads: usize,
        /// Key/value heads.
        n_kv_heads: usize,
    },
    /// The scale of the scores is NaN or infinite.
    #[error("scale must be a finite number, got {got}")]
    Scale {
        /// The scale.
        got: f32,
    },
    /// The bound of the scores is not a positive normal number.
    #[error("soft_cap must be a positive normal number, got {got}")]
    SoftCap {
        /// The bound.
        got: f32,
    },
    /// A sink is NaN or +inf, with which the weights would have no finite sum.
    #[error("the sink of query head {head} must be finite or -inf, got {got}")]
    Sink {
        /// Which query head.
        head: usize,
        /// Its logit.
        got: f32,
    },
    /// The parameters and the cache have different sizes.
    #[error("{what}: the parameters say {expected}, the cache has {got}")]
    Shape {
        /// Which size.
        what: &'static str,
        /// The parameters' size.
        expected: usize,
        /// The cache's size.
        got: usize,
    },
    /// The cache has too little room for the positions to append.
    #[error("{rows} more positions do not fit into a cache of {capacity} that holds {len}")]
    Full {
        /// Positions that the cache can hold.
        capacity: usize,
        /// Positions that it holds.
        len: usize,
        /// Positions that were to be added.
        rows: usize,
    },
    /// A query row is at a position whose key is not in the cache.
    #[error(
        "queries at positions {first} to {first} + {rows} need as many cached positions, the cache holds {len}"
    )]
    Position {
        /// Position of the first query row.
        first: usize,
        /// Query rows.
        rows: usize,
        /// Positions that the cache holds.
        len: usize,
    },
    /// There is not enough memory for a cache of this shape.
    #[error(
        "no memory for a cache of {capacity} positions, {n_kv_heads} heads of {head_dim} numbers in {kv_type}"
    )]
    TooLarge {
        /// Positions asked for.
        capacity: usize,
        /// Key/value heads asked for.
        n_kv_heads: usize,
        /// Elements of a head.
        head_dim: usize,
        /// The name of their type.
        kv_type: &'static str,
    },
}

/// [`Error::Length`] unless `got == expected`.
pub(crate) fn check_len(what: &'static str, expected: usize, got: usize) -> Result<(), Error> {
    if expected == got { Ok(()) } else { Err(Error::Length { what, expected, got }) }
}

/// [`Error::Shape`] unless `got == expected`.
pub(crate) fn check_shape(what: &'static str, expected: usize, got: usize) -> Result<(), Error> {
    if expected == got { Ok(()) } else { Err(Error::Shape { what, expected, got }) }
}

/// [`Error::Zero`] if `size` is 0.
pub(crate) fn check_positive(what: &'static str, size: usize) -> Result<(), Error> {
    if size == 0 { Err(Error::Zero { what }) } else { Ok(()) }
}
