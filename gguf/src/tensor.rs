//! Tensor types with their block sizes, and what a file says of each tensor.

use std::fmt;

use crate::Error;
use crate::error::quote;
use crate::limits::MAX_DIMS;

/// Makes [`TensorType`] and its table from one list.
macro_rules! tensor_types {
    ($($(#[$doc:meta])* $name:ident = $id:literal, $block:literal, $bytes:literal;)*) => {
        /// How a tensor's elements are stored: every type that ggml can have in a file, MLX's affine ones, which
        /// only other files have, and numbers in a file that stand for no type listed here.
        ///
        /// A row is a whole number of blocks; a block holds [`block_len`](Self::block_len)
        /// elements in [`block_bytes`](Self::block_bytes) bytes. The list says nothing of what can be computed
        /// with: a file's tensors can be listed and copied whatever their types are.
        #[allow(non_camel_case_types, reason = "the names are the ones ggml and model files use")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum TensorType {
            $($(#[$doc])* $name,)*
            /// A type that a file names by this number and that is not listed here: newer than this list, or
            /// withdrawn by ggml. The size of its blocks is not known, so neither is the size of a tensor.
            Unknown(u32),
        }

        impl TensorType {
            /// Every known type, by rising id.
            pub const ALL: &'static [TensorType] = &[$(TensorType::$name),*];

            /// The known type with ggml's number `id`, if there is one.
            pub const fn from_id(id: u32) -> Option<Self> {
                if id >= FIRST_FOREIGN {
                    return None;
                }
                match id {
                    $($id => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The number that stands for this type in a file; without meaning for those that are not ggml's.
            pub const fn id(self) -> u32 {
                match self {
                    $(Self::$name => $id,)*
                    Self::Unknown(id) => id,
                }
            }

            /// ggml's name, such as `Q4_0`; `unknown` where there is none. [`fmt::Display`] shows the number then.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                    Self::Unknown(id) => match withdrawn_name(id) {
                        Some(name) => name,
                        None => "unknown",
                    },
                }
            }

            /// Elements a block; 1 for plain numbers, and for unknown types.
            pub const fn block_len(self) -> usize {
                match self {
                    $(Self::$name => $block,)*
                    Self::Unknown(_) => 1,
                }
            }

            /// Bytes a block; 0 for unknown types.
            pub const fn block_bytes(self) -> usize {
                match self {
                    $(Self::$name => $bytes,)*
                    Self::Unknown(_) => 0,
                }
            }
        }
    };
}

/// Ids from here on are ours, for types that GGUF does not have.
const FIRST_FOREIGN: u32 = 0x1000_0000;

tensor_types! {
    /// IEEE single precision.
    F32 = 0, 1, 4;
    /// IEEE half precision.
    F16 = 1, 1, 2;
    /// 32 codes of 4 bits and an f16 scale: `w = d * (q - 8)`.
    Q4_0 = 2, 32, 18;
    /// 32 codes of 4 bits, f16 scale and minimum: `w = d * q + m`.
    Q4_1 = 3, 32, 20;
    /// 32 codes of 5 bits and an f16 scale.
    Q5_0 = 6, 32, 22;
    /// 32 codes of 5 bits, f16 scale and minimum.
    Q5_1 = 7, 32, 24;
    /// 32 codes of 8 bits and an f16 scale: `w = d * q`.
    Q8_0 = 8, 32, 34;
    /// 32 codes of 8 bits, f16 scale and sum: ggml's activations, not seen in files.
    Q8_1 = 9, 32, 36;
    /// 256 codes of 2 bits in groups of 16.
    Q2_K = 10, 256, 84;
    /// 256 codes of 3 bits in groups of 16.
    Q3_K = 11, 256, 110;
    /// 256 codes of 4 bits in groups of 32, with 6-bit scales and minimums.
    Q4_K = 12, 256, 144;
    /// 256 codes of 5 bits in groups of 32, with 6-bit scales and minimums.
    Q5_K = 13, 256, 176;
    /// 256 codes of 6 bits in groups of 16, with 8-bit scales.
    Q6_K = 14, 256, 210;
    /// 256 codes of 8 bits: ggml's activations, not seen in files.
    Q8_K = 15, 256, 292;
    /// Codebook, about 2.06 bits.
    IQ2_XXS = 16, 256, 66;
    /// Codebook, about 2.31 bits.
    IQ2_XS = 17, 256, 74;
    /// Codebook, about 3.06 bits.
    IQ3_XXS = 18, 256, 98;
    /// Codebook, about 1.56 bits.
    IQ1_S = 19, 256, 50;
    /// Codes into 16 unevenly spaced levels, groups of 32.
    IQ4_NL = 20, 32, 18;
    /// Codebook, about 3.44 bits.
    IQ3_S = 21, 256, 110;
    /// Codebook, about 2.56 bits.
    IQ2_S = 22, 256, 82;
    /// Codes into 16 unevenly spaced levels, groups of 256.
    IQ4_XS = 23, 256, 136;
    /// Signed bytes.
    I8 = 24, 1, 1;
    /// 16-bit integers.
    I16 = 25, 1, 2;
    /// 32-bit integers.
    I32 = 26, 1, 4;
    /// 64-bit integers.
    I64 = 27, 1, 8;
    /// IEEE double precision.
    F64 = 28, 1, 8;
    /// Codebook, about 1.75 bits.
    IQ1_M = 29, 256, 56;
    /// The upper half of an f32.
    BF16 = 30, 1, 2;
    /// Ternary, five codes a byte.
    TQ1_0 = 34, 256, 54;
    /// Ternary, two bits a code.
    TQ2_0 = 35, 256, 66;
    /// OCP microscaling 4-bit floats: 32 with a shared exponent.
    MXFP4 = 39, 32, 17;
    /// NVIDIA 4-bit floats: four groups of 16, each with an 8-bit float scale.
    NVFP4 = 40, 64, 36;
    /// 128 signs and an f16 scale.
    Q1_0 = 41, 128, 18;
    /// 64 codes of 2 bits and an f16 scale: `w = d * (q - 1)`.
    Q2_0 = 42, 64, 18;
    /// MLX affine: 32 codes of 4 bits with a 16-bit scale and bias, `w = scale * q + bias`.
    MLX4_G32 = 0x1000_0000, 32, 20;
    /// MLX affine: 64 codes of 4 bits.
    MLX4_G64 = 0x1000_0001, 64, 36;
    /// MLX affine: 128 codes of 4 bits.
    MLX4_G128 = 0x1000_0002, 128, 68;
    /// MLX affine: 32 codes of 8 bits.
    MLX8_G32 = 0x1000_0003, 32, 36;
    /// MLX affine: 64 codes of 8 bits.
    MLX8_G64 = 0x1000_0004, 64, 68;
    /// MLX affine: 128 codes of 8 bits.
    MLX8_G128 = 0x1000_0005, 128, 132;
}

/// The names of ids that ggml once wrote and no longer reads.
const fn withdrawn_name(id: u32) -> Option<&'static str> {
    match id {
        4 => Some("Q4_2"),
        5 => Some("Q4_3"),
        31 => Some("Q4_0_4_4"),
        32 => Some("Q4_0_4_8"),
        33 => Some("Q4_0_8_8"),
        36 => Some("IQ4_NL_4_4"),
        37 => Some("IQ4_NL_4_8"),
        38 => Some("IQ4_NL_8_8"),
        _ => None,
    }
}

impl TensorType {
    /// Whether the sizes of its blocks are known.
    pub const fn is_known(self) -> bool {
        !matches!(self, Self::Unknown(_))
    }

    /// Whether it is a known type that GGUF files can have.
    pub const fn is_ggml(self) -> bool {
        self.is_known() && self.id() < FIRST_FOREIGN
    }

    /// Bits an element takes, its share of the block's scales included: 4.5 for `Q4_0`, 0 for unknown types.
    pub fn bits_per_weight(self) -> f32 {
        // Both are small integers, exact in f32.
        (8 * self.block_bytes()) as f32 / self.block_len() as f32
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unknown(id) if withdrawn_name(id).is_none() => f.pad(&format!("id {id}")),
            _ => f.pad(self.name()),
        }
    }
}

/// One tensor of a file: what it is and where its bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// The name, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// How its elements are stored.
    pub ty: TensorType,
    /// One to four sizes, all at least 1, in ggml's order: the first dimension
    /// is contiguous. A matrix of `n_out` rows of `n_in` weights is `[n_in, n_out]`.
    pub dims: Vec<usize>,
    /// Where its bytes start, counted from the start of the tensor data of its part.
    pub offset: usize,
    /// How many bytes it takes: whole blocks, no padding. 0 for an unknown type, whose size cannot be told.
    pub n_bytes: usize,
    /// Which part of a split file has it; 0 in a file by itself.
    pub part: usize,
}

