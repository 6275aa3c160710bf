//! Decides what every tensor becomes, before anything is written.

use halfbyte_cpu_kernels::{HeadOrder, Matrix};

use super::pattern::matches;
use super::{Encoding, Error};
use crate::model;
use crate::source::Source;
use halfbyte_gguf::{Metadata, TensorInfo, TensorType};

/// The metadata key of the alignment, which a file may hold as any integer and is written as a u32.
const ALIGNMENT: &str = "general.alignment";

/// ggml's version of the layout of its blocks (`general.quantization_version`).
const QUANTIZATION_VERSION: u32 = 2;

/// An exception: tensors whose name fits a pattern get another type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keep {
    /// A pattern for the whole name: `*` is any text, `?` any one character.
    pub pattern: String,
    /// The type they get.
    pub encoding: Encoding,
}

/// A model and the new type of each of its tensors.
///
/// A tensor of one dimension (norm, bias, rope factors) stays as it is, byte for byte and whatever it holds, and so do
/// biases of experts, routers and short convolutions, which are small and which llama.cpp leaves alone, too. Every other
/// one gets the plan's format or that of the last [`Keep`] that matches, or what takes its place for the length of
/// its rows ([`Encoding::for_rows`]); if it has the type already, it is copied and loses nothing.
#[derive(Debug)]
pub struct Plan<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) steps: Vec<Step<'a>>,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    saturate: bool,
}

/// What is done with a tensor.
#[derive(Debug)]
pub(super) enum Step<'a> {
    /// Copied as it is, once all its numbers are found to be finite.
    Vector,
    /// Written as F32, which other readers of GGUF expect of vectors, where the source has another type.
    Widened(Matrix<'a>),
    /// Written in another type, or copied where it has the type already.
    Matrix {
        matrix: Matrix<'a>,
        encoding: Encoding,
        copy: bool,
        /// The importance of each column, if they differ.
        importance: Option<Vec<f32>>,
    },
}

/// Whether a tensor keeps its numbers.
fn stays(info: &TensorInfo) -> bool {
    let small =
        ["ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", "ssm_conv1d.weight", "shortconv.conv.weight"];
    info.dims.len() == 1 || info.name.ends_with(".bias") || small.iter().any(|part| info.name.ends_with(part))
}

impl<'a> Plan<'a> {
    /// Decides what the tensors of `source` become. Weights are not looked at yet.
    ///
    /// # Errors
    /// [`Error::KeepUnmatched`], [`Error::RowLength`], [`Error::HeadOrder`]; a tensor of two or more dimensions whose type is
    /// not supported, and a vector whose type has no known size.
    pub fn new(source: &'a dyn Source, encoding: Encoding, keep: &[Keep]) -> Result<Self, Error> {
        require_head_order(source)?;
        for Keep { pattern, .. } in keep {
            if !source.tensors().iter().any(|t| !stays(t) && matches(pattern, &t.name)) {
                return Err(Error::KeepUnmatched { pattern: pattern.clone() });
            }
        }
        let (mut steps, mut tensors) = (Vec::new(), Vec::new());
        for info in source.tensors() {
            if stays(info) && source.gguf().is_none() {
                steps.push(Step::Widened(model::tensor_matrix(source, info)?));
                tensors.push(TensorInfo::new(&info.name, TensorType::F32, &info.dims)?);
                continue;
            }
            if stays(info) {
                steps.push(Step::Vector);
                // Refuses types of unknown size, of which there are no bytes to copy.
                tensors.push(TensorInfo::new(&info.name, info.ty, &info.dims)?);
                continue;
            }
            let kept = keep.iter().rev().find(|keep| matches(&keep.pattern, &info.name));
            let encoding = kept.map_or(encoding, |keep| keep.encoding).for_rows(info.row_len());
            let ty = encoding.tensor_type();
            if !info.row_len().is_multiple_of(ty.block_len()) {
                let (expected, got) = (ty.block_len(), info.row_len());
                return Err(Error::RowLength { tensor: info.name.clone(), ty, expected, got });
            }
            let matrix = model::tensor_matrix(source, info)?;
            steps.push(Step::Matrix { matrix, encoding, copy: info.ty == ty, importance: None });
            tensors.push(TensorInfo::new(&info.name, ty, &info.dims)?);
        }
        Ok(Self { source, steps, metadata: metadata(source, encoding), tensors, saturate: false })
    }

