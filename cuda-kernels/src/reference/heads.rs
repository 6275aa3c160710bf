//! Twins of the steps between the projections and attention.

use crate::RopeOrder;

/// Rotates each pair of a head by `position` times the pair's frequency, in radians.
pub fn rotate(head: &mut [f64], frequencies: &[f64], position: usize, order: RopeOrder) {
    let half = head.len() / 2;
    for (i, frequency) in frequencies.iter().enumerate() {
        let (a, b) = match order {
            RopeOrder::Halves => (i, i + half),
            RopeOrder::Adjacent => (2 * i, 2 * i + 1),
        };
        let (sine, cosine) = (position as f64 * frequency).sin_cos();
        (head[a], head[b]) = (head[a] * cosine - head[b] * sine, head[a] * sine + head[b] * cosine);
    }
}

/// The number of an e4m3 code: a sign, four bits of exponent with bias 7, three of significand. 0x7f and 0xff are NaN.
#[must_use]
pub fn e4m3(code: u8) -> f64 {
    let (exponent, significand) = (i32::from(code >> 3 & 15), f64::from(code & 7));
    let magnitude = match (exponent, code & 7) {
        (15, 7) => f64::NAN,
        (0, _) => significand * 2f64.powi(-9),
        _ => (8.0 + significand) * 2f64.powi(exponent - 10),
    };
    if code & 0x80 == 0 { magnitude } else { -magnitude }
}

/// The code whose number is nearest to `x`, of two the even one; the largest number's beyond it. By comparing them all.
#[must_use]
pub fn e4m3_nearest(x: f64) -> u8 {
    let distance = |code: u8| (e4m3(code) - x.abs()).abs();
    let mut best = 0;
    for code in 1..=0x7e {
        if distance(code) < distance(best) || (distance(code) == distance(best) && code % 2 == 0) {
            best = code;
        }
    }
    best | if x.is_sign_negative() { 0x80 } else { 0 }
}

/// A row's codes and scale, as the cache has them: `scale = amax / 448` in f32, codes of `x / scale` in f32. These are the
/// kernel's bits for the same f32 row.
#[must_use]
pub fn e4m3_row(x: &[f32]) -> (Vec<u8>, f32) {
    if x.iter().any(|v| !v.is_finite()) {
        return (vec![0; x.len()], f32::NAN);
    }
    let scale = x.iter().fold(0.0, |amax: f32, v| amax.max(v.abs())) / 448.0;
    if scale == 0.0 {
        return (vec![0; x.len()], 0.0);
    }
    (x.iter().map(|v| e4m3_nearest(f64::from(v / scale))).collect(), scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    // From the format's definition (OCP 8-bit floating point, E4M3): largest 448, smallest normal 2^-6, smallest 2^-9.
    #[test]
    fn e4m3s_landmarks() {
        assert_eq!((e4m3(0x7e), e4m3(0x08), e4m3(0x01), e4m3(0xb8)), (448.0, 0.015625, 0.001953125, -1.0));
        assert!(e4m3(0x7f).is_nan());
        for code in (0..=0x7e).chain(0x80..=0xfe) {
            assert_eq!(e4m3_nearest(e4m3(code)), code);
        }
        // Halfway between 16 and 18, and between 18 and 20: the even significand.
        assert_eq!(
            (e4m3(e4m3_nearest(17.0)), e4m3(e4m3_nearest(19.0)), e4m3_nearest(1e9)),
            (16.0, 20.0, 0x7e)
        );
    }
}
