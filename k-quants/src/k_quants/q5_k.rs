//! Q5_K: eight sub-blocks of 32 weights with a 6-bit scale `sc` and a 6-bit minimum `m`,
//! `w = (d * sc) * q - (dmin * m)`, codes `q` of 5 bits.
//!
//! ```text
//! byte 0   2      4        16      48              176
//!      | d | dmin | scales | high  | codes         |
//!
//! codes[32 c + i]    low nibble: weight 64 c + i    high nibble: weight 64 c + 32 + i
//! high[i]            bit j: bit 4 of weight 32 j + i
//! ```
//!
//! [`unpack_scale_min`] shows how the scales and minima are packed.

use super::unpack_scale_min;
use crate::block::{Block, SUPER, layout};
use bytemuck::{Pod, Zeroable};
use half::f16;

/// One Q5_K super-block of 256 weights. 176 bytes, alignment 2, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ5K {
    /// Unit of the sub-block scales.
    pub d: f16,
    /// Unit of the sub-block minima.
    pub dmin: f16,
    /// Eight scales and eight minima of 6 bits.
    pub scales: [u8; 12],
    /// Bit 4 of the codes.
    pub high: [u8; SUPER / 8],
    /// Low four bits of the codes, two sub-blocks to 32 bytes.
    pub codes: [u8; SUPER / 2],
}

layout!(BlockQ5K, 176, 2);

impl BlockQ5K {
    /// The 6-bit scale and minimum of sub-block `j`.
    ///
    /// # Panics
    ///
    /// When `j >= 8`.
    #[must_use]
    pub fn scale_min(&self, j: usize) -> (u8, u8) {
        unpack_scale_min(&self.scales, j)
    }
}

impl Block for BlockQ5K {
    const NAME: &'static str = "Q5_K";
    const WEIGHTS: usize = SUPER;
    type Weights = [f32; SUPER];

    fn dequantize(&self) -> [f32; SUPER] {
        let mut out = [0.0; SUPER];
        let (d, dmin) = (self.d.to_f32(), self.dmin.to_f32());
        for (j, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let (sc, m) = self.scale_min(j);
            let (scale, min) = (d * f32::from(sc), dmin * f32::from(m));
            for (i, w) in out.iter_mut().enumerate() {
                let low = self.codes[j / 2 * 32 + i] >> (j % 2 * 4) & 15;
                *w = scale * f32::from(low | (self.high[i] >> j & 1) << 4) - min;
            }
        }
        out
    }
}
