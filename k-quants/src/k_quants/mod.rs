//! The K-quants: super-blocks of 256 weights whose sub-blocks have scales of a few bits, in units that the block holds in
//! f16. One file each; the layouts are those of ggml (`ggml-common.h`, `ggml-quants.c`).

mod q2_k;
mod q3_k;
mod q4_k;
mod q5_k;
mod q6_k;

pub use q2_k::BlockQ2K;
pub use q3_k::BlockQ3K;
pub use q4_k::BlockQ4K;
pub use q5_k::BlockQ5K;
pub use q6_k::BlockQ6K;

/// The 6-bit scale and minimum of sub-block `j` of Q4_K and Q5_K, as their twelve bytes hold them:
///
/// ```text
/// bytes[0..4]    low 6 bits: sc 0..4    high 2 bits: bits 4, 5 of sc 4..8
/// bytes[4..8]    low 6 bits: m 0..4     high 2 bits: bits 4, 5 of m 4..8
/// bytes[8..12]   low nibble: bits 0-3 of sc 4..8    high nibble: bits 0-3 of m 4..8
/// ```
///
/// # Panics
///
/// When `j >= 8`.
#[must_use]
pub fn unpack_scale_min(bytes: &[u8; 12], j: usize) -> (u8, u8) {
    if j < 4 {
        (bytes[j] & 63, bytes[j + 4] & 63)
    } else {
        (bytes[j + 4] & 15 | bytes[j - 4] >> 6 << 4, bytes[j + 4] >> 4 | bytes[j] >> 6 << 4)
    }
}

/// The twelve bytes that [`unpack_scale_min`] reads the scales and minima from, which are 0..=63.
#[must_use]
pub fn pack_scales_min(scales: &[u8; 8], mins: &[u8; 8]) -> [u8; 12] {
    std::array::from_fn(|i| match i {
        0..4 => scales[i] & 63 | scales[i + 4] >> 4 << 6,
        4..8 => mins[i - 4] & 63 | mins[i] >> 4 << 6,
        _ => scales[i - 4] & 15 | mins[i - 4] << 4,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_and_minima_are_read_back() {
        for seed in 0..64_u8 {
            let number = |i: usize, factor: u8| (seed.wrapping_mul(factor).wrapping_add(11 * i as u8)) & 63;
            let (scales, mins) =
                (std::array::from_fn(|i| number(i, 5)), std::array::from_fn(|i| number(i, 23)));
            let bytes = pack_scales_min(&scales, &mins);
            for j in 0..8 {
                assert_eq!(unpack_scale_min(&bytes, j), (scales[j], mins[j]));
            }
        }
    }
}
