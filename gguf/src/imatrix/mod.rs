//! Which columns of a matrix matter: sums of squared activations, as llama.cpp collects them in an *imatrix*.
//!
//! The activation that column `c` of a weight matrix is multiplied by has a mean square over some text,
//! `sums[c] / count`. Where activations are uncorrelated, an error `e` of a weight of that column costs
//! `e^2` times that much in the output; so it is the importance that `halfbyte_q4`'s weighted writers take.
//!
//! Sums are kept in f64 and added row by row, so the same rows in the same order give the same bits. Files hold f32.
//! Two formats are read and written, found out by their first bytes:
//!
//! ```text
//! Format::Gguf   general.type = "imatrix", imatrix.datasets (strings), imatrix.chunk_count, imatrix.chunk_size (u32),
//!                and for each matrix the F32 tensors
//!                  NAME.in_sum2   columns, or columns x matrices   sums of squares
//!                  NAME.counts    1, or 1 x matrices               rows summed
//! Format::Dat    little-endian, i32 and f32, no padding:
//!                  entries, then for each: name length, name, chunks, values, that many f32 (mean square * chunks);
//!                  then, both optional: chunks of the file; length and name of a dataset
//! ```
//!
//! A matrix of experts has sums for one matrix after the other and a count for each; any other has one count.
//!
//! Files come from strangers: every length is compared with what is left of the file before memory is allocated for
//! it, sums are finite and not negative, names are UTF-8 and occur once.
//!
//! ```
//! use halfbyte_gguf::imatrix::{Format, Imatrix};
//! use std::num::NonZeroU32;
//!
//! let mut imatrix = Imatrix::new(NonZeroU32::new(512).ok_or("a chunk has tokens")?);
//! // Two rows of activations, four columns.
//! imatrix.add("blk.0.attn_q.weight", &[1.0, 2.0, 0.0, -1.0, 3.0, 2.0, 0.0, 1.0], 4)?;
//! imatrix.add_chunks(1)?;
//! imatrix.add_dataset("two-rows.txt");
//! assert_eq!(imatrix.importance("blk.0.attn_q.weight", 4)?, Some(vec![5.0, 4.0, 0.0, 1.0]));
//! assert_eq!(imatrix.importance("blk.0.attn_k.weight", 4)?, None);
//!
//! let bytes = imatrix.write(Vec::new(), Format::Gguf)?;
//! assert_eq!(Imatrix::from_bytes(bytes)?, imatrix);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod dat;
mod error;
mod file;
mod gguf;

use std::collections::BTreeMap;
use std::num::NonZeroU32;

pub use error::Error;
pub use file::Format;

/// The largest activation: its square is still an f32.
const MAX_ACTIVATION: f32 = 18_446_742_974_197_923_840.0;

/// What is known of one matrix, or of one tensor of expert matrices.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Of squared activations: the columns of the first matrix, then those of the next.
    sums: Vec<f64>,
    /// Rows of activations summed, for each matrix. Never empty; divides `sums.len()`.
    counts: Vec<u64>,
}

impl Entry {
    /// Sums of squared activations: the columns of the first matrix, then those of the next. Finite, at least 0.
    pub fn sums(&self) -> &[f64] {
        &self.sums
    }

    /// Rows of activations summed, for each matrix. At least one number, often exactly one; [`sums`](Self::sums) is a
    /// whole number of times as long.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Whether there is anything to take a mean of.
    fn counted(&self) -> bool {
        self.counts.iter().any(|&n| n > 0)
    }

    /// Mean squares in the order of [`sums`](Self::sums); 1 for the columns of a matrix without rows.
    fn means(&self) -> impl Iterator<Item = f64> {
        let columns = self.sums.len() / self.counts.len();
        self.sums.iter().enumerate().map(move |(i, sum)| match self.counts[i / columns] {
            0 => 1.0,
            count => sum / count as f64,
        })
    }
}

