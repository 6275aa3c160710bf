//! Q4_K: eight sub-blocks of 32 weights with a 6-bit scale `sc` and a 6-bit minimum `m`,
//! `w = (d * sc) * q - (dmin * m)`.
//!
//! ```text
//! byte 0   2      4        16              144
//!      | d | dmin | scales | codes         |
//!
//! codes[32 c + i]    low nibble: weight 64 c + i    high nibble: weight 64 c + 32 + i
//! ```
//!
//! [`unpack_scale_min`] shows how the scales and minima are packed.

use super::unpack_scale_min;
use crate::block::{Block, SUPER, layout};
use bytemuck::{Pod, Zeroable};
use half::f16;

/// One Q4_K super-block of 256 weights. 144 bytes, alignment 2, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ4K {
    /// Unit of the sub-block scales.
    pub d: f16,
    /// Unit of the sub-block minima.
    pub dmin: f16,
    /// Eight scales and eight minima of 6 bits.
    pub scales: [u8; 12],
    /// Nibbles, two sub-blocks to 32 bytes.
    pub codes: [u8; SUPER / 2],
}

layout!(BlockQ4K, 144, 2);

impl BlockQ4K {
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

impl Block for BlockQ4K {
    const NAME: &'static str = "Q4_K";
    const WEIGHTS: usize = SUPER;
    type Weights = [f32; SUPER];

    fn dequantize(&self) -> [f32; SUPER] {
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
