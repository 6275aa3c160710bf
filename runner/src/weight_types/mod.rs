//! The types of weights that models are computed with, in one table.
//!
//! An entry says how the stored bytes of a tensor become [`Weights`] for the CPU's kernels, in which form they go onto a
//! CUDA device, and how rows are written in the type. What else is known of a type is asked of those who know it: its
//! name and the sizes of its blocks are [`TensorType`]'s, and whether int8 activations multiply it is the kernels'.
//! Messages, `halfbyte doctor`, `--load-as` and `quantize --type` list what the table has.
//!
//! ```
//! use halfbyte::weight_types::WeightType;
//! use halfbyte_gguf::TensorType;
//!
//! let q4_0 = WeightType::of(TensorType::Q4_0).expect("in the table");
//! assert!(q4_0.int8() && q4_0.packs());
//! assert!(WeightType::of(TensorType::I32).is_none());
//! ```

#[cfg(feature = "cuda")]
mod upload;

#[cfg(feature = "quantize")]
use crate::requantize::encoders::{self, Encoder};
use halfbyte_cpu_kernels::{Affine, FormatInfo, Parameters, Weights};
use halfbyte_gguf::{self as gguf, TensorInfo, TensorType, quote};
use std::fmt;

#[cfg(feature = "cuda")]
pub(crate) use upload::stack;

/// A type that the weights of a model can have.
pub struct WeightType {
    ty: TensorType,
    layout: Layout,
    /// Puts matrices of this type onto a device. Those of other types go there as bf16.
    #[cfg(feature = "cuda")]
    upload: Option<upload::Upload>,
    /// Writes rows in this type, where that is possible.
    #[cfg(feature = "quantize")]
    encoder: Option<&'static Encoder>,
}

/// How the weights of a tensor are stored.
enum Layout {
    /// Rows of equal blocks, as GGUF has them.
    Blocks {
        /// The blocks of a tensor, from its bytes.
        view: for<'a> fn(&TensorInfo, &'a [u8]) -> Result<Weights<'a>, gguf::Error>,
        /// No blocks of this type.
        none: Weights<'static>,
    },
    /// MLX's codes, scales and biases, in arrays of their own.
    Affine { bits: usize, group: usize },
}

/// The layout of tensors whose blocks are a variant of [`Weights`].
macro_rules! blocks {
    ($variant:ident) => {
        Layout::Blocks {
            view: |info, bytes| gguf::view(info, bytes).map(Weights::$variant),
            none: Weights::$variant(&[]),
        }
    };
}

/// The layout of MLX's tensors.
const fn affine(bits: usize, group: usize) -> Layout {
    Layout::Affine { bits, group }
}

/// Makes the table. Columns for features that are off are dropped.
macro_rules! table {
    ($($ty:ident: $layout:expr, $upload:expr, $encoder:expr;)*) => {
        &[$(WeightType {
            ty: TensorType::$ty,
            layout: $layout,
            #[cfg(feature = "cuda")]
            upload: $upload,
            #[cfg(feature = "quantize")]
            encoder: $encoder,
        },)*]
    };
}

