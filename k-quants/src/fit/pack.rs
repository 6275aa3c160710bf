//! Which search makes which block, and how its numbers are packed.

use super::Fit;
use super::line::fit_line;
use super::lines::{Ends, Lines, fit_lines};
use super::scales::{Scales, fit_scales};
use super::symmetric::{Fp4, Group, Levels, Uneven, Whole, fit_scale, levels};
use crate::block::{GROUP, SUPER};
use crate::floats::half_e8m0;
use crate::{
    BlockIq4Nl, BlockIq4Xs, BlockMxfp4, BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5_0, BlockQ5_1, BlockQ5K,
    BlockQ6K, FP4_LEVELS, IQ4_LEVELS, pack_fives, pack_scales_min,
};
use std::array::from_fn;

/// The largest f16.
const F16_MAX: f32 = 65504.0;

/// The weights in f64.
fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

/// The code of a level in a list of sixteen, the first of equals. Level 0, which IQ4_NL has not and which is asked for where
/// the scale is 0, has code 8, whose product with 0 is 0 and not -0.
fn code_of(levels: &[i8; 16], level: f64) -> u8 {
    levels.iter().position(|&l| f64::from(l) == level).unwrap_or(8) as u8
}

/// Two codes of 4 bits a byte: code `i` of each 32 in the low half of byte `i`, code `i + 16` in the high half.
fn nibbles_of_32<const N: usize>(codes: &[u8]) -> [u8; N] {
    from_fn(|i| {
        let at = i / 16 * GROUP + i % 16;
        codes[at] & 15 | codes[at + 16] << 4
    })
}

/// Two codes of 4 bits a byte: code `i` of each 64 in the low half of byte `i`, code `i + 32` in the high half.
fn nibbles_of_64(codes: &[u8]) -> [u8; SUPER / 2] {
    from_fn(|i| {
        let at = i / 32 * 64 + i % 32;
        codes[at] & 15 | codes[at + 32] << 4
    })
}

/// Four codes of 2 bits a byte, as [`crate::block::two_bits`] reads them.
fn pairs(codes: impl Fn(usize) -> u8) -> [u8; SUPER / 4] {
    from_fn(|i| {
        let at = i / 32 * 128 + i % 32;
        (0..4).fold(0, |byte, run| byte | (codes(at + 32 * run) & 3) << (2 * run))
    })
}

impl Fit for BlockQ5_0 {
    const LIMIT: f32 = 15.0 * F16_MAX;

    fn fit(x: &[f32], v: &[f64]) -> Self {
        let (scale, levels) = fit_scale::<Whole<16>>(Group { x: &wide(x), v });
        let (high, codes) = pack_fives(&from_fn(|i| (levels[i] + 16.0) as u8));
        Self { scale, high, codes }
    }
}

impl Fit for BlockQ5_1 {
    const LIMIT: f32 = F16_MAX;

    fn fit(x: &[f32], v: &[f64]) -> Self {
        let (scale, min, codes) = fit_line(Group { x: &wide(x), v }, 31.0);
        let (high, codes) = pack_fives(&from_fn(|i| codes[i]));
        Self { scale, min, high, codes }
    }
}

impl Fit for BlockIq4Nl {
    const LIMIT: f32 = 113.0 * F16_MAX;

    fn fit(x: &[f32], v: &[f64]) -> Self {
        let (scale, levels) = fit_scale::<Uneven>(Group { x: &wide(x), v });
        let codes: Vec<u8> = levels.iter().map(|&level| code_of(&IQ4_LEVELS, level)).collect();
        Self { scale, codes: nibbles_of_32(&codes) }
    }
}

impl Fit for BlockMxfp4 {
    // Almost 12 * 2^124, the largest level of the largest scale whose levels are all finite in f32.
    const LIMIT: f32 = 2.55e38;

    fn fit(x: &[f32], v: &[f64]) -> Self {
        let x = wide(x);
        let group = Group { x: &x, v };
        let biggest = group.biggest().abs();
        // The scale that puts the biggest weight between 8 and 16, and some on either side.
        let middle = if biggest > 0.0 { biggest.log2().floor() as i32 + 125 } else { 0 };
        let mut best = (f64::INFINITY, 0);
        for exponent in middle - 2..=middle + 2 {
            // With 253 and more, twelve would be an infinity.
            let exponent = exponent.clamp(0, 252) as u8;
            let error = group.error::<Fp4>(half_e8m0(exponent).into());
            if error < best.0 {
                best = (error, exponent);
            }
        }
        let exponent = best.1;
        let levels = levels::<Fp4>(&x, half_e8m0(exponent).into());
        let codes: Vec<u8> = levels.iter().map(|&level| code_of(&FP4_LEVELS, level)).collect();
        Self { exponent, codes: nibbles_of_32(&codes) }
    }
}

