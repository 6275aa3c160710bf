//! Q6_K: sixteen sub-blocks of 16 weights with an i8 scale `sc`, `w = (d * sc) * (q - 32)`, codes `q` of 6 bits.
//!
//! ```text
//! byte 0          128        192      208 210
//!      | low      | high     | scales | d |
//! ```
//!
//! Codes are split in four low and two high bits; per half `h` of 128 weights, with `i` in 0..32:
//!
//! ```text
//! weight 128 h + i        low[64 h + i]      & 15, high[32 h + i] bits 0, 1
//! weight 128 h + i + 32   low[64 h + i + 32] & 15,                bits 2, 3
//! weight 128 h + i + 64   low[64 h + i]      >> 4,                bits 4, 5
//! weight 128 h + i + 96   low[64 h + i + 32] >> 4,                bits 6, 7
//! ```

use crate::block::{Block, SUPER, layout, two_bits};
use bytemuck::{Pod, Zeroable};
use half::f16;

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

layout!(BlockQ6K, 210, 2);

impl Block for BlockQ6K {
    const NAME: &'static str = "Q6_K";
    const WEIGHTS: usize = SUPER;
    type Weights = [f32; SUPER];

    fn dequantize(&self) -> [f32; SUPER] {
        let d = self.d.to_f32();
        std::array::from_fn(|n| {
            // Which half, which of its four quarters, and where in the quarter.
            let (h, quarter, i) = (n / 128, n % 128 / 32, n % 32);
            let low = self.low[64 * h + quarter % 2 * 32 + i] >> (quarter / 2 * 4) & 15;
            let code = f32::from(two_bits(&self.high, n) << 4 | low) - 32.0;
            d * f32::from(self.scales[n / 16]) * code
        })
    }
}
