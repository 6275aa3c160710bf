//! The nibble order of Q4_0 and Q4_1.
//!
//! ```text
//! byte i:   high nibble          low nibble
//!           code of weight i+16  code of weight i       i = 0..16
//! ```
//!
//! A byte holds two weights that are half a group apart, not two neighbours: one mask and one shift of 16 bytes
//! give the codes of 32 consecutive weights in order.

use crate::GROUP;

/// Packs 32 codes; only the low four bits of each are used.
#[must_use]
pub fn pack_nibbles(codes: &[u8; GROUP]) -> [u8; GROUP / 2] {
    std::array::from_fn(|i| (codes[i] & 15) | (codes[i + GROUP / 2] << 4))
}

/// Unpacks 32 codes of 0..=15, in the order of the weights.
#[must_use]
pub fn unpack_nibbles(packed: &[u8; GROUP / 2]) -> [u8; GROUP] {
    std::array::from_fn(|i| if i < GROUP / 2 { packed[i] & 15 } else { packed[i - GROUP / 2] >> 4 })
}
