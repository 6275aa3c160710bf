//! What writes rows in a type: one [`Encoder`] for each type that can be written.

use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};
use halfbyte_cpu_kernels::{Context, quantize_q4_0_fit};
use halfbyte_gguf::TensorType;
use halfbyte_k_quants::{
    Block, BlockIq4Nl, BlockIq4Xs, BlockMxfp4, BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5_0, BlockQ5_1, BlockQ5K,
    BlockQ6K, Fit, quantize_row, quantize_row_weighted,
};
use halfbyte_q4::gptq::{Factor, Scales, q4_0_rows, q4_1_rows};
use halfbyte_q4::{
    BlockQ4_0, BlockQ4_1, q4_1_row, q4_1_row_weighted, q4_row_fit_weighted, q4_row_optimal,
    q4_row_optimal_weighted,
};
use halfbyte_q8::BlockQ8_0;

use super::{EncodeError, Method};

/// How weights become bytes of one type.
pub(crate) struct Encoder {
    /// llama.cpp's number for a file that is mostly of this type (`general.file_type`).
    pub(crate) file_type: u32,
    /// How the parameters of a group can be chosen, the usual one first; empty where there is no choice.
    pub(crate) methods: &'static [Method],
    /// The type that takes its place where rows are not whole blocks, by llama.cpp's rule.
    pub(crate) fallback: Option<TensorType>,
    /// The magnitude up to which any weight can be held.
    pub(crate) limit: fn(Option<Method>) -> f32,
    /// Appends a row of whole blocks. Returns how many groups had no importance and were quantized with equal ones.
    pub(crate) encode: fn(Row<'_>, &mut Vec<u8>) -> Result<usize, EncodeError>,
    /// Appends rows that are rounded with error compensation, where [`Method::Gptq`] is among the methods.
    pub(crate) compensate: Option<Compensate>,
}

/// Appends rows that are rounded with error compensation.
pub(crate) type Compensate = fn(&Factor, &[f32], Scales<'_>, &mut Vec<u8>) -> Result<(), halfbyte_q4::Error>;

/// A row to be written.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) ctx: Context<'a>,
    /// Finite weights.
    pub(crate) weights: &'a [f32],
    /// One of the encoder's.
    pub(crate) method: Option<Method>,
    /// One number a column, if they are not all alike, for methods that take them.
    pub(crate) importance: Option<&'a [f32]>,
}

const F16_MAX: f32 = f16::MAX.to_f32_const();

/// Single precision.
pub(crate) static F32: Encoder = Encoder {
    file_type: 0,
    methods: &[],
    fallback: None,
    limit: |_| f32::MAX,
    encode: |row, bytes| {
        bytes.extend_from_slice(bytemuck::cast_slice(row.weights));
        Ok(0)
    },
    compensate: None,
};

/// IEEE half precision, rounded to nearest even.
pub(crate) static F16: Encoder = Encoder {
    file_type: 1,
    methods: &[],
    fallback: None,
    limit: |_| F16_MAX,
    encode: |row, bytes| {
        for (index, &value) in row.weights.iter().enumerate() {
            let half = f16::from_f32(value);
            if !half.is_finite() {
                return Err(EncodeError::F16 { index, value });
            }
            bytes.extend_from_slice(&half.to_le_bytes());
        }
        Ok(0)
    },
    compensate: None,
};

/// Single precision without its last 16 bits, rounded to nearest even.
pub(crate) static BF16: Encoder = Encoder {
    file_type: 32,
    methods: &[],
    fallback: None,
    limit: |_| bf16::MAX.to_f32(),
    encode: |row, bytes| {
        for (index, &value) in row.weights.iter().enumerate() {
            let brief = bf16::from_f32(value);
            if !brief.is_finite() {
                return Err(EncodeError::BF16 { index, value });
            }
            bytes.extend_from_slice(&brief.to_le_bytes());
        }
        Ok(0)
    },
    compensate: None,
};

/// 8 bits in groups of 32: [`halfbyte_q8::quantize_row`].
pub(crate) static Q8_0: Encoder = Encoder {
    file_type: 7,
    methods: &[],
    fallback: None,
    limit: |_| 127.0 * F16_MAX,
    encode: |row, bytes| {
        append_blocks::<BlockQ8_0, _, _>(bytes, row.weights.len() / 32, |blocks| {
            halfbyte_q8::quantize_row(row.weights, blocks)
        })?;
        Ok(0)
    },
    compensate: None,
};

/// 4 bits in groups of 32.
pub(crate) static Q4_0: Encoder = Encoder {
    file_type: 2,
    methods: &[Method::Fit, Method::Max, Method::Max7, Method::Optimal, Method::Gptq],
    fallback: None,
    limit: |method| if method == Some(Method::Max7) { 7.0 * F16_MAX } else { 8.0 * F16_MAX },
    encode: |row, bytes| {
        Ok(append_blocks(bytes, row.weights.len() / 32, |blocks: &mut [BlockQ4_0]| {
            let x = row.weights;
            match (row.method, row.importance) {
                (Some(Method::Max7), _) => halfbyte_q4::q4_row(x, blocks).map(|()| 0),
                (Some(Method::Max), _) => halfbyte_q4::q4_row_max(x, blocks).map(|()| 0),
                (Some(Method::Optimal), None) => q4_row_optimal(x, blocks).map(|()| 0),
                (Some(Method::Optimal), Some(importance)) => {
                    Ok(q4_row_optimal_weighted(x, importance, blocks)?.uniform_groups)
                }
                (_, None) => quantize_q4_0_fit(row.ctx, x, blocks).map(|()| 0),
                (_, Some(importance)) => Ok(q4_row_fit_weighted(x, importance, blocks)?.uniform_groups),
            }
        })?)
    },
    compensate: Some(|factor, x, scales, bytes| {
        append_blocks(bytes, x.len() / 32, |blocks: &mut [BlockQ4_0]| {
            q4_0_rows(factor, x, scales, blocks).map(|_| ())
        })
    }),
};

/// 4 bits in groups of 32 with a minimum. The fit of two parameters takes long: it is for those who ask for it, or have
/// importance.
pub(crate) static Q4_1: Encoder = Encoder {
    file_type: 3,
    methods: &[Method::Max, Method::Fit, Method::Gptq],
    fallback: None,
    limit: |_| F16_MAX,
    encode: |row, bytes| {
        Ok(append_blocks(bytes, row.weights.len() / 32, |blocks: &mut [BlockQ4_1]| {
            let x = row.weights;
            match (row.method, row.importance) {
                (Some(Method::Max), _) => q4_1_row(x, blocks).map(|()| 0),
                (_, None) => q4_1_row_weighted(x, &vec![1.0; x.len()], blocks).map(|_| 0),
                (_, Some(importance)) => Ok(q4_1_row_weighted(x, importance, blocks)?.uniform_groups),
            }
        })?)
    },
    compensate: Some(|factor, x, scales, bytes| {
        append_blocks(bytes, x.len() / 32, |blocks: &mut [BlockQ4_1]| {
            q4_1_rows(factor, x, scales, blocks).map(|_| ())
        })
    }),
};

/// Makes encoders of the types that `halfbyte-k-quants` quantizes.
macro_rules! fitted {
    ($($(#[$docs:meta])* $name:ident: $block:ty, $file_type:literal, $fallback:expr;)*) => {
        $($(#[$docs])*
        pub(crate) static $name: Encoder = Encoder {
            file_type: $file_type,
            methods: &[Method::Fit],
            fallback: $fallback,
            limit: |_| <$block as Fit>::LIMIT,
            encode: |row, bytes| {
                let blocks = row.weights.len() / <$block as Block>::WEIGHTS;
                Ok(append_blocks(bytes, blocks, |blocks: &mut [$block]| match row.importance {
                    None => quantize_row(row.weights, blocks).map(|()| 0),
                    Some(importance) => {
                        Ok(quantize_row_weighted(row.weights, importance, blocks)?.uniform_blocks)
                    }
                })?)
            },
            compensate: None,
        };)*
    };
}

fitted! {
    /// 5 bits in groups of 32.
    Q5_0: BlockQ5_0, 8, None;
    /// 5 bits in groups of 32 with a minimum.
    Q5_1: BlockQ5_1, 9, None;
    /// 2 bits in super-blocks of 256.
    Q2_K: BlockQ2K, 10, Some(TensorType::Q4_0);
    /// 3 bits in super-blocks of 256.
    Q3_K: BlockQ3K, 11, Some(TensorType::Q4_0);
    /// 4 bits in super-blocks of 256.
    Q4_K: BlockQ4K, 14, Some(TensorType::Q5_0);
    /// 5 bits in super-blocks of 256.
    Q5_K: BlockQ5K, 16, Some(TensorType::Q5_1);
    /// 6 bits in super-blocks of 256.
    Q6_K: BlockQ6K, 18, Some(TensorType::Q8_0);
    /// 4 bits for uneven levels in groups of 32.
    IQ4_NL: BlockIq4Nl, 25, None;
    /// 4 bits for uneven levels in super-blocks of 256.
    IQ4_XS: BlockIq4Xs, 30, Some(TensorType::IQ4_NL);
    /// Floats of 4 bits in groups of 32.
    MXFP4: BlockMxfp4, 38, None;
}

/// Appends what `quantize` makes of `blocks` blocks `B`, and returns what it returns.
fn append_blocks<B: Pod, T, E>(
    bytes: &mut Vec<u8>,
    blocks: usize,
    quantize: impl FnOnce(&mut [B]) -> Result<T, E>,
) -> Result<T, E> {
    let mut blocks = vec![<B as Zeroable>::zeroed(); blocks];
    let result = quantize(&mut blocks)?;
    bytes.extend_from_slice(bytemuck::cast_slice(&blocks));
    Ok(result)
}
