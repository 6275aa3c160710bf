//! Uneven levels, 4-bit floats, ternary and binary weights in f64, from their formulas.

use super::{bit, bits, nibble};
use halfbyte_k_quants::{
    BlockIq4Nl, BlockIq4Xs, BlockMxfp4, BlockNvfp4, BlockQ1_0, BlockQ2_0, BlockTq1_0, BlockTq2_0, IQ4_LEVELS,
};

/// `scale * level[code]`.
pub(super) fn iq4_nl(block: &BlockIq4Nl, i: usize) -> f64 {
    block.scale.to_f64() * f64::from(IQ4_LEVELS[nibble(&block.codes, i) as usize])
}

/// `d * (sc - 32) * level[code]`: of `sc`, four bits are a nibble of one array, two those of another.
pub(super) fn iq4_xs(block: &BlockIq4Xs, i: usize) -> f64 {
    let group = i / 32;
    let sc = bits(&block.scales_low, 4 * group, 4) + 16 * bits(&block.scales_high, 2 * group, 2);
    let codes = block.codes.as_chunks::<16>().0;
    let level = f64::from(IQ4_LEVELS[nibble(&codes[group], i % 32) as usize]);
    block.d.to_f64() * (sc as f64 - 32.0) * level
}

/// A float of 4 bits: a sign, an exponent `e` of 2 bits and a mantissa `m` of 1; `(1 + m / 2) 2^(e - 1)`, or `m / 2` where
/// `e` is 0.
fn e2m1(code: f64) -> f64 {
    let magnitude = code % 8.0;
    let (e, m) = ((magnitude / 2.0).floor(), magnitude % 2.0);
    let value = if e == 0.0 { m / 2.0 } else { (1.0 + m / 2.0) * (e - 1.0).exp2() };
    // The negative zero is a plain one.
    if code > 8.0 { -value } else { value }
}

/// `2^(exponent - 127) * code`.
pub(super) fn mxfp4(block: &BlockMxfp4, i: usize) -> f64 {
    (f64::from(block.exponent) - 127.0).exp2() * e2m1(nibble(&block.codes, i))
}

/// `scale * code`, with a scale of 8 bits for each 16: a bit without meaning, an exponent `e` of 4 and a mantissa `m` of 3;
/// `(1 + m / 8) 2^(e - 7)`, or `m / 8 * 2^-6` where `e` is 0. 0x7f is 0.
pub(super) fn nvfp4(block: &BlockNvfp4, i: usize) -> f64 {
    let (group, at) = (i / 16, i % 16);
    let byte = block.scales[group];
    let (e, m) = (f64::from(byte / 8 % 16), f64::from(byte % 8));
    let scale = match (byte, e) {
        (0x7f, _) => 0.0,
        (_, 0.0) => m / 8.0 / 64.0,
        _ => (1.0 + m / 8.0) * (e - 7.0).exp2(),
    };
    // A group has eight bytes; the low halves are its first weights.
    let code = bits(&block.codes, (group * 8 + at % 8) * 8 + at / 8 * 4, 4);
    scale * e2m1(code as f64)
}

/// `d * (code - 1)`: the codes of a byte are the digits of `byte / 256` in base 3, behind the point.
pub(super) fn tq1_0(block: &BlockTq1_0, i: usize) -> f64 {
    let (byte, place) = match i {
        0..160 => (block.codes[i % 32], i / 32),
        160..240 => (block.codes[32 + i % 16], i / 16 - 10),
        _ => (block.high[i % 4], i / 4 - 60),
    };
    let mut fraction = f64::from(byte) / 256.0;
    for _ in 0..place {
        fraction = (3.0 * fraction).fract();
    }
    block.d.to_f64() * ((3.0 * fraction).floor() - 1.0)
}

/// `d * (code - 1)`, codes of 2 bits: 32 bytes a half of 128 weights, run `r` of 32 has pair `r` of each.
pub(super) fn tq2_0(block: &BlockTq2_0, i: usize) -> f64 {
    let code = bits(&block.codes, (i / 128 * 32 + i % 32) * 8 + i % 128 / 32 * 2, 2);
    block.d.to_f64() * (code as f64 - 1.0)
}

/// `scale` where bit `i` is set, else `-scale`.
pub(super) fn q1_0(block: &BlockQ1_0, i: usize) -> f64 {
    block.scale.to_f64() * if bit(&block.bits, i) { 1.0 } else { -1.0 }
}

/// `scale * (code - 1)`, codes of 2 bits one after the other.
pub(super) fn q2_0(block: &BlockQ2_0, i: usize) -> f64 {
    block.scale.to_f64() * (bits(&block.codes, 2 * i, 2) as f64 - 1.0)
}
