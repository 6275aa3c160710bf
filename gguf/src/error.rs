//! Everything that can be wrong with a GGUF file or with a question asked of it.

use std::io;
use std::path::PathBuf;

use crate::tensor::TensorType;

/// Why a GGUF file could not be opened, read or written.
///
/// Messages name what was expected and what was found. Names that come from
/// the file are quoted, escaped and cut to a readable length, so that printing
/// an error never sends control characters to a terminal. The underlying
/// [`io::Error`], where there is one, is the `source`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be opened or its kind and length could not be read.
    #[error("cannot open {}", path.display())]
    Open {
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The path names something that cannot be mapped.
    #[error("{} is {got}: expected a regular file (a model is mapped into memory, not streamed)", path.display())]
    NotAFile {
        /// The path as given.
        path: PathBuf,
        /// What is there: a directory, a pipe, ...
        got: &'static str,
    },
    /// The file has no bytes.
    #[error("{} is empty: expected a GGUF file", path.display())]
    Empty {
        /// The path as given.
        path: PathBuf,
    },
    /// The system refused to map the file.
    #[error("cannot map {} into memory", path.display())]
    Map {
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// The first four bytes are not `GGUF`.
    #[error("not a GGUF file: expected it to start with \"GGUF\", found \"{got}\"")]
    Magic {
        /// The bytes found, escaped.
        got: String,
    },
    /// The file was written for a big-endian machine.
    #[error(
        "big-endian GGUF version {version}: expected a little-endian file (convert it with gguf-convert-endian)"
    )]
    BigEndian {
        /// The version after swapping its bytes.
        version: u32,
    },
    /// A version this reader does not know.
    #[error("GGUF version {got}: expected version 2 or 3")]
    Version {
        /// The version found.
        got: u32,
    },
    /// The file ends inside a value.
    #[error("{place}: {what} takes {expected} bytes at offset {offset}, but the file has {got} left")]
    Truncated {
        /// The part of the file: `header`, `metadata key "..."`, ...
        place: String,
        /// The value that does not fit.
        what: &'static str,
        /// Where in the file it starts.
        offset: usize,
        /// Its size in bytes.
        expected: u64,
        /// Bytes from `offset` to the end of the file.
        got: usize,
    },
    /// A count or length above the limit in [`crate::limits`].
    #[error("{place}: {what} is {got}: expected at most {limit}")]
    Limit {
        /// The part of the file.
        place: String,
        /// The count or length.
        what: String,
        /// Its value.
        got: u64,
        /// The most that is accepted.
        limit: usize,
    },
    /// A string that must be UTF-8 and is not.
    #[error("{place}: {what} is not UTF-8: invalid byte at offset {offset}")]
    Utf8 {
        /// The part of the file.
        place: String,
        /// The string.
        what: &'static str,
        /// Where in the file the first invalid byte is.
        offset: usize,
    },
    /// A metadata value type that GGUF does not have.
    #[error("{place}: unknown value type {got}: expected 0 to 12")]
    ValueType {
        /// The part of the file.
        place: String,
        /// The type found.
        got: u32,
    },
    /// An array whose elements are arrays. No model uses them, and their
    /// elements need not take any bytes.
    #[error("{place}: an array of arrays: expected an array of numbers, booleans or strings")]
    NestedArray {
        /// The part of the file.
        place: String,
    },
    /// A boolean stored as something else than 0 or 1.
    #[error("{place}: boolean stored as {got}: expected 0 or 1")]
    Bool {
        /// The part of the file.
        place: String,
        /// The byte found.
        got: u8,
    },
    /// Two metadata entries with one key.
    #[error("metadata key {key} occurs twice: expected each key once")]
    DuplicateKey {
        /// The key, quoted.
        key: String,
    },
    /// Two tensors with one name.
    #[error("tensor {tensor} occurs twice: expected each name once")]
    DuplicateTensor {
        /// The name, quoted.
        tensor: String,
    },
    /// `general.alignment` is not usable.
    #[error(
        "general.alignment is {got}: expected a power of two from {} to {}",
        crate::limits::MIN_ALIGNMENT,
        crate::limits::MAX_ALIGNMENT
    )]
    Alignment {
        /// The value found.
        got: u32,
    },

    /// A tensor with no or too many dimensions.
    #[error("tensor {tensor} has {got} dimensions: expected 1 to {}", crate::limits::MAX_DIMS)]
    DimCount {
        /// The tensor's name, quoted.
        tensor: String,
        /// The number found.
        got: usize,
    },
    /// A tensor with no elements.
    #[error("tensor {tensor} has dimensions {got}: expected every one to be at least 1")]
    ZeroDim {
        /// The tensor's name, quoted.
        tensor: String,
        /// The dimensions, first one contiguous.
        got: String,
    },
    /// A tensor whose size cannot be computed in 64 bits.
    #[error("tensor {tensor} with dimensions {got} and type {ty}: its size overflows")]
    SizeOverflow {
        /// The tensor's name, quoted.
        tensor: String,
        /// The dimensions, first one contiguous.
        got: String,
        /// Its type.
        ty: TensorType,
    },
    /// A row that ends inside a block.
    #[error("tensor {tensor} of type {ty} has rows of {got}: expected a multiple of {expected}")]
    RowLength {
        /// The tensor's name, quoted.
        tensor: String,
        /// Its type.
        ty: TensorType,
        /// Elements a block.
        expected: usize,
        /// Elements a row.
        got: usize,
    },
    /// A tensor to be written in a type whose blocks have no known size.
    #[error("tensor {tensor} has type {}: expected one that ggml's files have", TensorType::Unknown(*id))]
    UnknownType {
        /// The tensor's name, quoted.
        tensor: String,
        /// The type's number.
        id: u32,
    },
    /// A tensor whose offset is not a multiple of the file's alignment.
    #[error("tensor {tensor} starts at offset {got}: expected a multiple of the alignment {expected}")]
    OffsetAlignment {
        /// The tensor's name, quoted.
        tensor: String,
        /// The file's alignment.
        expected: usize,
        /// The offset found, from the start of the tensor data.
        got: usize,
    },
    /// A tensor that does not lie within the file.
    #[error(
        "tensor {tensor} takes {n_bytes} bytes at offset {offset} of the tensor data, which has {got} bytes"
    )]
    OutOfFile {
        /// The tensor's name, quoted.
        tensor: String,
        /// Its offset from the start of the tensor data.
        offset: usize,
        /// Its size.
        n_bytes: usize,
        /// Bytes of tensor data in the file.
        got: usize,
    },
    /// Two tensors that share bytes.
    #[error("tensor {second} starts at offset {got}, inside {first}: expected {expected} or more")]
    Overlap {
        /// The tensor that starts first, quoted.
        first: String,
        /// The other one, quoted.
        second: String,
        /// Where `first` ends.
        expected: usize,
        /// Where `second` starts.
        got: usize,
    },

    /// A part of a split file that is not the first.
    #[error("{} is part {} of {count} of a split model: expected the first part, {first}", path.display(), no + 1)]
    SplitNotFirst {
        /// The path as given.
        path: PathBuf,
        /// Its `split.no`, from 0.
        no: u32,
        /// Its `split.count`.
        count: u32,
        /// The name of the first part's file.
        first: String,
    },
    /// A split file whose name does not say where the other parts are.
    #[error(
        "{} is part {} of {count} of a split model: expected a name that ends in -{:05}-of-{count:05}.gguf, \
         by which the other parts are found",
        path.display(), no + 1, no + 1
    )]
    SplitName {
        /// The path as given.
        path: PathBuf,
        /// Its `split.no`, from 0.
        no: u32,
        /// Its `split.count`.
        count: u32,
    },
    /// A part that is not there, or can't be read.
    #[error("part {part} of {count} of a split model")]
    SplitPart {
        /// Its number, from 1.
        part: u32,
        /// The number of parts.
        count: u32,
        /// What is wrong with it; it names the file.
        source: Box<Error>,
    },
    /// What is wrong with the content of a file that the caller did not name.
    #[error("{}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<Error>,
    },
    /// A part that says it is another.
    #[error("{} says that it is part {} of {got_count}: expected part {} of {count}", path.display(), got + 1, no + 1)]
    SplitMismatch {
        /// The file.
        path: PathBuf,
        /// The part that belongs there, from 0.
        no: u32,
        /// The number of parts by the first of them.
        count: u32,
        /// Its `split.no`.
        got: u32,
        /// Its `split.count`.
        got_count: u32,
    },
    /// A split model with more or fewer tensors than its first part announces.
    #[error("the parts of the split model have {got} tensors: expected {expected} (split.tensors.count)")]
    SplitTensors {
        /// What the first part says.
        expected: u32,
        /// What the parts have.
        got: usize,
    },
    /// Bytes in memory that are one part of a split model.
    #[error("part {} of {count} of a split model: expected a whole one (a split model is opened by its first file)", no + 1)]
    SplitInMemory {
        /// Its `split.no`, from 0.
        no: u32,
        /// Its `split.count`.
        count: u32,
    },

    /// A metadata key that is needed and not there.
    #[error("metadata key {key} is missing: expected {expected}")]
    MissingKey {
        /// The key, quoted.
        key: String,
        /// The type asked for.
        expected: &'static str,
    },
    /// A metadata value of another type than asked for.
    #[error("metadata key {key} is {got}: expected {expected}")]
    WrongType {
        /// The key, quoted.
        key: String,
        /// The type asked for.
        expected: &'static str,
        /// The type found.
        got: &'static str,
    },
    /// A metadata number that does not fit the type asked for.
    #[error("metadata key {key} has the value {got}: expected {expected}")]
    OutOfRange {
        /// The key, quoted.
        key: String,
        /// The range asked for.
        expected: &'static str,
        /// The value found.
        got: String,
    },
    /// A tensor that is needed and not there.
    #[error("tensor {tensor} is missing (the file has {n_tensors} tensors)")]
    MissingTensor {
        /// The name, quoted.
        tensor: String,
        /// How many tensors there are.
        n_tensors: usize,
    },
    /// A tensor to be written in a type that is not one of GGUF's.
    #[error("tensor {tensor} has type {ty}, which GGUF files do not have")]
    NotGguf {
        /// The tensor's name, quoted.
        tensor: String,
        /// Its type.
        ty: TensorType,
    },
    /// A view with elements of another size than the tensor's blocks.
    #[error("tensor {tensor} of type {ty} has blocks of {expected} bytes: asked for elements of {got} bytes")]
    ElementSize {
        /// The tensor's name, quoted.
        tensor: String,
        /// Its type.
        ty: TensorType,
        /// Bytes a block.
        expected: usize,
        /// Bytes of the element asked for.
        got: usize,
    },
    /// A view of bytes that are not aligned for the element type. Only bytes
    /// given by the caller can be: put them in [`crate::Aligned`].
    #[error(
        "tensor {tensor} lies {got} bytes past a multiple of {expected}: expected it to be aligned \
         (embed the model in gguf::Aligned)"
    )]
    Misaligned {
        /// The tensor's name, quoted.
        tensor: String,
        /// The alignment the element type needs.
        expected: usize,
        /// The address modulo `expected`.
        got: usize,
    },

    /// Something at the destination of a new file that a file must not replace.
    #[error("cannot write {}: it is {got}, expected a regular file or a name that is not in use", path.display())]
    OutputKind {
        /// The path as given.
        path: PathBuf,
        /// What is there: a directory, a device, ...
        got: &'static str,
    },
    /// A new file in a directory that does not exist.
    #[error("cannot write {}: there is no directory {}", path.display(), folder.display())]
    OutputFolder {
        /// The path as given.
        path: PathBuf,
        /// The directory that it names.
        folder: PathBuf,
    },
    /// The output could not be written. Nothing is left at the destination
    /// that was not there before.
    #[error("cannot write {what}")]
    Write {
        /// The file or the part of it.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// Tensor data given in another order or size than announced.
    #[error("writing tensor data: expected {expected}, got {got}")]
    WriteOrder {
        /// What has to come next.
        expected: String,
        /// What came.
        got: String,
    },
}

impl Error {
    /// Whether the message names the file, so that nobody else needs to.
    pub fn names_file(&self) -> bool {
        matches!(
            self,
            Self::Open { .. }
                | Self::NotAFile { .. }
                | Self::Empty { .. }
                | Self::Map { .. }
                | Self::InFile { .. }
                | Self::SplitNotFirst { .. }
                | Self::SplitName { .. }
                | Self::SplitMismatch { .. }
                | Self::OutputKind { .. }
                | Self::OutputFolder { .. }
        )
    }
}

/// A name from a file, fit for a message: quoted, escaped, at most 80 characters.
pub fn quote(name: &str) -> String {
    match name.char_indices().nth(80) {
        None => format!("{name:?}"),
        Some((cut, _)) => format!("{:?}...", &name[..cut]),
    }
}

/// A text already escaped, at most 80 characters of it.
pub(crate) fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(80) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}
