//! The codebook formats in f64, from their formulas. The grids are the tables of `halfbyte-k-quants`.

use super::{bit, bits};
use halfbyte_k_quants::grids::{one, three, two};
use halfbyte_k_quants::{BlockIq1M, BlockIq1S, BlockIq2S, BlockIq2Xs, BlockIq2Xxs, BlockIq3S, BlockIq3Xxs};

/// Number `i` of a point of eight: digit `i` in base 4 is which of the three levels it is.
fn of_eight(point: u16, i: usize, levels: [f64; 3]) -> f64 {
    levels[usize::from(point) / 4_usize.pow(i as u32) % 4]
}

/// Number `i` of a point of four: digit `i` in base 8 is which of the eight levels it is.
fn of_four(point: u16, i: usize, levels: [f64; 8]) -> f64 {
    levels[usize::from(point) / 8_usize.pow(i as u32) % 8]
}

/// The sign of weight `i` of eight by seven bits: the last weight's makes the number of minus signs even.
fn even_sign(seven: usize, i: usize) -> f64 {
    let negative = if i < 7 { seven >> i & 1 == 1 } else { seven.count_ones() % 2 == 1 };
    if negative { -1.0 } else { 1.0 }
}

/// -1 where bit `i` is set.
fn sign(bytes: &[u8], i: usize) -> f64 {
    if bit(bytes, i) { -1.0 } else { 1.0 }
}

/// The levels of the 2-bit codebooks.
const LEVELS_2: [f64; 3] = [8.0, 25.0, 43.0];

/// 64 bits for each 32 weights: four indices of 8, four times 7 bits of signs, 4 bits of scale.
pub(super) fn iq2_xxs(block: &BlockIq2Xxs, i: usize) -> f64 {
    let (start, eight) = (i / 32 * 64, i / 8 % 4);
    let point = two::IQ2_XXS[bits(&block.codes, start + 8 * eight, 8)];
    let seven = bits(&block.codes, start + 32 + 7 * eight, 7);
    let sc = bits(&block.codes, start + 60, 4) as f64;
    block.d.to_f64() * (0.5 + sc) / 4.0 * of_eight(point, i % 8, LEVELS_2) * even_sign(seven, i % 8)
}

/// 16 bits for each 8 weights: an index of 9, 7 bits of signs. A nibble of scale for each 16.
pub(super) fn iq2_xs(block: &BlockIq2Xs, i: usize) -> f64 {
    let start = i / 8 * 16;
    let point = two::IQ2_XS[bits(&block.codes, start, 9)];
    let seven = bits(&block.codes, start + 9, 7);
    let sc = bits(&block.scales, i / 16 * 4, 4) as f64;
    block.d.to_f64() * (0.5 + sc) / 4.0 * of_eight(point, i % 8, LEVELS_2) * even_sign(seven, i % 8)
}

/// An index of 8 and 2 bits for each 8 weights, a sign for each. A nibble of scale for each 16.
pub(super) fn iq2_s(block: &BlockIq2S, i: usize) -> f64 {
    let index = usize::from(block.low[i / 8]) + 256 * bits(&block.high, i / 8 * 2, 2);
    let sc = bits(&block.scales, i / 16 * 4, 4) as f64;
    let level = of_eight(two::IQ2_S[index], i % 8, LEVELS_2);
    block.d.to_f64() * (0.5 + sc) / 4.0 * level * sign(&block.signs, i)
}

/// An index of 8 bits for each 4 weights; for each 32, four times 7 bits of signs and 4 bits of scale.
pub(super) fn iq3_xxs(block: &BlockIq3Xxs, i: usize) -> f64 {
    let (start, eight) = (i / 32 * 32, i / 8 % 4);
    let seven = bits(&block.signs_scales, start + 7 * eight, 7);
    let sc = bits(&block.signs_scales, start + 28, 4) as f64;
    let levels = [4.0, 12.0, 20.0, 28.0, 36.0, 44.0, 52.0, 62.0];
    let level = of_four(three::IQ3_XXS[usize::from(block.codes[i / 4])], i % 4, levels);
    block.d.to_f64() * (0.5 + sc) / 2.0 * level * even_sign(seven, i % 8)
}

/// An index of 8 bits and 1 for each 4 weights, a sign for each weight, a nibble of scale for each 32.
pub(super) fn iq3_s(block: &BlockIq3S, i: usize) -> f64 {
    let index = usize::from(block.low[i / 4]) + 256 * usize::from(bit(&block.high, i / 4));
    let sc = bits(&block.scales, i / 32 * 4, 4) as f64;
    let level = of_four(three::IQ3_S[index], i % 4, [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0]);
    block.d.to_f64() * (1.0 + 2.0 * sc) * level * sign(&block.signs, i)
}

/// An eighth down where `negative` is, else up.
fn shift(down: bool) -> f64 {
    if down { -0.125 } else { 0.125 }
}

/// An index of 8 and 3 bits for each 8 weights; 16 bits for each 32: four times the 3 bits, the scale, the shift.
pub(super) fn iq1_s(block: &BlockIq1S, i: usize) -> f64 {
    let start = i / 32 * 16;
    let index = usize::from(block.low[i / 8]) + 256 * bits(&block.high, start + i / 8 % 4 * 3, 3);
    let sc = bits(&block.high, start + 12, 3) as f64;
    let number = of_eight(one::IQ1[index], i % 8, [-1.0, 0.0, 1.0]) + shift(bit(&block.high, start + 15));
    block.d.to_f64() * (2.0 * sc + 1.0) * number
}

/// An index of 8 and 3 bits and the shift for each 8 weights; 16 bits for each 64: four scales, and 4 bits of `d`.
pub(super) fn iq1_m(block: &BlockIq1M, i: usize) -> f64 {
    let index = usize::from(block.low[i / 8]) + 256 * bits(&block.high, i / 8 * 4, 3);
    let sc = bits(&block.scales, i / 64 * 16 + i / 16 % 4 * 3, 3) as f64;
    let d: usize = (0..4).map(|k| bits(&block.scales, 16 * k + 12, 4) << (4 * k)).sum();
    let number = of_eight(one::IQ1[index], i % 8, [-1.0, 0.0, 1.0]) + shift(bit(&block.high, i / 8 * 4 + 3));
    half::f16::from_bits(d as u16).to_f64() * (2.0 * sc + 1.0) * number
}
