//! Model files of any kind: a GGUF file, whole or split, a Hugging Face directory, an MLX directory.
//!
//! A [`Source`] shows every model as a GGUF file would: with metadata under GGUF's keys and tensors under GGUF's names. The
//! weights stay in the file, in the type that they are stored in. Two things differ between kinds of files beyond names,
//! and the source tells them: which elements of a head are rotated together ([`Source::rope_order`]), and in which
//! order the rows of queries and keys are stored because of that ([`Source::stored_row`]).
//!
//! [`open`] opens a directory as a [`Checkpoint`], and a file as GGUF. The module [`weight_types`] says
//! which types of weights models are computed with.

mod affine;
mod checkpoint;
mod config;
mod converted;
mod error;
mod files;
mod index;
mod json;
pub mod limits;
mod pieces;
mod rope;
mod tokenizer;

use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use halfbyte_cpu_kernels::{HeadOrder, RopeOrder, Weights};

use crate::weight_types::{self, block_weights};
pub use checkpoint::Checkpoint;
pub use error::Error;
use halfbyte_gguf::{self as gguf, Gguf, Metadata, TensorInfo, quote};
#[cfg(feature = "hub")]
pub(crate) use index::{NAME as INDEX_NAME, is_name};
pub(crate) use json::Object;

/// A model's metadata and weights, whatever kind of files has them.
pub trait Source: fmt::Debug + Send + Sync {
    /// A description for people: `GGUF v3, alignment 32`.
    fn format(&self) -> String;

    /// What people should know of the model before they use it, a sentence each.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// The GGUF file, if it is one.
    fn gguf(&self) -> Option<&Gguf> {
        None
    }

    /// The metadata, as a GGUF file of the model would have it.
    fn metadata(&self) -> &Metadata;

    /// All tensors, under GGUF's names.
    fn tensors(&self) -> &[TensorInfo];

    /// The tensor called `name`, or `None` if there is none.
    fn opt_tensor(&self, name: &str) -> Option<&TensorInfo>;

    /// The tensor called `name`.
    ///
    /// # Errors
    /// [`gguf::Error::MissingTensor`].
    fn tensor(&self, name: &str) -> Result<&TensorInfo, gguf::Error> {
        self.opt_tensor(name).ok_or_else(|| gguf::Error::MissingTensor {
            tensor: quote(name),
            n_tensors: self.tensors().len(),
        })
    }

    /// The weights of a tensor of this source, in place.
    ///
    /// # Errors
    /// A type that no model is computed with; bytes that are not aligned, which only those given by the caller can be.
    fn weights(&self, info: &TensorInfo) -> Result<Weights<'_>, weight_types::Error>;

    /// The stored bytes of a tensor of this source; only the codes if it is an affine one.
    ///
    /// # Panics
    /// If `info` is not of this source.
    fn bytes(&self, info: &TensorInfo) -> &[u8];

    /// Which elements of a head are rotated together, where that is not what GGUF files of the architecture have.
    fn rope_order(&self) -> Option<RopeOrder> {
        None
    }

    /// Which key head a value head of a recurrent layer reads.
    fn head_order(&self) -> HeadOrder {
        HeadOrder::Tiled
    }

    /// The row of the stored tensor that a GGUF file has as row `row`; for a tensor of one dimension, the element.
    fn stored_row(&self, info: &TensorInfo, row: usize) -> usize {
        let _ = info;
        row
    }

    /// The bytes of all its files.
    fn n_bytes(&self) -> usize {
        self.contents().iter().map(|bytes| bytes.len()).sum()
    }

    /// The bytes of each of its files, by which the model can be recognised.
    fn contents(&self) -> Vec<&[u8]>;

    /// Tells the operating system that the files' pages are not needed for now; they are read again when they are used.
    fn release_pages(&self) {}
}

impl Source for Gguf {
    fn format(&self) -> String {
        let parts = match self.n_parts() {
            1 => String::new(),
            n => format!(" in {n} parts"),
        };
        format!("GGUF v{}{parts}, alignment {}", self.version(), self.alignment())
    }