impl Fit for BlockQ2K {
    const LIMIT: f32 = 15.0 * F16_MAX;

    fn fit(x: &[f32], v: &[f64]) -> Self {
        let Lines { d, dmin, pairs: numbers, codes } =
            fit_lines(&wide(x), v, 16, Ends { scale: 15.0, code: 3.0 });
        let scales = from_fn(|j| numbers[j].0 | numbers[j].1 << 4);
        Self { scales, codes: pairs(|n| codes[n]), d, dmin }
    }
}

/// The scales and minima of Q4_K and Q5_K in twelve bytes.
fn six_bits(numbers: &[(u8, u8)]) -> [u8; 12] {
    pack_scales_min(&from_fn(|j| numbers[j].0), &from_fn(|j| numbers[j].1))
}

impl Fit for BlockQ4K {
    const LIMIT: f32 = 63.0 * F16_MAX;

    fn fit(x: &[f32], v: &[f64]) -> Self {
        let Lines { d, dmin, pairs, codes } = fit_lines(&wide(x), v, 32, Ends { scale: 63.0, code: 15.0 });
        Self { d, dmin, scales: six_bits(&pairs), codes: nibbles_of_64(&codes) }
    }
}

impl Fit for BlockQ5K {
    const LIMIT: f32 = 63.0 * F16_MAX;

    fn fit(x: &[f32], v: &[f64]) -> Self {
        let Lines { d, dmin, pairs, codes } = fit_lines(&wide(x), v, 32, Ends { scale: 63.0, code: 31.0 });
        let high = from_fn(|i| (0..8).fold(0, |byte, j| byte | (codes[32 * j + i] >> 4 & 1) << j));
        Self { d, dmin, scales: six_bits(&pairs), high, codes: nibbles_of_64(&codes) }
    }
}

/// Codes of a symmetric super-block: levels, counted from the lowest.
fn counted<L: Levels>(levels: &[f64]) -> Vec<u8> {
    levels.iter().map(|level| (level - L::ENDS.0) as u8).collect()
}

impl Fit for BlockQ3K {
    const LIMIT: f32 = 3.0 * 31.0 * F16_MAX;

    fn fit(x: &[f32], v: &[f64]) -> Self {
        let Scales { d, scales, levels } = fit_scales::<Whole<4>>(&wide(x), v, 16, (-32.0, 31.0));
        let codes = counted::<Whole<4>>(&levels);
        let sc: Vec<u8> = scales.iter().map(|sc| (sc + 32.0) as u8).collect();
        Self {
            high: from_fn(|i| (0..8).fold(0, |byte, k| byte | (codes[32 * k + i] >> 2 & 1) << k)),
            low: pairs(|n| codes[n]),
            scales: from_fn(|i| match i {
                0..8 => sc[i] & 15 | sc[i + 8] << 4,
                _ => (0..4).fold(0, |byte, k| byte | sc[4 * k + i - 8] >> 4 << (2 * k)),
            }),
            d,
        }
    }
}

impl Fit for BlockQ6K {
    const LIMIT: f32 = 31.0 * 127.0 * F16_MAX;

    fn fit(x: &[f32], v: &[f64]) -> Self {
        let Scales { d, scales, levels } = fit_scales::<Whole<32>>(&wide(x), v, 16, (-128.0, 127.0));
        let codes = counted::<Whole<32>>(&levels);
        Self {
            // Byte `i` of each 64 has weights `i` and `i + 64` of each 128.
            low: from_fn(|i| {
                let at = i / 64 * 128 + i % 64;
                codes[at] & 15 | codes[at + 64] << 4
            }),
            high: pairs(|n| codes[n] >> 4),
            scales: from_fn(|j| scales[j] as i8),
            d,
        }
    }
}

impl Fit for BlockIq4Xs {
    const LIMIT: f32 = 113.0 * 31.0 * F16_MAX;

    fn fit(x: &[f32], v: &[f64]) -> Self {
        let Scales { d, scales, levels } = fit_scales::<Uneven>(&wide(x), v, 32, (-32.0, 31.0));
        let codes: Vec<u8> = levels.iter().map(|&level| code_of(&IQ4_LEVELS, level)).collect();
        let sc: Vec<u8> = scales.iter().map(|sc| (sc + 32.0) as u8).collect();
        Self {
            d,
            scales_high: from_fn(|i| (0..4).fold(0, |byte, k| byte | sc[4 * i + k] >> 4 << (2 * k))),
            scales_low: from_fn(|i| sc[2 * i] & 15 | sc[2 * i + 1] << 4),
            codes: nibbles_of_32(&codes),
        }
    }
}