/// The table, in the order in which messages list the types.
static TABLE: &[WeightType] = table! {
    // type     for the CPU       onto a CUDA device      written by
    F32:        blocks!(F32),     None,                   Some(&encoders::F32);
    F16:        blocks!(F16),     None,                   Some(&encoders::F16);
    BF16:       blocks!(Bf16),    None,                   Some(&encoders::BF16);
    Q8_0:       blocks!(Q8_0),    Some(upload::q8_0),     Some(&encoders::Q8_0);
    Q4_0:       blocks!(Q4_0),    Some(upload::q4_0),     Some(&encoders::Q4_0);
    Q4_1:       blocks!(Q4_1),    Some(upload::q4_1),     Some(&encoders::Q4_1);
    Q5_0:       blocks!(Q5_0),    None,                   Some(&encoders::Q5_0);
    Q5_1:       blocks!(Q5_1),    None,                   Some(&encoders::Q5_1);
    Q2_K:       blocks!(Q2K),     None,                   Some(&encoders::Q2_K);
    Q3_K:       blocks!(Q3K),     None,                   Some(&encoders::Q3_K);
    Q4_K:       blocks!(Q4K),     None,                   Some(&encoders::Q4_K);
    Q5_K:       blocks!(Q5K),     None,                   Some(&encoders::Q5_K);
    Q6_K:       blocks!(Q6K),     None,                   Some(&encoders::Q6_K);
    IQ1_S:      blocks!(Iq1S),    None,                   None;
    IQ1_M:      blocks!(Iq1M),    None,                   None;
    IQ2_XXS:    blocks!(Iq2Xxs),  None,                   None;
    IQ2_XS:     blocks!(Iq2Xs),   None,                   None;
    IQ2_S:      blocks!(Iq2S),    None,                   None;
    IQ3_XXS:    blocks!(Iq3Xxs),  None,                   None;
    IQ3_S:      blocks!(Iq3S),    None,                   None;
    IQ4_NL:     blocks!(Iq4Nl),   None,                   Some(&encoders::IQ4_NL);
    IQ4_XS:     blocks!(Iq4Xs),   None,                   Some(&encoders::IQ4_XS);
    TQ1_0:      blocks!(Tq1_0),   None,                   None;
    TQ2_0:      blocks!(Tq2_0),   None,                   None;
    MXFP4:      blocks!(Mxfp4),   None,                   Some(&encoders::MXFP4);
    NVFP4:      blocks!(Nvfp4),   None,                   None;
    Q1_0:       blocks!(Q1_0),    None,                   None;
    Q2_0:       blocks!(Q2_0),    None,                   None;
    MLX4_G32:   affine(4, 32),    Some(upload::affine),   None;
    MLX4_G64:   affine(4, 64),    Some(upload::affine),   None;
    MLX4_G128:  affine(4, 128),   Some(upload::affine),   None;
    MLX8_G32:   affine(8, 32),    None,                   None;
    MLX8_G64:   affine(8, 64),    None,                   None;
    MLX8_G128:  affine(8, 128),   None,                   None;
};

impl WeightType {
    /// Every type that models are computed with.
    pub fn all() -> &'static [Self] {
        TABLE
    }

    /// What is known of tensors of type `ty`, or `None` if no model can be computed with them.
    pub fn of(ty: TensorType) -> Option<&'static Self> {
        TABLE.iter().find(|entry| entry.ty == ty)
    }

    /// The type of MLX's tensors with codes of `bits` bits in groups of `group` weights.
    pub(crate) fn of_affine(bits: usize, group: usize) -> Option<&'static Self> {
        TABLE.iter().find(|entry| entry.affine() == Some((bits, group)))
    }

    /// The type of plain numbers that safetensors files call `name`.
    pub(crate) fn of_number(name: &str) -> Option<&'static Self> {
        TABLE.iter().find(|entry| entry.is_number() && entry.ty.name() == name)
    }

    /// The type of `weights`, which may be packed; of MLX's any with codes of as many bits.
    #[cfg(feature = "cuda")]
    fn of_weights(weights: &Weights<'_>) -> Option<&'static Self> {
        TABLE.iter().find(|entry| entry.info() == weights.info())
    }

    /// The type that tensors of it show.
    pub fn tensor_type(&self) -> TensorType {
        self.ty
    }

    /// Whether int8 activations multiply such weights; others are multiplied in f32.
    pub fn int8(&self) -> bool {
        self.info().int8
    }

    /// Whether such weights are packed for the CPU's kernels when a model is loaded.
    pub fn packs(&self) -> bool {
        self.info().packs
    }

    /// What the kernels do with such weights.
    fn info(&self) -> FormatInfo {
        match self.layout {
            Layout::Blocks { none, .. } => none.info(),
            Layout::Affine { bits, group } => {
                let none = Parameters::F32(&[]);
                Weights::Affine(Affine { bits, group, codes: &[], scales: none, biases: none }).info()
            }
        }
    }

    /// What writes rows in this type, if there is something.
    #[cfg(feature = "quantize")]
    pub(crate) fn encoder(&self) -> Option<&'static Encoder> {
        self.encoder
    }

    /// Whether a weight is a number by itself.
    pub(crate) fn is_number(&self) -> bool {
        self.ty.block_len() == 1
    }

    /// The bits of a code and the weights of a group, of MLX's types.
    pub fn affine(&self) -> Option<(usize, usize)> {
        match self.layout {
            Layout::Affine { bits, group } => Some((bits, group)),
            Layout::Blocks { .. } => None,
        }
    }
}