    fn gguf(&self) -> Option<&Gguf> {
        Some(self)
    }

    fn metadata(&self) -> &Metadata {
        self.metadata()
    }

    fn tensors(&self) -> &[TensorInfo] {
        self.tensors()
    }

    fn opt_tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.opt_tensor(name)
    }

    fn weights(&self, info: &TensorInfo) -> Result<Weights<'_>, weight_types::Error> {
        block_weights(info, self.bytes(info))
    }

    fn bytes(&self, info: &TensorInfo) -> &[u8] {
        self.bytes(info)
    }

    fn contents(&self) -> Vec<&[u8]> {
        self.contents().collect()
    }

    fn release_pages(&self) {
        self.release_pages();
    }
}

/// An opened model of any kind.
#[derive(Debug)]
pub struct ModelFile {
    source: Box<dyn Source>,
    /// The files that are mapped, and what they were like when they were opened.
    stamps: Vec<Stamp>,
}

/// The length and the time of change of a file when it was opened.
#[derive(Debug)]
struct Stamp {
    path: PathBuf,
    len: u64,
    modified: Option<SystemTime>,
}

impl ModelFile {
    /// A source without files.
    pub fn in_memory(source: impl Source + 'static) -> Self {
        Self { source: Box::new(source), stamps: Vec::new() }
    }

    /// The files that hold its weights: none for a model in memory.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.stamps.iter().map(|stamp| stamp.path.as_path())
    }

    /// Checks that the files were not changed since they were opened, so that all weights read until now are those of
    /// one model.
    ///
    /// # Errors
    /// [`Error::Changed`], naming the file.
    pub fn require_unchanged(&self) -> Result<(), Error> {
        for stamp in &self.stamps {
            let now = Stamp::of(&stamp.path)?;
            if (now.len, now.modified) != (stamp.len, stamp.modified) {
                let Stamp { path, len, .. } = stamp;
                return Err(Error::Changed { path: path.clone(), expected: *len, got: now.len });
            }
        }
        Ok(())
    }
}

impl Stamp {
    fn of(path: &Path) -> Result<Self, Error> {
        let wrong = |source| Error::Read { path: path.to_owned(), source };
        let metadata = std::fs::metadata(path).map_err(wrong)?;
        Ok(Self { path: path.to_owned(), len: metadata.len(), modified: metadata.modified().ok() })
    }
}

impl From<Gguf> for ModelFile {
    fn from(gguf: Gguf) -> Self {
        Self::in_memory(gguf)
    }
}

impl Deref for ModelFile {
    type Target = dyn Source;

    fn deref(&self) -> &Self::Target {
        &*self.source
    }
}

/// The safetensors files that the index in `directory` names, which is there.
///
/// # Errors
/// A file that is no index, or names files elsewhere.
#[cfg(feature = "hub")]
pub(crate) fn indexed_files(directory: &Path) -> Result<Vec<String>, Error> {
    Ok(index::read(directory)?.map_or_else(Vec::new, |index| index.files()))
}

/// Opens the model at `path`: a GGUF file, the first part of a split one, or a directory with `config.json` and
/// safetensors files. The weights are not read.
///
/// # Errors
/// Whatever is wrong with the files, by name.
pub fn open(path: &Path) -> Result<Arc<ModelFile>, Error> {
    if path.is_dir() {
        let checkpoint = Checkpoint::open(path)?;
        let stamps = checkpoint.files().map(Stamp::of).collect::<Result<_, _>>()?;
        return Ok(Arc::new(ModelFile { source: Box::new(checkpoint), stamps }));
    }
    let gguf = Gguf::open(path)?;
    let stamps = gguf.files(path).iter().map(|path| Stamp::of(path)).collect::<Result<_, _>>()?;
    Ok(Arc::new(ModelFile { source: Box::new(gguf), stamps }))
}
