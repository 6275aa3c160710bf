//! What can be wrong with a model directory.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use super::affine::affine_bits;
use crate::weight_types::{self, WeightType};
use halfbyte_gguf as gguf;

/// Why a model could not be opened.
///
/// Names that come from a file are quoted, escaped and cut to a readable length.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A GGUF file, or something that a GGUF file could not hold either.
    #[error(transparent)]
    Gguf(#[from] gguf::Error),
    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is not what it was when the model was opened.
    #[error(
        "{} was changed while it was in use: it had {expected} bytes and has {got} (a model in use can be replaced by a \
         new file, but not be written to)",
        path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// Its length when it was opened.
        expected: u64,
        /// Its length now.
        got: u64,
    },
    /// A directory lacks a file that a model needs.
    #[error("{} is a directory without {missing}: expected a GGUF file, or a directory with config.json and model.safetensors", path.display())]
    Incomplete {
        /// The directory.
        path: PathBuf,
        /// The missing file.
        missing: &'static str,
    },
    /// A file is longer than the limit for its kind.
    #[error("{} has {got} bytes: expected at most {limit}", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        got: u64,
        /// The limit, from [`super::limits`].
        limit: u64,
    },
    /// A file is not JSON, or not the JSON that it should be.
    #[error("{}: {message}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column.
        message: String,
    },
    /// A field of a JSON file is missing or has a wrong value.
    #[error("{}: {field} is {got}: expected {expected}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// Its value, or `missing`.
        got: String,
        /// What it must be.
        expected: String,
    },
    /// A field has a value that is not supported.
    #[error("{}: {field} = {got} is not supported; supported: {supported}", path.display())]
    Feature {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// Its value.
        got: String,
        /// The values that are supported.
        supported: Cow<'static, str>,
    },
    /// A file is not a safetensors file.
    #[error("{}: {message}", path.display())]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A number is above its limit.
    #[error("{}: {what} is {got}: expected at most {limit}", path.display())]
    Limit {
        /// The file.
        path: PathBuf,
        /// The number.
        what: &'static str,
        /// Its value.
        got: u64,
        /// The limit.
        limit: u64,
    },
    /// An index names a file outside its directory.
    #[error("{}: the file {got} of tensor {tensor} is not a name: expected a file in the same directory", path.display())]
    IndexPath {
        /// The index.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The file as named, quoted.
        got: String,
    },
    /// A tensor is not in the file that the index names, or is in two files.
    #[error("tensor {tensor} is {problem}")]
    Placement {
        /// The tensor, quoted.
        tensor: String,
        /// Where it is and where it is not.
        problem: String,
    },
    /// A tensor has a type that is not supported.
    #[error("tensor {tensor} has type {got}; supported: {}", supported_types())]
    Type {
        /// The tensor, quoted.
        tensor: String,
        /// Its type.
        got: String,
    },
    /// A tensor has a shape that its name does not go with.
    #[error("tensor {tensor} has {got}: expected {expected}")]
    Shape {
        /// The tensor, quoted.
        tensor: String,
        /// Its shape.
        got: String,
        /// The shapes that it may have.
        expected: &'static str,
    },
    /// The parts of an affine tensor do not fit each other.
    #[error("tensor {tensor}: {what} is {got}: expected {expected}")]
    Affine {
        /// The tensor, quoted.
        tensor: String,
        /// The part.
        what: &'static str,
        /// What it is.
        got: String,
        /// What it must be.
        expected: String,
    },
    /// The architecture does not use a tensor of the file, so the model would compute something else than was meant.
    #[error("tensor {tensor} is not part of architecture {architecture} as supported here")]
    ExtraTensor {
        /// Its name, quoted.
        tensor: String,
        /// The directory's architecture, by GGUF's name.
        architecture: &'static str,
    },
}

impl Error {
    /// Whether the message names the file, so that nobody else needs to.
    pub fn names_file(&self) -> bool {
        match self {
            Self::Gguf(error) => error.names_file(),
            Self::Placement { .. }
            | Self::Type { .. }
            | Self::Shape { .. }
            | Self::Affine { .. }
            | Self::ExtraTensor { .. } => false,
            _ => true,
        }
    }
}

/// The types that tensors of a directory can have, for messages.
fn supported_types() -> String {
    let bits: Vec<_> = affine_bits().iter().map(usize::to_string).collect();
    format!("{}, and MLX's affine {} bits", weight_types::names(WeightType::is_number), bits.join(" and "))
}