    /// Sets the importance of columns. `of` is called with the name and the number of columns, times that of stacked experts,
    /// of each tensor whose new encoding can use it. Returns the names of the tensors for which `of` has none; all their columns count alike.
    ///
    /// # Errors
    /// Those of `of`; [`Error::Importance`] if `of` does not return one number a column.
    pub fn weigh<E: From<Error>>(
        &mut self,
        mut of: impl FnMut(&str, usize) -> Result<Option<Vec<f32>>, E>,
    ) -> Result<Vec<String>, E> {
        let mut unknown = Vec::new();
        for (info, step) in self.source.tensors().iter().zip(&mut self.steps) {
            let Step::Matrix { encoding, copy: false, importance, .. } = step else { continue };
            if !encoding.takes_importance() {
                continue;
            }
            // Experts that are stacked each have their own.
            let columns = info.row_len() * info.dims.get(2).copied().unwrap_or(1);
            match of(&info.name, columns)? {
                None => unknown.push(info.name.clone()),
                Some(numbers) if numbers.len() != columns => {
                    let (expected, got) = (columns, numbers.len());
                    return Err(Error::Importance { tensor: info.name.clone(), expected, got }.into());
                }
                numbers => *importance = numbers,
            }
        }
        Ok(unknown)
    }

    /// Lets weights beyond the range of a type be replaced by the end of the range. Without this they are an error.
    pub fn saturate(&mut self) {
        self.saturate = true;
    }

    /// Sets llama.cpp's number for the file (`general.file_type`), where the file is more than one type: a
    /// [`Mix`](super::Mix).
    pub fn set_file_type(&mut self, file_type: u32) {
        self.metadata.set("general.file_type", file_type);
    }

    /// The magnitude at which weights are cut off when they are written as `encoding`, if they are cut off.
    pub(crate) fn cut_off(&self, encoding: Encoding) -> Option<f32> {
        self.saturate.then(|| encoding.limit())
    }

    /// The file.
    pub(crate) fn source(&self) -> &'a dyn Source {
        self.source
    }

    /// The tensor called `name` if it is to be quantized: what it is, its weights, its new encoding and its columns'
    /// importance.
    pub(crate) fn quantized(
        &self,
        name: &str,
    ) -> Option<(&TensorInfo, Matrix<'a>, Encoding, Option<&[f32]>)> {
        let (info, step) =
            self.source.tensors().iter().zip(&self.steps).find(|(info, _)| info.name == name)?;
        match step {
            Step::Matrix { matrix, encoding, copy: false, importance } => {
                Some((info, *matrix, *encoding, importance.as_deref()))
            }
            _ => None,
        }
    }

    /// The new file's metadata: the old with `general.file_type` and `general.quantization_version` set.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The new file's tensors, in the order of the old, without offsets.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The number of weights, those of vectors included: the progress of a conversion counts up to it.
    pub fn n_weights(&self) -> usize {
        self.tensors.iter().map(TensorInfo::n_elements).sum()
    }
}

/// Refuses heads whose order would change, with the columns of the matrix that reads them.
fn require_head_order(source: &dyn Source) -> Result<(), Error> {
    let metadata = source.metadata();
    let Some(architecture) = metadata.opt_str("general.architecture")? else { return Ok(()) };
    let heads = |name: &str| metadata.opt_u32(&format!("{architecture}.ssm.{name}"));
    if let (Some(k_heads), Some(v_heads)) = (heads("group_count")?, heads("time_step_rank")?)
        && k_heads != v_heads
        && source.head_order() != HeadOrder::Tiled
    {
        return Err(Error::HeadOrder { k_heads, v_heads });
    }
    Ok(())
}

fn metadata(source: &dyn Source, encoding: Encoding) -> Metadata {
    let mut metadata = source.metadata().clone();
    // The new file is whole.
    metadata.remove_all("split.");
    metadata.set("general.file_type", encoding.file_type());
    metadata.set("general.quantization_version", QUANTIZATION_VERSION);
    if metadata.get(ALIGNMENT).is_some()
        && let Some(gguf) = source.gguf()
        && let Ok(alignment) = u32::try_from(gguf.alignment())
    {
        metadata.set(ALIGNMENT, alignment);
    }
    metadata
}