impl TensorInfo {
    /// A tensor to be written, at offset 0; [`crate::GgufWriter`] assigns the real one.
    ///
    /// # Errors
    /// No or more than [`MAX_DIMS`] dimensions, a zero dimension, a size that
    /// overflows, a first dimension that is not a multiple of the block length;
    /// [`Error::UnknownType`].
    pub fn new(name: impl Into<String>, ty: TensorType, dims: &[usize]) -> Result<Self, Error> {
        let name = name.into();
        if let TensorType::Unknown(id) = ty {
            return Err(Error::UnknownType { tensor: quote(&name), id });
        }
        Self::read(name, ty, dims)
    }

    /// A tensor of a file, at offset 0, whose type may be unknown.
    pub(crate) fn read(name: String, ty: TensorType, dims: &[usize]) -> Result<Self, Error> {
        let n_bytes = tensor_bytes(&name, ty, dims)?;
        Ok(Self { name, ty, dims: dims.to_vec(), offset: 0, n_bytes, part: 0 })
    }

    /// Elements in all.
    pub fn n_elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// Elements a row: the first dimension.
    pub fn row_len(&self) -> usize {
        self.dims.first().copied().unwrap_or(1)
    }

    /// Rows in all: the product of the other dimensions.
    pub fn n_rows(&self) -> usize {
        self.dims.iter().skip(1).product()
    }

