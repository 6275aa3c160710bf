//! The K-quants in f64, from their formulas: `half` is which 128 weights, `run` which 32 of these, `at` where in the run.

use super::{bit, bits};
use half::f16;
use halfbyte_k_quants::{BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K};

/// Two bits of a code: a half has 32 bytes, and run `r` has pair `r` of each.
fn pair(bytes: &[u8; 64], i: usize) -> u8 {
    let (half, run, at) = (i / 128, i % 128 / 32, i % 32);
    bytes[half * 32 + at] / [1, 4, 16, 64][run] % 4
}

/// `(d * sc) * q - (dmin * m)`: a byte of scales holds `sc` and `m` of 16 weights, `sc` in its low half.
pub(super) fn q2_k(block: &BlockQ2K, i: usize) -> f64 {
    let byte = block.scales[i / 16];
    let (sc, m) = (f64::from(byte % 16), f64::from(byte / 16));
    block.d.to_f64() * sc * f64::from(pair(&block.codes, i)) - block.dmin.to_f64() * m
}

/// `-(dmin * m)` of a weight of Q2_K.
pub(super) fn q2_k_min(block: &BlockQ2K, i: usize) -> f64 {
    -block.dmin.to_f64() * f64::from(block.scales[i / 16] / 16)
}

/// `-(dmin * m)` of a weight of Q4_K or Q5_K.
pub(super) fn min(dmin: f16, scales: &[u8; 12], i: usize) -> f64 {
    -dmin.to_f64() * scale_min(scales, i / 32).1
}

/// `(d * (sc - 32)) * (q - 4)`: bit 2 of `q` is bit `i / 32` of byte `i % 32`.
///
/// Of `sc`, the low nibbles of bytes 0 to 7 hold bits 0 to 3 of the first eight groups, their high nibbles those of the
/// last eight. Bytes 8 to 11 hold bits 4 and 5: byte `8 + k` those of groups `k`, `k + 4`, `k + 8` and `k + 12`.
pub(super) fn q3_k(block: &BlockQ3K, i: usize) -> f64 {
    let group = i / 16;
    let low = if group < 8 { block.scales[group] % 16 } else { block.scales[group - 8] / 16 };
    let high = block.scales[8 + group % 4] / [1, 4, 16, 64][group / 4] % 4;
    let third = if block.high[i % 32] / (1 << (i / 32)) % 2 == 1 { 4 } else { 0 };
    let q = f64::from(pair(&block.low, i) + third) - 4.0;
    block.d.to_f64() * (f64::from(high * 16 + low) - 32.0) * q
}

/// The scale and the minimum of a group of 32 of Q4_K and Q5_K.
///
/// Bytes 0 to 3 of the packed scales hold `sc` of the first four groups in their low six bits, bytes 4 to 7 `m`; their two
/// high bits are the high bits of the last four groups', whose low four bits are the nibbles of bytes 8 to 11.
fn scale_min(bytes: &[u8; 12], group: usize) -> (f64, f64) {
    let (sc, m) = match group {
        0..4 => (bytes[group] % 64, bytes[4 + group] % 64),
        _ => {
            let j = group - 4;
            (bytes[j] / 64 * 16 + bytes[8 + j] % 16, bytes[4 + j] / 64 * 16 + bytes[8 + j] / 16)
        }
    };
    (f64::from(sc), f64::from(m))
}

/// The low four bits of a code of Q4_K and Q5_K: two groups share 32 bytes, and the even one has the low nibbles.
fn nibble(codes: &[u8; 128], i: usize) -> f64 {
    let byte = codes[i / 64 * 32 + i % 32];
    f64::from(if (i / 32).is_multiple_of(2) { byte % 16 } else { byte / 16 })
}

/// `(d * sc) * q - (dmin * m)`, with a scale `sc` and a minimum `m` of 6 bits for each 32.
pub(super) fn q4_k(block: &BlockQ4K, i: usize) -> f64 {
    let (sc, m) = scale_min(&block.scales, i / 32);
    block.d.to_f64() * sc * nibble(&block.codes, i) - block.dmin.to_f64() * m
}

/// As Q4_K; bit 4 of the code is bit `i / 32` of byte `i % 32`.
pub(super) fn q5_k(block: &BlockQ5K, i: usize) -> f64 {
    let (sc, m) = scale_min(&block.scales, i / 32);
    let q = nibble(&block.codes, i) + if bit(&block.high[i % 32..], i / 32) { 16.0 } else { 0.0 };
    block.d.to_f64() * sc * q - block.dmin.to_f64() * m
}

/// `(d * sc) * (q - 32)`, with a scale `sc` for each 16.
///
/// A half of 128 weights has 64 bytes of low nibbles and 32 bytes of high bit pairs. Of its four runs of 32 weights, runs 0
/// and 1 have the low nibbles of the first and the last 32 bytes, runs 2 and 3 the high ones; run `r` has pair `r` of a byte.
pub(super) fn q6_k(block: &BlockQ6K, i: usize) -> f64 {
    let (half, run, at) = (i / 128, i % 128 / 32, i % 32);
    let low = bits(&block.low[half * 64 + [0, 32, 0, 32][run] + at..], run / 2 * 4, 4) as u8;
    let q = f64::from(pair(&block.high, i) * 16 + low) - 32.0;
    block.d.to_f64() * f64::from(block.scales[i / 16]) * q
}