/// Sums of squared activations by the names of the matrices they are multiplied by.
#[derive(Debug, Clone, PartialEq)]
pub struct Imatrix {
    entries: BTreeMap<String, Entry>,
    datasets: Vec<String>,
    chunk_count: u32,
    chunk_size: NonZeroU32,
}

impl Imatrix {
    /// No sums yet. `chunk_size`: tokens in a chunk of text, for the record and for [`Format::Dat`], which counts rows
    /// in chunks.
    pub fn new(chunk_size: NonZeroU32) -> Self {
        Self { entries: BTreeMap::new(), datasets: Vec::new(), chunk_count: 0, chunk_size }
    }

    /// The matrices, by name in byte order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// What is known of the matrix called `name`.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// The texts that the activations come from, by name.
    pub fn datasets(&self) -> &[String] {
        &self.datasets
    }

    /// Chunks of text that the activations come from.
    pub fn chunk_count(&self) -> u32 {
        self.chunk_count
    }

    /// Tokens in a chunk. [`DAT_CHUNK_SIZE`](Self::DAT_CHUNK_SIZE) where a file didn't say.
    pub fn chunk_size(&self) -> NonZeroU32 {
        self.chunk_size
    }

    /// Names a text that activations come from.
    pub fn add_dataset(&mut self, name: impl Into<String>) {
        self.datasets.push(name.into());
    }

    /// Counts `n` more chunks of text.
    ///
    /// # Errors
    /// [`Error::CountOverflow`] past `u32::MAX` chunks; the count is then as it was.
    pub fn add_chunks(&mut self, n: u32) -> Result<(), Error> {
        self.chunk_count = self.chunk_count.checked_add(n).ok_or(Error::CountOverflow { what: "chunks" })?;
        Ok(())
    }

    /// Adds rows of activations of the matrix called `name`. `x`: row after row of `columns` numbers.
    ///
    /// Each column's squares, exact in f64, are added in the order of the rows: one call with many rows and many calls
    /// with one give the same bits.
    ///
    /// # Errors
    /// [`Error::Rows`] unless `x` is whole rows of at least one column, [`Error::Activation`] for a number that is not
    /// finite or whose square is beyond f32, [`Error::Shape`] where the name has other columns already or expert
    /// matrices. Nothing is added then.
    pub fn add(&mut self, name: &str, x: &[f32], columns: usize) -> Result<(), Error> {
        self.add_expert(name, (0, 1), x, columns)
    }

    /// The same for matrix `expert.0` of the `expert.1` that are stacked in the tensor called `name`.
    ///
    /// # Errors
    /// As [`Self::add`]; [`Error::Shape`], too, where the name has another number of expert matrices.
    ///
    /// # Panics
    /// If there is no such expert.
    pub fn add_expert(
        &mut self,
        name: &str,
        (expert, experts): (usize, usize),
        x: &[f32],
        columns: usize,
    ) -> Result<(), Error> {
        assert!(expert < experts, "expert {expert} of {experts}");
        if columns == 0 || !x.len().is_multiple_of(columns) {
            return Err(Error::Rows { tensor: name.to_owned(), columns, got: x.len() });
        }
        // A NaN is not at most anything.
        let good = |v: &f32| v.abs() <= MAX_ACTIVATION;
        if let Some(i) = x.iter().position(|v| !good(v)) {
            let (row, column) = (i / columns, i % columns);
            return Err(Error::Activation { tensor: name.to_owned(), row, column, value: x[i] });
        }
        // Looked up by reference first: this is called for every matrix of every chunk.
        if !self.entries.contains_key(name) {
            let empty = Entry { sums: vec![0.0; columns * experts], counts: vec![0; experts] };
            self.entries.insert(name.to_owned(), empty);
        }
        let Some(entry) = self.entries.get_mut(name) else { return Ok(()) };
        let shape = (entry.sums.len() / entry.counts.len(), entry.counts.len());
        if shape != (columns, experts) {
            return Err(Error::Shape { tensor: name.to_owned(), expected: shape, got: (columns, experts) });
        }
        let count = entry.counts[expert].checked_add((x.len() / columns) as u64);
        entry.counts[expert] = count.ok_or(Error::CountOverflow { what: "rows of activations" })?;
        let sums = &mut entry.sums[expert * columns..][..columns];
        for row in x.chunks_exact(columns) {
            for (sum, &v) in sums.iter_mut().zip(row) {
                *sum += f64::from(v) * f64::from(v);
            }
        }
        Ok(())
    }

