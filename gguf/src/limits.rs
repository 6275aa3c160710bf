//! What the reader will accept at most, and why.
//!
//! Every limit is far above what published models use and far below what could
//! hurt. A count that passes its limit is still compared with the bytes left in
//! the file before anything is allocated for it, so memory stays proportional
//! to the file and never to what the file claims.

use crate::Error;

/// Most metadata entries a file may have. Published models have 20 to 60.
pub const MAX_METADATA: usize = 1 << 16;

/// Most tensors a file may have. The largest published models have a few thousand.
pub const MAX_TENSORS: usize = 1 << 16;

/// Most parts of a split model. The largest published ones have some 200.
pub const MAX_PARTS: usize = 1024;

/// Longest metadata key in bytes: the format's own limit.
pub const MAX_KEY_BYTES: usize = (1 << 16) - 1;

/// Longest tensor name in bytes. The format asks for 64; some writers exceed it.
pub const MAX_NAME_BYTES: usize = 1024;

/// Longest string in bytes, alone or in an array. Chat templates, the longest
/// in practice, stay under 100 KiB.
pub const MAX_STRING_BYTES: usize = 1 << 24;

/// Most elements of a metadata array. The largest vocabularies have about 2^18
/// tokens and twice as many merges.
pub const MAX_ARRAY_LEN: usize = 1 << 24;

/// Most dimensions of a tensor: the format's own limit. At least one is needed.
pub const MAX_DIMS: usize = 4;

/// Smallest `general.alignment`: the format's own limit. It is also what lets
/// every supported block type be viewed in place (they need 4 at most).
pub const MIN_ALIGNMENT: usize = 8;

/// Largest `general.alignment`: above any page size in use.
pub const MAX_ALIGNMENT: usize = 1 << 20;

/// `general.alignment` of a file that does not give it.
pub const DEFAULT_ALIGNMENT: usize = 32;

/// Fewest bytes a metadata entry can take: key length, type, one-byte value.
pub(crate) const MIN_METADATA_ENTRY_BYTES: usize = 8 + 4 + 1;

/// Fewest bytes a tensor entry can take: name length, dimension count, one
/// dimension, type, offset.
pub(crate) const MIN_TENSOR_ENTRY_BYTES: usize = 8 + 4 + 8 + 4 + 8;

/// `got <= limit`, or an error that names both and where.
pub(crate) fn at_most(
    got: u64,
    limit: usize,
    place: impl std::fmt::Display,
    what: impl std::fmt::Display,
) -> Result<usize, Error> {
    match usize::try_from(got) {
        Ok(n) if n <= limit => Ok(n),
        _ => Err(Error::Limit { place: place.to_string(), what: what.to_string(), got, limit }),
    }
}

/// A value of `general.alignment` that is a power of two within the limits.
pub(crate) fn check_alignment(got: u32) -> Result<usize, Error> {
    match usize::try_from(got) {
        Ok(n) if n.is_power_of_two() && (MIN_ALIGNMENT..=MAX_ALIGNMENT).contains(&n) => Ok(n),
        _ => Err(Error::Alignment { got }),
    }
}
