//! Q4_K and Q6_K, read only: many public GGUF files contain these super-blocks of 256 weights.
//!
//! # Q4_K, 144 bytes
//!
//! Eight sub-blocks of 32 weights, each with a 6-bit scale `sc` and a 6-bit minimum `m` in units that
//! the block holds in f16: `w = (d * sc) * q - (dmin * m)`.
//!
//! ```text
//! scales[0..4]    low 6 bits: sc 0..4    high 2 bits: bits 4, 5 of sc 4..8
//! scales[4..8]    low 6 bits: m 0..4     high 2 bits: bits 4, 5 of m 4..8
//! scales[8..12]   low nibble: bits 0-3 of sc 4..8    high nibble: bits 0-3 of m 4..8
//! codes[32 c + i] low nibble: weight 64 c + i        high nibble: weight 64 c + 32 + i
//! ```
//!
//! # Q6_K, 210 bytes
//!
//! Sixteen sub-blocks of 16 weights, each with an i8 scale: `w = (d * sc) * (q - 32)`. Codes are split
//! in four low and two high bits; per half `h` of 128 weights, with `i` in 0..32:
//!
//! ```text
//! weight 128 h + i        low[64 h + i]      & 15, high[32 h + i] bits 0, 1
//! weight 128 h + i + 32   low[64 h + i + 32] & 15,                bits 2, 3
//! weight 128 h + i + 64   low[64 h + i]      >> 4,                bits 4, 5
//! weight 128 h + i + 96   low[64 h + i + 32] >> 4,                bits 6, 7
//! ```
//!
//! The layouts are those of ggml; the tests compare them with the `gguf` Python package.

use bytemuck::{Pod, Zeroable};
use half::f16;

use crate::error::{Error, check_len};

/// Weights in a super-block.
pub const SUPER: usize = 256;

/// One Q4_K super-block of 256 weights. 144 bytes, alignment 2, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ4K {
    /// Unit of the sub-block scales.
    pub d: f16,
    /// Unit of the sub-block minima.
    pub dmin: f16,
    /// Eight scales and eight minima of 6 bits, packed as the module says.
    pub scales: [u8; 12],
    /// Nibbles, two sub-blocks to 32 bytes.
    pub codes: [u8; SUPER / 2],
}

/// One Q6_K super-block of 256 weights. 210 bytes, alignment 2, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ6K {
    /// Low four bits of the codes.
    pub low: [u8; SUPER / 2],
    /// High two bits of the codes.
    pub high: [u8; SUPER / 4],
    /// Scale of each 16 weights.
    pub scales: [i8; SUPER / 16],
    /// Unit of the scales.
    pub d: f16,
}

const _: () = assert!(size_of::<BlockQ4K>() == 144 && align_of::<BlockQ4K>() == 2);
const _: () = assert!(size_of::<BlockQ6K>() == 210 && align_of::<BlockQ6K>() == 2);

impl BlockQ4K {
    /// The 6-bit scale and minimum of sub-block `j`.
    ///
    /// # Panics
    ///
    /// When `j >= 8`.
    #[must_use]
    pub fn scale_min(&self, j: usize) -> (u8, u8) {
        let s = &self.scales;
        if j < 4 {
            (s[j] & 63, s[j + 4] & 63)
        } else {
            (s[j + 4] & 15 | s[j - 4] >> 6 << 4, s[j + 4] >> 4 | s[j] >> 6 << 4)
        }
    }

    /// The 256 weights in f32. `d * sc`, `dmin * m` and the product with the code are exact; the
    /// difference rounds once.
    #[must_use]
    pub fn dequantize(&self) -> [f32; SUPER] {
        let mut out = [0.0; SUPER];
        let (d, dmin) = (self.d.to_f32(), self.dmin.to_f32());
        for (j, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let (sc, m) = self.scale_min(j);
            let (scale, min) = (d * f32::from(sc), dmin * f32::from(m));
            for (w, byte) in out.iter_mut().zip(&self.codes[j / 2 * 32..]) {
                *w = scale * f32::from(byte >> (j % 2 * 4) & 15) - min;
            }
        }
        out
    }
}

impl BlockQ6K {
    /// The 256 weights in f32; exact, an f16 times 8 bits times 6 bits needs at most 24.
    #[must_use]
    pub fn dequantize(&self) -> [f32; SUPER] {
        let d = self.d.to_f32();
        std::array::from_fn(|n| {
            // Which half, which of its four quarters, and where in the quarter.
            let (h, quarter, i) = (n / 128, n % 128 / 32, n % 32);
            let low = self.low[64 * h + quarter % 2 * 32 + i] >> (quarter / 2 * 4) & 15;
            let high = self.high[32 * h + i] >> (2 * quarter) & 3;
            let code = f32::from(high << 4 | low) - 32.0;
            d * f32::from(self.scales[n / 16]) * code
        })
    }
}

/// Expands Q4_K blocks into `out`, `256 * blocks.len()` weights; one f32 rounding each.
///
/// # Errors
///
/// [`Error::Length`] when `out` has another length; nothing is written then.
pub fn dequantize_row_q4_k(blocks: &[BlockQ4K], out: &mut [f32]) -> Result<(), Error> {
    check_len("out", blocks.len() * SUPER, out.len())?;
    for (group, block) in out.as_chunks_mut::<SUPER>().0.iter_mut().zip(blocks) {
        *group = block.dequantize();
    }
    Ok(())
}

/// Expands Q6_K blocks into `out`, `256 * blocks.len()` weights; at most one f32 rounding each.
///
/// # Errors
///
/// [`Error::Length`] when `out` has another length; nothing is written then.
pub fn dequantize_row_q6_k(blocks: &[BlockQ6K], out: &mut [f32]) -> Result<(), Error> {
    check_len("out", blocks.len() * SUPER, out.len())?;
    for (group, block) in out.as_chunks_mut::<SUPER>().0.iter_mut().zip(blocks) {
        *group = block.dequantize();
    }
    Ok(())
}
