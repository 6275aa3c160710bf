//! The table of weight formats: everything else asks it, and it asks `formats/`.

use crate::Panels;
use crate::error::{Error, check_shape};
use crate::formats::{Affine, FormatInfo, UseFloatRows, UseInt8Rows, WeightFormat};
use crate::simd::Simd;
use core::ops::Range;
use half::{bf16, f16};
use halfbyte_q4::k_quants::{BlockQ4K, BlockQ6K};
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
    /// K-quant super-blocks of 256, 4-bit; read by dequantizing.
    Q4K(&'a [BlockQ4K]),
    /// K-quant super-blocks of 256, 6-bit; read by dequantizing.
    Q6K(&'a [BlockQ6K]),
}

impl Weights<'_> {
    /// The formats that weights can be stored in, with what the kernels do with each.
    ///
    /// ```
    /// use halfbyte_cpu_kernels::Weights;
    /// let int8: Vec<&str> = Weights::formats().filter(|format| format.int8).map(|format| format.name).collect();
    /// assert_eq!(int8, ["Q8_0", "Q4_0", "Q4_1", "MLX affine 4-bit"]);
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
