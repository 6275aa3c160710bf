//! Q3_K: sixteen sub-blocks of 16 weights with a 6-bit scale `sc`, `w = (d * (sc - 32)) * (q - 4)`, codes `q` of 3 bits.
//!
//! ```text
//! byte 0       32           96       108 110
//!      | high  | low        | scales | d |
//!
//! low[32 h + i]   bits 2 r and 2 r + 1: low bits of weight 128 h + 32 r + i
//! high[i]         bit k: high bit of weight 32 k + i
//! scales[j]       low nibble: bits 0-3 of sc j    high nibble: of sc j + 8       j in 0..8
//! scales[8 + j]   bits 2 k and 2 k + 1: bits 4, 5 of sc 4 k + j                  j in 0..4
//! ```

use crate::block::{Block, SUPER, layout, two_bits};
use bytemuck::{Pod, Zeroable};
use half::f16;

/// One Q3_K super-block of 256 weights. 110 bytes, alignment 2, any bit pattern is valid.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ3K {
    /// High bit of the codes.
    pub high: [u8; SUPER / 8],
    /// Low two bits of the codes.
    pub low: [u8; SUPER / 4],
    /// Sixteen scales of 6 bits, packed as the module says.
    pub scales: [u8; 12],
    /// Unit of the scales.
    pub d: f16,
}

layout!(BlockQ3K, 110, 2);

impl BlockQ3K {
    /// The scale of the `j`th 16 weights, -32..=31.
    ///
    /// # Panics
    ///
    /// When `j >= 16`.
    #[must_use]
    pub fn scale(&self, j: usize) -> i8 {
        let low = self.scales[j % 8] >> (j / 8 * 4) & 15;
        let high = self.scales[8 + j % 4] >> (j / 4 * 2) & 3;
        (low | high << 4) as i8 - 32
    }
}

impl Block for BlockQ3K {
    const NAME: &'static str = "Q3_K";
    const WEIGHTS: usize = SUPER;
    type Weights = [f32; SUPER];

    fn dequantize(&self) -> [f32; SUPER] {
        let d = self.d.to_f32();
        std::array::from_fn(|n| {
            let code = two_bits(&self.low, n) | (self.high[n % 32] >> (n / 32) & 1) << 2;
            d * f32::from(self.scale(n / 16)) * (f32::from(code) - 4.0)
        })
    }
}
