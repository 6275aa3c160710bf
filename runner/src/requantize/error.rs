//! Why a conversion or a comparison failed.

use crate::model;
use halfbyte_gguf::TensorType;

/// Why a file could not be converted or compared.
///
/// Names that come from a file are shown quoted and escaped. Rows and positions count from 0; a position is an index
/// in its row.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read or written.
    #[error(transparent)]
    Gguf(#[from] halfbyte_gguf::Error),
    /// A tensor could not be read as a matrix.
    #[error(transparent)]
    Tensor(#[from] model::Error),
    /// A pattern matches no tensor: most likely a typing error.
    #[error("--keep {pattern:?} matches no tensor of two or more dimensions")]
    KeepUnmatched {
        /// The pattern as given.
        pattern: String,
    },
    /// The rows of a tensor are not whole groups of the type it should get.
    #[error(
        "tensor {tensor:?} has rows of {got} weights, and {ty} comes in groups of {expected}: give it another type \
         (--keep '{tensor}=f16')"
    )]
    RowLength {
        /// The tensor's name.
        tensor: String,
        /// The type it should get.
        ty: TensorType,
        /// Weights in a group.
        expected: usize,
        /// Weights in a row.
        got: usize,
    },
    /// The importances of a tensor are not one for each column.
    #[error("importance of tensor {tensor:?}: expected {expected} numbers, one a column, got {got}")]
    Importance {
        /// The tensor's name.
        tensor: String,
        /// Its columns.
        expected: usize,
        /// The numbers.
        got: usize,
    },
    /// The heads of a directory are in another order than a GGUF file has them, and the order of columns would change.
    #[error(
        "{k_heads} key heads serve {v_heads} value heads, which a GGUF file has in another order than this directory: \
         expected as many of both, or a GGUF file to convert"
    )]
    HeadOrder {
        /// Heads of keys in recurrent layers.
        k_heads: u32,
        /// Heads of values.
        v_heads: u32,
    },
    /// A tensor made earlier cannot be read back, or is not what it should be.
    #[error("tensor {tensor:?} as made before")]
    Ready {
        /// The tensor's name.
        tensor: String,
        /// Why.
        source: std::io::Error,
    },
    /// A weight is NaN or infinite.
    #[error("tensor {tensor:?}, row {row}, position {position}: {value} is not a finite weight")]
    NonFinite {
        /// The tensor's name.
        tensor: String,
        /// Its row.
        row: usize,
        /// The weight's position in the row.
        position: usize,
        /// The weight.
        value: f32,
    },
    /// The type cannot hold a row.
    #[error("tensor {tensor:?}, row {row}, as {ty}")]
    Encode {
        /// The tensor's name.
        tensor: String,
        /// Its row.
        row: usize,
        /// The type it should get.
        ty: TensorType,
        /// The reason, with the position in the row.
        source: EncodeError,
    },
}

/// Why a row of finite weights does not fit a type.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// Refused by a 4-bit quantizer.
    #[error(transparent)]
    Q4(#[from] halfbyte_q4::Error),
    /// Refused by the 8-bit quantizer.
    #[error(transparent)]
    Q8(#[from] halfbyte_q8::Error),
    /// Refused by a quantizer of ggml's other types.
    #[error(transparent)]
    KQuants(#[from] halfbyte_k_quants::Error),
    /// Larger than the largest half-precision number.
    #[error("weight {index} of the row is {value}, f16 ends at 65504")]
    F16 {
        /// Offset of the weight in the row.
        index: usize,
        /// The weight.
        value: f32,
    },
    /// Larger than the largest bfloat16 number.
    #[error("weight {index} of the row is {value:e}, bf16 ends at 3.3895e38")]
    BF16 {
        /// Offset of the weight in the row.
        index: usize,
        /// The weight.
        value: f32,
    },
}
