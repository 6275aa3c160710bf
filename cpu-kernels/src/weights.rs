//! The table of weight formats: everything else asks it, and it asks `formats/`.

use crate::Panels;
use crate::error::{Error, check_shape};
use crate::formats::{Affine, FormatInfo, UseFloatRows, UseInt8Rows, WeightFormat};
use crate::simd::Simd;
use core::ops::Range;
use half::{bf16, f16};
use halfbyte_k_quants::{
    BlockIq1M, BlockIq1S, BlockIq2S, BlockIq2Xs, BlockIq2Xxs, BlockIq3S, BlockIq3Xxs, BlockIq4Nl, BlockIq4Xs,
    BlockMxfp4, BlockNvfp4, BlockQ1_0, BlockQ2_0, BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5_0, BlockQ5_1,
    BlockQ5K, BlockQ6K, BlockTq1_0, BlockTq2_0,
};
use halfbyte_q4::{BlockQ4_0, BlockQ4_1};
use halfbyte_q8::BlockQ8_0;

/// Makes [`Weights`] of the table below, with a method for each thing that a format knows.
macro_rules! formats {
    ($($(#[$docs:meta])* $name:ident($rows:ty),)*) => {
        /// The weights of a matrix, row after row.
        #[derive(Clone, Copy, Debug)]
        #[non_exhaustive]
        pub enum Weights<'a> {
            $($(#[$docs])* $name($rows),)*
            /// Weights packed for these kernels, by [`crate::PackedMatrix`].
            Packed(&'a Panels),
        }

        impl<'a> Weights<'a> {
            const INFOS: &'static [&'static [FormatInfo]] = &[$(<$rows as WeightFormat>::INFOS),*];

            /// What is known of the format that they are stored in, or were before they were packed.
            pub fn info(&self) -> FormatInfo {
                match self {
                    $(Self::$name(w) => w.info(),)*
                    Self::Packed(w) => w.info(),
                }
            }

            /// Checks that these are the weights of `rows` x `cols`.
            pub(crate) fn check(&self, rows: usize, cols: usize) -> Result<(), Error> {
                match self {
                    $(Self::$name(w) => w.check(rows, cols),)*
                    Self::Packed(w) => {
                        check_shape("rows of the packed weights", w.rows(), rows)?;
                        check_shape("columns of the packed weights", w.cols(), cols)
                    }
                }
            }

            /// The weights of `rows` alone, which exist, of a matrix of `cols` columns; `None` for packed weights.
            pub(crate) fn row_range(&self, rows: Range<usize>, cols: usize) -> Option<Self> {
                match self {
                    $(Self::$name(w) => Some(Self::$name(WeightFormat::row_range(w, rows, cols))),)*
                    Self::Packed(_) => None,
                }
            }

            /// The bytes that the weights take.
            pub(crate) fn bytes(&self) -> usize {
                match self {
                    $(Self::$name(w) => WeightFormat::bytes(w),)*
                    Self::Packed(w) => w.bytes(),
                }
            }

            /// Decodes inputs `from..from + out.len()` of row `row` of a matrix of `cols` columns: a whole row, or blocks
            /// of 256, of which `from` is a multiple.
            #[inline(always)]
            pub(crate) fn decode<S: Simd>(&self, s: S, cols: usize, row: usize, from: usize, out: &mut [f32]) {
                match self {
                    $(Self::$name(w) => w.decode(s, row * cols + from, out),)*
                    Self::Packed(w) => w.decode(s, row, from, out),
                }
            }

            /// Passes the weights to `user` if they are plain floats that are not packed.
            pub(crate) fn float_rows<U: UseFloatRows>(&self, user: U) -> Option<U::Output> {
                match self {
                    $(Self::$name(w) => w.float_rows(user),)*
                    Self::Packed(_) => None,
                }
            }

            /// Passes the rows, of `cols` columns, to `user` if they are rows for the int8 tiles that are not packed.
            pub(crate) fn int8_rows<U: UseInt8Rows>(&self, cols: usize, user: U) -> Option<U::Output> {
                match self {
                    $(Self::$name(w) => w.int8_rows(cols, user),)*
                    Self::Packed(_) => None,
                }
            }
        }
    };
}

formats! {
    /// Single precision.
    F32(&'a [f32]),
    /// IEEE half precision.
    F16(&'a [f16]),
    /// bfloat16.
    Bf16(&'a [bf16]),
    /// Groups of 32: f16 scale, 8-bit codes, `w = d * q`.
    Q8_0(&'a [BlockQ8_0]),
    /// Groups of 32: f16 scale, 4-bit codes, `w = d * (q - 8)`.
    Q4_0(&'a [BlockQ4_0]),
    /// Groups of 32: f16 scale and min, 4-bit codes, `w = d * q + m`.
    Q4_1(&'a [BlockQ4_1]),
    /// MLX affine groups. Codes of 4 bits have int8 kernels; codes of 8 bits are read by dequantizing.
    Affine(Affine<'a>),
    /// Groups of 32: f16 scale, 5-bit codes, `w = d * (q - 16)`.
    Q5_0(&'a [BlockQ5_0]),
    /// Groups of 32: f16 scale and min, 5-bit codes, `w = d * q + m`.
    Q5_1(&'a [BlockQ5_1]),
    /// K-quant super-blocks of 256, 2-bit.
    Q2K(&'a [BlockQ2K]),
    /// K-quant super-blocks of 256, 3-bit.
    Q3K(&'a [BlockQ3K]),
    /// K-quant super-blocks of 256, 4-bit.
    Q4K(&'a [BlockQ4K]),
    /// K-quant super-blocks of 256, 5-bit.
    Q5K(&'a [BlockQ5K]),
    /// K-quant super-blocks of 256, 6-bit.
    Q6K(&'a [BlockQ6K]),
    /// Groups of 32: f16 scale, 4-bit codes for uneven levels.
    Iq4Nl(&'a [BlockIq4Nl]),
    /// Super-blocks of 256 with 6-bit scales, 4-bit codes for uneven levels.
    Iq4Xs(&'a [BlockIq4Xs]),
    /// Groups of 32: a power of two, 4-bit floats.
    Mxfp4(&'a [BlockMxfp4]),
    /// Four groups of 16, each with an 8-bit float as its scale: 4-bit floats.
    Nvfp4(&'a [BlockNvfp4]),
    /// Blocks of 256: codebook, about 1.56 bits.
    Iq1S(&'a [BlockIq1S]),
    /// Blocks of 256: codebook, about 1.75 bits.
    Iq1M(&'a [BlockIq1M]),
    /// Blocks of 256: codebook, about 2.06 bits.
    Iq2Xxs(&'a [BlockIq2Xxs]),
    /// Blocks of 256: codebook, about 2.31 bits.
    Iq2Xs(&'a [BlockIq2Xs]),
    /// Blocks of 256: codebook, about 2.56 bits.
    Iq2S(&'a [BlockIq2S]),
    /// Blocks of 256: codebook, about 3.06 bits.
    Iq3Xxs(&'a [BlockIq3Xxs]),
    /// Blocks of 256: codebook, about 3.44 bits.
    Iq3S(&'a [BlockIq3S]),
    /// Blocks of 256: f16 scale, ternary, five codes a byte.
    Tq1_0(&'a [BlockTq1_0]),
    /// Blocks of 256: f16 scale, ternary, four codes a byte.
    Tq2_0(&'a [BlockTq2_0]),
    /// Groups of 128: f16 scale and signs.
    Q1_0(&'a [BlockQ1_0]),
    /// Groups of 64: f16 scale, 2-bit codes, `w = d * (q - 1)`.
    Q2_0(&'a [BlockQ2_0]),
}

impl Weights<'_> {
    /// The formats that weights can be stored in, with what the kernels do with each.
    ///
    /// ```
    /// use halfbyte_cpu_kernels::Weights;
    /// let int8: Vec<&str> = Weights::formats().filter(|format| format.int8).map(|format| format.name).collect();
    /// assert_eq!(int8[..4], ["Q8_0", "Q4_0", "Q4_1", "MLX affine 4-bit"]);
    /// assert!(int8.contains(&"Q4_K") && int8.contains(&"MXFP4"));
    /// ```
    pub fn formats() -> impl Iterator<Item = FormatInfo> {
        Self::INFOS.iter().copied().flatten().copied()
    }

    /// What messages call them.
    pub(crate) fn name(&self) -> String {
        let name = self.info().name;
        if matches!(self, Self::Packed(_)) { format!("packed {name}") } else { name.to_owned() }
    }

    /// The names of the formats that `fits` accepts, for an error message.
    pub(crate) fn names(fits: impl Fn(&FormatInfo) -> bool) -> String {
        Self::formats().filter(fits).map(|format| format.name).collect::<Vec<_>>().join(", ")
    }
}
