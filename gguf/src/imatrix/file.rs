//! Opening, telling the formats apart, checking what they hold, and saving.

use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::path::Path;

use super::{Entry, Error, Imatrix, dat, gguf};
use crate::{AtomicFile, Gguf};

/// How an imatrix is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// A GGUF file of type `imatrix`: a count for each expert matrix, names of all texts.
    Gguf,
    /// llama.cpp's older format of its own: one count a tensor, in chunks, and one text.
    Dat,
}

impl Imatrix {
    /// Reads the file at `path`, in either format.
    ///
    /// # Errors
    /// [`Error::Open`], and those of [`from_bytes`](Self::from_bytes).
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let error = |source| Error::Open { path: path.to_owned(), source };
        // Asked before opening: a pipe would block.
        if !fs::metadata(path).map_err(error)?.is_file() {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "expected a regular file");
            return Err(error(source));
        }
        let mut file = File::open(path).map_err(error)?;
        let len = file.metadata().map_err(error)?.len();
        let mut magic = [0; 4];
        let is_gguf = len >= 4 && {
            io::Read::read_exact(&mut file, &mut magic).map_err(error)?;
            magic == *b"GGUF"
        };
        if is_gguf {
            return gguf::read(&Gguf::open(path)?);
        }
        io::Seek::rewind(&mut file).map_err(error)?;
        // Read in pieces: a large file of another kind is refused by its first numbers.
        dat::read(BufReader::new(file), len)
    }

    /// Reads a file that is in memory, in either format: GGUF if it starts with `GGUF`.
    ///
    /// # Errors
    /// [`Error::Gguf`] and [`Error::NotImatrix`] for a GGUF file; [`Error::Truncated`], [`Error::Range`],
    /// [`Error::Utf8`], [`Error::TrailingBytes`] for the older format; [`Error::Empty`], [`Error::Duplicate`],
    /// [`Error::Unpaired`], [`Error::Type`], [`Error::Uneven`], [`Error::Sum`], [`Error::Count`],
    /// [`Error::Uncounted`] for what either holds.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, Error> {
        if bytes.starts_with(b"GGUF") {
            return gguf::read(&Gguf::from_vec(bytes)?);
        }
        dat::read(bytes.as_slice(), bytes.len() as u64)
    }

    /// Writes to `sink` and gives it back, flushed. Sums are rounded to f32, so are counts beyond 2^24; entries come in
    /// the order of their names.
    ///
    /// What [`Format::Dat`] cannot hold is lost: all texts but the last, and the counts of expert matrices, of which
    /// it keeps the largest, in chunks, rounded up (mean squares stay as they are). An expert without rows gets a mean
    /// square of 1, and a matrix without any is left out.
    ///
    /// # Errors
    /// [`Error::Empty`], [`Error::Sum`] for a sum beyond f32, [`Error::Range`] and [`Error::Gguf`] for a name or a
    /// number too large for the format, all before anything is written; [`Error::Write`] or [`Error::Gguf`] when
    /// writing fails.
    pub fn write<W: Write>(&self, sink: W, format: Format) -> Result<W, Error> {
        match format {
            Format::Gguf => gguf::write(self, sink),
            Format::Dat => dat::write(self, sink),
        }
    }

    /// Writes the file at `path`, which appears whole or not at all.
    ///
    /// # Errors
    /// Those of [`write`](Self::write), and [`Error::Gguf`] when the file cannot be made or put in its place. What was
    /// at `path` is then still there.
    pub fn save(&self, path: impl AsRef<Path>, format: Format) -> Result<(), Error> {
        self.write(AtomicFile::create(path)?, format)?.commit()?;
        Ok(())
    }

    /// Takes an entry as read, unless its name is there already.
    pub(super) fn insert(&mut self, tensor: &str, entry: Entry) -> Result<(), Error> {
        if self.entries.insert(tensor.to_owned(), entry).is_some() {
            return Err(Error::Duplicate { tensor: tensor.to_owned() });
        }
        Ok(())
    }
}

/// An entry as read, if it makes sense.
pub(super) fn checked(tensor: &str, sums: Vec<f64>, counts: Vec<u64>) -> Result<Entry, Error> {
    let tensor = || tensor.to_owned();
    if counts.is_empty() || sums.is_empty() || !sums.len().is_multiple_of(counts.len()) {
        return Err(Error::Uneven { tensor: tensor(), sums: sums.len(), counts: counts.len() });
    }
    if let Some(index) = sums.iter().position(|v| !v.is_finite() || *v < 0.0) {
        return Err(Error::Sum { tensor: tensor(), index, value: sums[index] });
    }
    let columns = sums.len() / counts.len();
    let uncounted = |(sums, &count): (&[f64], &u64)| count == 0 && sums.iter().any(|&v| v != 0.0);
    match sums.chunks_exact(columns).zip(&counts).position(uncounted) {
        Some(index) => Err(Error::Uncounted { tensor: tensor(), index }),
        None => Ok(Entry { sums, counts }),
    }
}

/// A sum as it is stored.
pub(super) fn stored(tensor: &str, index: usize, value: f64) -> Result<f32, Error> {
    match value as f32 {
        v if v.is_finite() => Ok(v),
        _ => Err(Error::Sum { tensor: tensor.to_owned(), index, value }),
    }
}
