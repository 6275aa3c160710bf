#![doc = include_str!("../README.md")]
//!
//! GGUF model files, versions 2 and 3: read in place, checked before use, written whole.
//!
//! [`Gguf::open`] maps a file and reads its metadata and tensor list; the
//! weights stay where they are and are seen through [`Gguf::bytes`] or, as
//! blocks of a given type, through [`Gguf::view`]. Opening costs time and memory
//! proportional to the metadata, not to the weights.
//!
//! Files come from strangers. Whatever the bytes, opening returns an [`Error`]
//! that says what was expected and what was found, or a file of which all this
//! is true:
//!
//! - names and strings are UTF-8, keys and tensor names occur once;
//! - every count and length is within [`limits`], and was compared with the
//!   bytes left in the file before memory was allocated for it;
//! - every tensor has 1 to 4 non-zero dimensions, rows of whole blocks, a size
//!   that did not overflow, and lies within the file, aligned, on bytes of its
//!   own.
//!
//! A tensor of a type that is not in the list of [`TensorType`] is listed as
//! [`TensorType::Unknown`]. Its size cannot be told: it shows no bytes, and only
//! where it starts is checked.
//!
//! ```
//! use halfbyte_gguf::{Gguf, GgufWriter, Metadata, TensorInfo, TensorType};
//!
//! let mut metadata = Metadata::new();
//! metadata.set("general.architecture", "llama");
//! metadata.set("llama.block_count", 2_u32);
//! let norm = TensorInfo::new("output_norm.weight", TensorType::F32, &[2])?;
//! let mut writer = GgufWriter::new(Vec::new(), &metadata, &[norm])?;
//! writer.write_tensor("output_norm.weight", bytemuck::cast_slice(&[0.5_f32, 2.0]))?;
//!
//! let gguf = Gguf::from_vec(writer.finish()?)?;
//! assert_eq!(gguf.metadata().u32("llama.block_count")?, 2);
//! let norm = gguf.tensor("output_norm.weight")?;
//! assert_eq!((norm.ty, norm.dims.as_slice()), (TensorType::F32, &[2][..]));
//! assert_eq!(gguf.view::<f32>(norm)?, [0.5, 2.0]);
//! # Ok::<(), halfbyte_gguf::Error>(())
//! ```

mod atomic;
mod cursor;
mod encode;
mod error;
pub mod imatrix;
pub mod limits;
mod mapped;
mod metadata;
mod parse;
mod split;
mod tensor;
mod value;
mod writer;

use std::fmt;
use std::path::Path;

use bytemuck::{AnyBitPattern, PodCastError};

pub use atomic::AtomicFile;
pub use error::Error;
pub use error::quote;
pub use mapped::{MappedFile, require_file};
pub use metadata::Metadata;
pub use tensor::{Dims, TensorInfo, TensorType};
pub use value::{Array, StringTable, Value};
pub use writer::GgufWriter;

use parse::Parsed;
pub use split::file_names as split_file_names;

#[cfg(target_endian = "big")]
compile_error!("weights are used as they lie in the file, which is little-endian");

/// The first bytes of every GGUF file.
const MAGIC: [u8; 4] = *b"GGUF";

/// The metadata key of the tensors' alignment.
const ALIGNMENT_KEY: &str = "general.alignment";

/// An open GGUF file, or the bytes of one.
///
/// It can be shared between threads; all its methods only read.
pub struct Gguf {
    /// More than one for a split model.
    parts: Vec<Part>,
    /// What the first part says, with the tensors of all.
    parsed: Parsed,
}

/// A file.
struct Part {
    storage: Storage,
    /// Where its tensor data starts.
    data_start: usize,
}

/// Who holds the bytes.
enum Storage {
    Mapped(MappedFile),
    Static(&'static [u8]),
    Owned(Vec<u8>),
}

impl Storage {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Static(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}

impl Gguf {
    /// Maps the file at `path` and reads its metadata and tensor list; of a split model (`...-00001-of-00003.gguf`),
    /// whose first part is named, those of all parts.
    ///
    /// The file must not be overwritten or cut while it is open: the mapping
    /// would show the new weights, and reading past a new end kills the process
    /// with SIGBUS (see [`MappedFile`]). Replacing it by a new file of the
    /// same name is safe.
    ///
    /// # Errors
    /// A path that cannot be opened, or that is a directory, pipe or device
    /// (found without opening it, so a pipe does not block); an empty file; and
    /// everything listed in the module's documentation.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let first = Self::open_part(path)?;
        match split::Split::of(&first.parsed.metadata)? {
            Some(split) => first.with_parts(path, split),
            None => Ok(first),
        }
    }

    /// The file at `path` by itself.
    fn open_part(path: &Path) -> Result<Self, Error> {
        Self::new(Storage::Mapped(MappedFile::open(path)?))
    }

    /// Reads a file that is part of the program.
    ///
    /// `include_bytes!` promises no alignment, and [`view`](Self::view) needs
    /// one: put the bytes in an [`Aligned`].
    ///
    /// ```no_run
    /// # use halfbyte_gguf::{Aligned, Gguf};
    /// # macro_rules! include_bytes { ($path:literal) => { b"GGUF" } }
    /// static MODEL: &Aligned<[u8]> = &Aligned(*include_bytes!("model.gguf"));
    /// let gguf = Gguf::from_static(&MODEL.0)?;
    /// # Ok::<(), halfbyte_gguf::Error>(())
    /// ```
    ///
    /// # Errors
    /// As listed in the module's documentation.
    pub fn from_static(bytes: &'static [u8]) -> Result<Self, Error> {
        Self::new(Storage::Static(bytes))?.require_whole()
    }