    /// Bytes a row.
    pub fn row_bytes(&self) -> usize {
        self.row_len() / self.ty.block_len() * self.ty.block_bytes()
    }
}

/// The size of a tensor, with its dimensions checked.
fn tensor_bytes(name: &str, ty: TensorType, dims: &[usize]) -> Result<usize, Error> {
    if dims.is_empty() || dims.len() > MAX_DIMS {
        return Err(Error::DimCount { tensor: quote(name), got: dims.len() });
    }
    if dims.contains(&0) {
        return Err(Error::ZeroDim { tensor: quote(name), got: Dims(dims).to_string() });
    }
    if !dims[0].is_multiple_of(ty.block_len()) {
        let (expected, got) = (ty.block_len(), dims[0]);
        return Err(Error::RowLength { tensor: quote(name), ty, expected, got });
    }
    // Elements and bytes must both fit, since callers compute with both.
    let elements = dims.iter().try_fold(1_usize, |n, &dim| n.checked_mul(dim));
    elements
        .and_then(|n| (n / ty.block_len()).checked_mul(ty.block_bytes()))
        .ok_or_else(|| Error::SizeOverflow { tensor: quote(name), got: Dims(dims).to_string(), ty })
}

/// Shows dimensions as `576 x 49152`.
#[derive(Clone, Copy, Debug)]
pub struct Dims<'a>(pub &'a [usize]);

impl fmt::Display for Dims<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.pad(&text.join(" x "))
    }
}

#[cfg(test)]
mod tests {
    use crate::*;

    #[test]
    fn ids_and_sizes_are_the_published_ones() {
        for (ty, id, name, bits) in [
            (TensorType::F32, 0, "F32", 32.0),
            (TensorType::F16, 1, "F16", 16.0),
            (TensorType::Q4_0, 2, "Q4_0", 4.5),
            (TensorType::Q4_1, 3, "Q4_1", 5.0),
            (TensorType::Q8_0, 8, "Q8_0", 8.5),
            (TensorType::Q4_K, 12, "Q4_K", 4.5),
            (TensorType::Q5_K, 13, "Q5_K", 5.5),
            (TensorType::Q6_K, 14, "Q6_K", 6.5625),
            (TensorType::BF16, 30, "BF16", 16.0),
            (TensorType::MLX4_G64, 0x1000_0001, "MLX4_G64", 4.5),
            (TensorType::MLX8_G128, 0x1000_0005, "MLX8_G128", 8.25),
            (TensorType::MXFP4, 39, "MXFP4", 4.25),
        ] {
            assert_eq!((ty.id(), ty.name(), ty.bits_per_weight()), (id, name, bits));
            assert_eq!(format!("{ty:>7}|"), format!("{name:>7}|"));
        }
        for &ty in TensorType::ALL {
            assert_eq!(TensorType::from_id(ty.id()), ty.is_ggml().then_some(ty));
        }
        for (id, name, shown) in
            [(43, "unknown", "id 43"), (4, "Q4_2", "Q4_2"), (0x1000_0001, "unknown", "id 268435457")]
        {
            assert_eq!(TensorType::from_id(id), None);
            let ty = TensorType::Unknown(id);
            assert_eq!((ty.id(), ty.name(), &*ty.to_string()), (id, name, shown));
            assert_eq!((ty.is_ggml(), ty.bits_per_weight()), (false, 0.0));
        }
    }

    #[test]
    fn shapes() {
        let info = TensorInfo::new("x", TensorType::Q4_0, &[64, 3, 5]).unwrap();
        assert_eq!((info.n_elements(), info.row_len(), info.n_rows()), (960, 64, 15));
        assert_eq!((info.row_bytes(), info.n_bytes), (36, 540));
        assert_eq!(Dims(&info.dims).to_string(), "64 x 3 x 5");
        let vector = TensorInfo::new("x", TensorType::F32, &[7]).unwrap();
        assert_eq!((vector.n_rows(), vector.row_bytes(), vector.n_bytes), (1, 28, 28));
    }
}
