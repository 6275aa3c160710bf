//! What writes rows in a type: one [`Encoder`] for each type that can be written.

use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};
use halfbyte_cpu_kernels::{Context, quantize_q4_0_fit};
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
    limit: |_| 127.0 * F16_MAX,
    encode: |row, bytes| {
        append_blocks::<BlockQ8_0, _, _>(bytes, row.weights.len(), |blocks| {
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
    limit: |method| if method == Some(Method::Max7) { 7.0 * F16_MAX } else { 8.0 * F16_MAX },
    encode: |row, bytes| {
        Ok(append_blocks(bytes, row.weights.len(), |blocks: &mut [BlockQ4_0]| {
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
        append_blocks(bytes, x.len(), |blocks: &mut [BlockQ4_0]| {
            q4_0_rows(factor, x, scales, blocks).map(|_| ())
        })
    }),
};

/// 4 bits in groups of 32 with a minimum. The fit of two parameters takes long: it is for those who ask for it, or have
/// importance.
pub(crate) static Q4_1: Encoder = Encoder {
    file_type: 3,
    methods: &[Method::Max, Method::Fit, Method::Gptq],
    limit: |_| F16_MAX,
    encode: |row, bytes| {
        Ok(append_blocks(bytes, row.weights.len(), |blocks: &mut [BlockQ4_1]| {
            let x = row.weights;
            match (row.method, row.importance) {
                (Some(Method::Max), _) => q4_1_row(x, blocks).map(|()| 0),
                (_, None) => q4_1_row_weighted(x, &vec![1.0; x.len()], blocks).map(|_| 0),
                (_, Some(importance)) => Ok(q4_1_row_weighted(x, importance, blocks)?.uniform_groups),
            }
        })?)
    },
    compensate: Some(|factor, x, scales, bytes| {
        append_blocks(bytes, x.len(), |blocks: &mut [BlockQ4_1]| {
            q4_1_rows(factor, x, scales, blocks).map(|_| ())
        })
    }),
};

/// Appends what `quantize` makes of the blocks `B` of 32 weights of a row of `weights`, and returns what it returns.
fn append_blocks<B: Pod, T, E>(
    bytes: &mut Vec<u8>,
    weights: usize,
    quantize: impl FnOnce(&mut [B]) -> Result<T, E>,
) -> Result<T, E> {
    let mut blocks = vec![<B as Zeroable>::zeroed(); weights / 32];
    let result = quantize(&mut blocks)?;
    bytes.extend_from_slice(bytemuck::cast_slice(&blocks));
    Ok(result)
}