    /// Reads a file that is already in memory, and keeps it.
    ///
    /// Allocators align large vectors well enough for [`view`](Self::view), but
    /// do not promise it.
    ///
    /// # Errors
    /// As listed in the module's documentation.
    pub fn from_vec(bytes: Vec<u8>) -> Result<Self, Error> {
        Self::new(Storage::Owned(bytes))?.require_whole()
    }

    fn new(storage: Storage) -> Result<Self, Error> {
        let parsed = parse::parse(storage.bytes())?;
        let data_start = parsed.data_start;
        Ok(Self { parts: vec![Part { storage, data_start }], parsed })
    }

    /// Refuses one part of a split model.
    fn require_whole(self) -> Result<Self, Error> {
        match split::Split::of(&self.parsed.metadata)? {
            Some(split) => Err(Error::SplitInMemory { no: split.no, count: split.count }),
            None => Ok(self),
        }
    }

    /// The format's version: 2 or 3.
    pub fn version(&self) -> u32 {
        self.parsed.version
    }

    /// The multiple at which tensors start: `general.alignment`, or 32.
    pub fn alignment(&self) -> usize {
        self.parsed.alignment
    }

    /// The size of the whole file in bytes, of all parts together.
    pub fn file_bytes(&self) -> usize {
        self.contents().map(<[u8]>::len).sum()
    }

    /// The number of files: more than one for a split model.
    pub fn n_parts(&self) -> usize {
        self.parts.len()
    }

    /// Tells the system that the file's pages are not needed for now; they come back when they are read.
    pub fn release_pages(&self) {
        for part in &self.parts {
            if let Storage::Mapped(map) = &part.storage {
                map.release_pages();
            }
        }
    }

    /// All bytes of each file.
    pub fn contents(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|part| part.storage.bytes())
    }

    /// Keys and values, in file order.
    pub fn metadata(&self) -> &Metadata {
        &self.parsed.metadata
    }

    /// All tensors, in file order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.parsed.tensors
    }

    /// The tensor called `name`, such as `blk.0.attn_q.weight`.
    ///
    /// # Errors
    /// [`Error::MissingTensor`].
    pub fn tensor(&self, name: &str) -> Result<&TensorInfo, Error> {
        self.opt_tensor(name)
            .ok_or_else(|| Error::MissingTensor { tensor: quote(name), n_tensors: self.parsed.tensors.len() })
    }

    /// The tensor called `name`, or `None` if there is none.
    pub fn opt_tensor(&self, name: &str) -> Option<&TensorInfo> {
        let Parsed { tensors, by_name, .. } = &self.parsed;
        let at = by_name.binary_search_by(|&i| tensors[i].name.as_str().cmp(name)).ok()?;
        Some(&tensors[by_name[at]])
    }

    /// The stored bytes of a tensor of this file: `info.n_bytes` of them, so none where the type is unknown.
    ///
    /// # Panics
    /// If `info` is not from this file and lies outside it.
    pub fn bytes(&self, info: &TensorInfo) -> &[u8] {
        let part = &self.parts[info.part];
        &part.storage.bytes()[part.data_start + info.offset..][..info.n_bytes]
    }

    /// The blocks of a tensor of this file, in place: row after row, `T` being
    /// one block of the tensor's type (`f32`, `half::f16`, a `BlockQ4_0`, ...).
    ///
    /// In a file opened by [`open`](Self::open) every tensor starts at a
    /// multiple of 8 in memory, which is enough for every block type; other
    /// bytes lie where their owner put them. Numbers are not inspected: f32,
    /// f16 and scales may be infinite or NaN.
    ///
    /// # Errors
    /// [`Error::ElementSize`] unless a `T` has the bytes of a block,
    /// [`Error::Misaligned`] unless the bytes are aligned for `T`.
    ///
    /// # Panics
    /// If `info` is not from this file and lies outside it.
    pub fn view<T: AnyBitPattern>(&self, info: &TensorInfo) -> Result<&[T], Error> {
        view(info, self.bytes(info))
    }
}

/// `bytes`, those of a tensor, as its blocks.
pub fn view<'a, T: AnyBitPattern>(info: &TensorInfo, bytes: &'a [u8]) -> Result<&'a [T], Error> {
    let (expected, got) = (info.ty.block_bytes(), size_of::<T>());
    let size_error = || Error::ElementSize { tensor: quote(&info.name), ty: info.ty, expected, got };
    if got != expected {
        return Err(size_error());
    }
    bytemuck::try_cast_slice(bytes).map_err(|error| match error {
        PodCastError::TargetAlignmentGreaterAndInputNotAligned => Error::Misaligned {
            tensor: quote(&info.name),
            expected: align_of::<T>(),
            got: bytes.as_ptr().addr() % align_of::<T>(),
        },
        // A tensor is whole blocks, so sizes fit; but `info` may be made up.
        _ => size_error(),
    })
}

impl fmt::Debug for Gguf {
    /// Counts only: the content would be megabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gguf")
            .field("version", &self.version())
            .field("file_bytes", &self.file_bytes())
            .field("n_metadata", &self.metadata().len())
            .field("n_tensors", &self.tensors().len())
            .finish_non_exhaustive()
    }
}

/// Puts what it holds at a multiple of 64 bytes: for [`Gguf::from_static`].
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Aligned<T: ?Sized>(pub T);
