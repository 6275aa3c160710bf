//! Writing GGUF version 3 from front to back.

use std::io::Write;
use std::path::Path;

use crate::cursor::Place;
use crate::encode::encode_header;
use crate::error::quote;
use crate::limits::{DEFAULT_ALIGNMENT, MAX_TENSORS, at_most, check_alignment};
use crate::metadata::{Metadata, sorted_index};
use crate::tensor::TensorInfo;
use crate::value::Value;
use crate::{ALIGNMENT_KEY, AtomicFile, Error};

/// Writes a file in one pass: everything about the tensors first, then their
/// bytes in the order announced, in pieces of any size.
///
/// What it writes, [`crate::Gguf`] reads: it keeps the same limits.
#[derive(Debug)]
pub struct GgufWriter<W: Write> {
    sink: W,
    /// With the offsets they have in the file.
    tensors: Vec<TensorInfo>,
    alignment: usize,
    /// The tensor being written.
    current: usize,
    /// How many of its bytes have been.
    written: usize,
}

impl GgufWriter<AtomicFile> {
    /// Starts a file that will be called `path` after [`commit`](Self::commit).
    ///
    /// # Errors
    /// Those of [`AtomicFile::create`] and [`GgufWriter::new`].
    pub fn create(
        path: impl AsRef<Path>,
        metadata: &Metadata,
        tensors: &[TensorInfo],
    ) -> Result<Self, Error> {
        Self::new(AtomicFile::create(path)?, metadata, tensors)
    }

    /// Ends the file and puts it in its place.
    ///
    /// # Errors
    /// Those of [`GgufWriter::finish`] and [`AtomicFile::commit`].
    pub fn commit(self) -> Result<(), Error> {
        self.finish()?.commit()
    }
}

impl<W: Write> GgufWriter<W> {
    /// Writes the header: `metadata` and the list of `tensors`, whose `offset`
    /// and `n_bytes` are computed anew. `general.alignment` is obeyed if set.
    ///
    /// # Errors
    /// A count or length above [`crate::limits`], an unusable alignment, two
    /// tensors of one name, a tensor that [`TensorInfo::new`] would refuse
    /// (all before anything is written); [`Error::Write`].
    pub fn new(sink: W, metadata: &Metadata, tensors: &[TensorInfo]) -> Result<Self, Error> {
        let alignment = alignment(metadata)?;
        let tensors = place(tensors, alignment)?;
        let header = encode_header(metadata, &tensors, alignment)?;
        let mut writer = Self { sink, tensors, alignment, current: 0, written: 0 };
        writer.emit(&header)?;
        Ok(writer)
    }

    /// Appends bytes of the current tensor. The next piece belongs to the next
    /// tensor once this one is complete.
    ///
    /// # Errors
    /// [`Error::WriteOrder`] if the tensor has fewer bytes left or all tensors
    /// are complete; [`Error::Write`].
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let Some(info) = self.tensors.get(self.current) else {
            let got = format!("{} more bytes", bytes.len());
            return Err(Error::WriteOrder { expected: "the end of the file".to_owned(), got });
        };
        let left = info.n_bytes - self.written;
        if bytes.len() > left {
            return Err(Error::WriteOrder {
                expected: format!("at most {left} bytes of {}", quote(&info.name)),
                got: format!("{} bytes", bytes.len()),
            });
        }
        let complete = bytes.len() == left;
        let padding = info.n_bytes.next_multiple_of(self.alignment) - info.n_bytes;
        self.emit(bytes)?;
        self.written += bytes.len();
        if complete {
            // The last tensor is padded too: ggml's reader wants it.
            self.emit(&vec![0; padding])?;
            self.current += 1;
            self.written = 0;
        }
        Ok(())
    }

    /// Writes the whole of the next tensor, which must be `name`.
    ///
    /// # Errors
    /// [`Error::WriteOrder`] if another tensor is next or has another size;
    /// [`Error::Write`].
    pub fn write_tensor(&mut self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let got = || format!("{} bytes of {}", bytes.len(), quote(name));
        match self.tensors.get(self.current) {
            Some(info) if info.name == name && bytes.len() == info.n_bytes && self.written == 0 => {}
            _ => return Err(Error::WriteOrder { expected: self.expected(), got: got() }),
        }
        self.append(bytes)
    }

    /// Ends the file and gives the sink back, flushed.
    ///
    /// # Errors
    /// [`Error::WriteOrder`] if a tensor is missing or incomplete; [`Error::Write`].
    pub fn finish(mut self) -> Result<W, Error> {
        if self.current < self.tensors.len() {
            let got = "the end of the file".to_owned();
            return Err(Error::WriteOrder { expected: self.expected(), got });
        }
        self.sink.flush().map_err(|source| self.error(source))?;
        Ok(self.sink)
    }

    /// What has to come next, in words.
    fn expected(&self) -> String {
        match self.tensors.get(self.current) {
            Some(info) => format!("{} bytes of {}", info.n_bytes - self.written, quote(&info.name)),
            None => "the end of the file".to_owned(),
        }
    }

    fn emit(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.sink.write_all(bytes).map_err(|source| self.error(source))
    }

    fn error(&self, source: std::io::Error) -> Error {
        let what = match self.tensors.get(self.current) {
            Some(info) => format!("the GGUF file, at tensor {}", quote(&info.name)),
            None => "the GGUF file, at its end".to_owned(),
        };
        Error::Write { what, source }
    }
}

/// The alignment that `metadata` asks for. Unlike the reader, which takes any
/// integer, the key must be a u32: other readers insist.
fn alignment(metadata: &Metadata) -> Result<usize, Error> {
    match metadata.get(ALIGNMENT_KEY) {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(&Value::U32(got)) => check_alignment(got),
        Some(other) => {
            Err(Error::WrongType { key: quote(ALIGNMENT_KEY), expected: "a u32", got: other.type_name() })
        }
    }
}

/// The tensors with sizes checked and offsets assigned, one after the other.
fn place(tensors: &[TensorInfo], alignment: usize) -> Result<Vec<TensorInfo>, Error> {
    at_most(tensors.len() as u64, MAX_TENSORS, Place::Header, "tensor count")?;
    sorted_index(tensors.len(), |i| &tensors[i].name)
        .map_err(|i| Error::DuplicateTensor { tensor: quote(&tensors[i].name) })?;
    let mut offset = 0_usize;
    let mut placed = Vec::with_capacity(tensors.len());
    for TensorInfo { name, ty, dims, .. } in tensors {
        if ty.is_known() && !ty.is_ggml() {
            return Err(Error::NotGguf { tensor: quote(name), ty: *ty });
        }
        let info = TensorInfo { offset, ..TensorInfo::new(name, *ty, dims)? };
        let end = offset.checked_add(info.n_bytes).and_then(|end| end.checked_next_multiple_of(alignment));
        offset = end.ok_or_else(|| Error::SizeOverflow {
            tensor: quote(name),
            got: crate::Dims(dims).to_string(),
            ty: *ty,
        })?;
        placed.push(info);
    }
    Ok(placed)
}
