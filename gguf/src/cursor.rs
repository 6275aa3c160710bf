//! A reading position in a byte slice whose every step is checked.

use std::fmt;

use crate::Error;
use crate::error::quote;

/// The part of the file being read, for messages. Borrowed, so that naming the
/// place costs nothing until something is wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    /// The fixed fields at the start.
    Header,
    /// A metadata entry whose key is not known yet.
    Entry(usize),
    /// The value of a key.
    Key(&'a str),
    /// An element of a key's array.
    Element(&'a str, usize),
    /// A tensor entry whose name is not known yet.
    TensorEntry(usize),
    /// A tensor.
    Tensor(&'a str),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Place::Header => write!(f, "header"),
            Place::Entry(i) => write!(f, "metadata entry {i}"),
            Place::Key(key) => write!(f, "metadata key {}", quote(key)),
            Place::Element(key, i) => write!(f, "metadata key {}, element {i}", quote(key)),
            Place::TensorEntry(i) => write!(f, "tensor entry {i}"),
            Place::Tensor(name) => write!(f, "tensor {}", quote(name)),
        }
    }
}

/// The bytes of a file and how far they have been read.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
    /// Named by every error until it is set anew.
    pub(crate) place: Place<'a>,
}

impl<'a> Cursor<'a> {
    /// At the start of `bytes`, in the header.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0, place: Place::Header }
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// Bytes not read yet.
    fn left(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// `Truncated` unless `n` bytes are left. `n` may be any number at all.
    fn require(&self, n: u64, what: &'static str) -> Result<usize, Error> {
        match usize::try_from(n) {
            Ok(n) if n <= self.left() => Ok(n),
            _ => Err(Error::Truncated {
                place: self.place.to_string(),
                what,
                offset: self.position,
                expected: n,
                got: self.left(),
            }),
        }
    }

    /// Checks that `count` items of at least `min_bytes` each can follow, so
    /// that room for them may be allocated.
    pub(crate) fn require_items(
        &self,
        count: usize,
        min_bytes: usize,
        what: &'static str,
    ) -> Result<(), Error> {
        // Saturation is harmless: no file has u64::MAX bytes left.
        self.require((count as u64).saturating_mul(min_bytes as u64), what).map(drop)
    }

    /// The next `n` bytes.
    pub(crate) fn take(&mut self, n: u64, what: &'static str) -> Result<&'a [u8], Error> {
        let n = self.require(n, what)?;
        let taken = &self.bytes[self.position..self.position + n];
        self.position += n;
        Ok(taken)
    }

    /// The next `N` bytes, by value.
    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Error> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64, what)?);
        Ok(array)
    }

    /// A little-endian u32.
    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, Error> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// A little-endian u64.
    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, Error> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A u64 that counts something, at most `limit`.
    pub(crate) fn count(&mut self, what: &'static str, limit: usize) -> Result<usize, Error> {
        let got = self.u64(what)?;
        crate::limits::at_most(got, limit, self.place, what)
    }

    /// A string: its length as u64, at most `limit`, then its bytes in UTF-8.
    pub(crate) fn string(&mut self, what: &'static str, limit: usize) -> Result<&'a str, Error> {
        let n = self.u64(what)?;
        crate::limits::at_most(n, limit, self.place, format_args!("{what} length in bytes"))?;
        let start = self.position;
        let bytes = self.take(n, what)?;
        std::str::from_utf8(bytes).map_err(|e| Error::Utf8 {
            place: self.place.to_string(),
            what,
            offset: start + e.valid_up_to(),
        })
    }
}
