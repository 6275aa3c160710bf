//! llama.cpp's older form of an imatrix.
//!
//! It counts rows in chunks of text and does not say how many rows a chunk has; nor does any mean square depend on it.

use std::io::{Read, Write};
use std::num::NonZeroU32;

use super::file::{checked, stored};
use super::{Error, Imatrix};
use crate::limits::{MAX_NAME_BYTES, MAX_STRING_BYTES, MAX_TENSORS};

/// The most that the format's signed numbers hold.
const MAX: u64 = i32::MAX as u64;

impl Imatrix {
    /// Rows in a chunk of a file that does not say: llama.cpp's default. It matters only for the share that such a
    /// file has in a [`merge`](Self::merge).
    pub const DAT_CHUNK_SIZE: NonZeroU32 = NonZeroU32::MIN.saturating_add(511);
}

/// A file and how much of it is left.
struct Reader<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Reader<R> {
    /// The next `n` bytes.
    fn bytes(&mut self, n: u64, place: &str) -> Result<Vec<u8>, Error> {
        let truncated = || Error::Truncated { place: place.to_owned(), expected: n, got: self.left };
        if n > self.left {
            return Err(truncated());
        }
        let mut bytes = vec![0; usize::try_from(n).map_err(|_| truncated())?];
        self.inner.read_exact(&mut bytes).map_err(|source| Error::Read { source })?;
        self.left -= n;
        Ok(bytes)
    }

    /// A number from `min` to `max`, which is at most [`MAX`].
    fn number(&mut self, place: &str, min: u64, max: u64) -> Result<u64, Error> {
        let bytes = self.bytes(4, place)?;
        let got = bytes.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte));
        // A negative number is larger than any maximum here.
        if (min..=max).contains(&got) {
            Ok(got)
        } else {
            Err(Error::Range { place: place.to_owned(), got, min, max })
        }
    }

    /// A text of `min` to `max` bytes, its length before it.
    fn text(&mut self, what: &str, min: u64, max: usize) -> Result<String, Error> {
        let n = self.number(&format!("{what}, its length"), min, max as u64)?;
        let bytes = self.bytes(n, what)?;
        String::from_utf8(bytes).map_err(|_| Error::Utf8 { place: what.to_owned() })
    }
}

/// Reads a file of `len` bytes.
pub(super) fn read(file: impl Read, len: u64) -> Result<Imatrix, Error> {
    let mut file = Reader { inner: file, left: len };
    let mut imatrix = Imatrix::new(Imatrix::DAT_CHUNK_SIZE);
    let chunk_size = u64::from(imatrix.chunk_size.get());
    let n_entries = file.number("number of entries", 1, MAX_TENSORS as u64)?;
    let mut most_chunks = 0;
    for i in 0..n_entries {
        let name = file.text(&format!("entry {i}: name"), 1, MAX_NAME_BYTES)?;
        let chunks = file.number(&format!("entry {i}: chunks"), 1, MAX)?;
        let n = file.number(&format!("entry {i}: number of values"), 1, MAX)?;
        let values = file.bytes(4 * n, &format!("entry {i}: values"))?;
        let values = values.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes));
        let sums = values.map(|v| f64::from(v) * chunk_size as f64).collect();
        imatrix.insert(&name, checked(&name, sums, vec![chunks * chunk_size])?)?;
        most_chunks = most_chunks.max(chunks);
    }
    let chunks = if file.left > 0 { file.number("chunks of the file", 0, MAX)? } else { most_chunks };
    imatrix.add_chunks(u32::try_from(chunks).map_err(|_| Error::CountOverflow { what: "chunks" })?)?;
    if file.left > 0 {
        let dataset = file.text("name of the dataset", 0, MAX_STRING_BYTES)?;
        if !dataset.is_empty() {
            imatrix.add_dataset(dataset);
        }
    }
    if file.left > 0 {
        return Err(Error::TrailingBytes { got: file.left });
    }
    Ok(imatrix)
}

/// Appends a number of at most `max`, which is at most [`MAX`].
fn put(out: &mut Vec<u8>, place: &str, got: u64, max: u64) -> Result<(), Error> {
    match u32::try_from(got) {
        Ok(n) if got <= max => out.extend(n.to_le_bytes()),
        _ => return Err(Error::Range { place: place.to_owned(), got, min: 0, max }),
    }
    Ok(())
}

fn put_text(out: &mut Vec<u8>, what: &str, text: &str, max: usize) -> Result<(), Error> {
    put(out, &format!("{what}, its length"), text.len() as u64, max as u64)?;
    out.extend(text.as_bytes());
    Ok(())
}

pub(super) fn write<W: Write>(imatrix: &Imatrix, mut sink: W) -> Result<W, Error> {
    let counted = || imatrix.entries.iter().filter(|(_, entry)| entry.counted());
    let n_entries = counted().count();
    if n_entries == 0 {
        return Err(Error::Empty);
    }
    let chunk_size = u64::from(imatrix.chunk_size.get());
    let mut out = Vec::new();
    put(&mut out, "number of entries", n_entries as u64, MAX_TENSORS as u64)?;
    for (i, (name, entry)) in counted().enumerate() {
        put_text(&mut out, &format!("entry {i}: name"), name, MAX_NAME_BYTES)?;
        let rows = entry.counts.iter().copied().max().unwrap_or_default();
        let chunks = rows.div_ceil(chunk_size);
        put(&mut out, &format!("entry {i}: chunks"), chunks, MAX)?;
        put(&mut out, &format!("entry {i}: number of values"), entry.sums.len() as u64, MAX)?;
        for (index, mean) in entry.means().enumerate() {
            out.extend(stored(name, index, mean * chunks as f64)?.to_le_bytes());
        }
    }
    put(&mut out, "chunks of the file", imatrix.chunk_count.into(), MAX)?;
    let dataset = imatrix.datasets.last().map_or("", String::as_str);
    put_text(&mut out, "name of the dataset", dataset, MAX_STRING_BYTES)?;
    let error = |source| Error::Write { source };
    sink.write_all(&out).map_err(error)?;
    sink.flush().map_err(error)?;
    Ok(sink)
}