    /// The importance of each column of the matrix called `name`: the mean square of its activations, finite and at
    /// least 0, ready for `halfbyte_q4`'s weighted writers.
    ///
    /// `len`: the number of columns, times that of expert matrices, whose importances then follow one another. The
    /// columns of an expert that no row went through are all 1: equal, as nothing is known of them. `None` where there
    /// is no such name, or no row at all was counted.
    ///
    /// # Errors
    /// [`Error::Length`] if the matrix has another number of columns here.
    pub fn importance(&self, name: &str, len: usize) -> Result<Option<Vec<f32>>, Error> {
        let Some(entry) = self.entries.get(name).filter(|entry| entry.counted()) else { return Ok(None) };
        if entry.sums.len() != len {
            let got = entry.sums.len();
            return Err(Error::Length { tensor: name.to_owned(), expected: len, got });
        }
        // No mean is beyond f32: no square that was added is.
        Ok(Some(entry.means().map(|mean| mean as f32).collect()))
    }

    /// Adds everything that `other` holds: sums and counts of matrices of one name, names of texts, chunks.
    ///
    /// Chunks of another size are counted as as many of this one's as hold as many tokens, rounded up. A count for all
    /// expert matrices together (all that [`Format::Dat`] has) stands for each of them.
    ///
    /// # Errors
    /// [`Error::Shape`] for a matrix that has other columns or another number of experts there,
    /// [`Error::CountOverflow`]. Nothing is added then.
    pub fn merge(&mut self, other: &Self) -> Result<(), Error> {
        let tokens = u64::from(other.chunk_count) * u64::from(other.chunk_size.get());
        let chunks = u32::try_from(tokens.div_ceil(self.chunk_size.get().into())).ok();
        let chunk_count = chunks.and_then(|n| self.chunk_count.checked_add(n));
        let chunk_count = chunk_count.ok_or(Error::CountOverflow { what: "chunks" })?;
        let mut merged = Vec::new();
        for (name, theirs) in &other.entries {
            merged.push(match self.entries.get(name) {
                None => theirs.clone(),
                Some(ours) => sum(name, ours, theirs)?,
            });
        }
        self.entries.extend(other.entries.keys().cloned().zip(merged));
        self.datasets.extend_from_slice(&other.datasets);
        self.chunk_count = chunk_count;
        Ok(())
    }
}

/// What two entries of one name hold together.
fn sum(name: &str, a: &Entry, b: &Entry) -> Result<Entry, Error> {
    let matrices = a.counts.len().max(b.counts.len());
    let fits = |e: &Entry| e.counts.len() == 1 || e.counts.len() == matrices;
    if a.sums.len() != b.sums.len() || !fits(a) || !fits(b) || !a.sums.len().is_multiple_of(matrices) {
        let [expected, got] = [a, b].map(|e| (e.sums.len() / e.counts.len(), e.counts.len()));
        return Err(Error::Shape { tensor: name.to_owned(), expected, got });
    }
    let count = |e: &Entry, i: usize| if e.counts.len() == 1 { e.counts[0] } else { e.counts[i] };
    let counts = (0..matrices).map(|i| count(a, i).checked_add(count(b, i))).collect::<Option<_>>();
    let counts = counts.ok_or(Error::CountOverflow { what: "rows of activations" })?;
    Ok(Entry { sums: a.sums.iter().zip(&b.sums).map(|(a, b)| a + b).collect(), counts })
}