impl fmt::Debug for WeightType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeightType").field("ty", &self.ty).field("info", &self.info()).finish_non_exhaustive()
    }
}

/// The weights of tensor `info`, of which `bytes` are the blocks, in place.
///
/// # Errors
/// [`Error::Unsupported`]; bytes that are not aligned, which only those given by the caller can be.
pub(crate) fn block_weights<'a>(info: &TensorInfo, bytes: &'a [u8]) -> Result<Weights<'a>, Error> {
    match WeightType::of(info.ty) {
        Some(WeightType { layout: Layout::Blocks { view, .. }, .. }) => Ok(view(info, bytes)?),
        _ => Err(Error::Unsupported { tensor: quote(&info.name), ty: info.ty }),
    }
}

/// The names of the types that `fits` accepts, for messages: `F32, F16`.
pub(crate) fn names(fits: impl Fn(&WeightType) -> bool) -> String {
    let names: Vec<_> = TABLE.iter().filter(|entry| fits(entry)).map(|entry| entry.ty.name()).collect();
    names.join(", ")
}

/// Each of `numbers` once, in rising order.
pub(crate) fn distinct(numbers: impl Iterator<Item = usize>) -> Vec<usize> {
    let set: std::collections::BTreeSet<_> = numbers.collect();
    set.into_iter().collect()
}

/// Why the weights of a tensor can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The tensor has a type that no model is computed with.
    #[error("tensor {tensor} has type {ty}; supported: {}", names(|entry| entry.ty.is_ggml()))]
    Unsupported {
        /// The tensor's name, quoted.
        tensor: String,
        /// Its type.
        ty: TensorType,
    },
    /// The tensor's bytes can't be seen as blocks.
    #[error(transparent)]
    Gguf(#[from] gguf::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_is_there_once_and_has_blocks_of_the_size_that_files_have() {
        for (i, entry) in TABLE.iter().enumerate() {
            assert!(TABLE[..i].iter().all(|other| other.ty != entry.ty), "{entry:?}");
            let info = TensorInfo::new("t", entry.ty, &[entry.ty.block_len(), 3]).unwrap();
            // Words are aligned for every block.
            let words = vec![0_u64; info.n_bytes.div_ceil(8)];
            let bytes = &bytemuck::cast_slice(&words)[..info.n_bytes];
            match entry.affine() {
                None => {
                    let weights = block_weights(&info, bytes).unwrap();
                    assert_eq!(weights.info(), entry.info());
                    halfbyte_cpu_kernels::Matrix::new(weights, 3, info.row_len()).unwrap();
                }
                Some((bits, group)) => {
                    assert_eq!(entry.ty.name(), format!("MLX{bits}_G{group}"));
                    assert_eq!((info.row_len(), info.row_bytes()), (group, group * bits / 8 + 4));
                    let refused = block_weights(&info, bytes).unwrap_err();
                    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
                }
            }
        }
    }

    #[test]
    fn types_without_an_entry_are_refused_by_name() {
        let info = TensorInfo::new("t", TensorType::Q8_K, &[256]).unwrap();
        assert_eq!(
            block_weights(&info, &[0; 292]).unwrap_err().to_string(),
            "tensor \"t\" has type Q8_K; supported: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, \
             Q6_K, IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ4_NL, IQ4_XS, TQ1_0, TQ2_0, MXFP4, NVFP4, Q1_0, \
             Q2_0"
        );
    }

    /// The kernels' list is longer if a format was added there and not here.
    #[test]
    fn every_format_of_the_kernels_has_a_type() {
        for format in Weights::formats() {
            assert!(TABLE.iter().any(|entry| entry.info() == format), "{format:?}");
        }
    }
}
