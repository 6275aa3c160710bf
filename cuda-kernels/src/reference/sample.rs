//! A twin of the sampler, bit for bit.

use crate::Draw;
use std::f32::consts::LN_2;

/// Philox4x32-10: four random words of a counter and a key.
#[must_use]
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let a = 0xd251_1f53 * u64::from(counter[0]);
        let b = 0xcd9e_8d57 * u64::from(counter[2]);
        counter = [
            (b >> 32) as u32 ^ counter[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ counter[3] ^ key[1],
            a as u32,
        ];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    counter
}

/// `2 atanh(s)`, |s| < 0.172.
fn twice_atanh(s: f32) -> f32 {
    let (z, t) = (s * s, s + s);
    let p = [1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0].into_iter().fold(1.0f32 / 9.0, |p, next| p.mul_add(z, next));
    (t * z).mul_add(p, t)
}

/// `ln x` of a normal number.
fn natural_log(x: f32) -> f32 {
    const ROOT_HALF: i32 = 0x3f35_04f3;
    let offset = x.to_bits() as i32 - ROOT_HALF;
    let m = f32::from_bits(((offset & 0x7f_ffff) + ROOT_HALF) as u32);
    ((offset >> 23) as f32).mul_add(LN_2, twice_atanh((m - 1.0) / (m + 1.0)))
}

/// The Gumbel noise of a random word: `-ln(-ln(1 - v))`, `v = (word + 1/2) / 2^32`, within 2^-19. The kernel's bits.
#[must_use]
pub fn gumbel(word: u32) -> f32 {
    const UNIT: f32 = 1.0 / 4_294_967_296.0;
    let unit = |word: u32| (word as f32 + 0.5) * UNIT;
    let exponential = if word < 1 << 30 {
        let v = unit(word);
        twice_atanh(v / (2.0 - v))
    } else {
        -natural_log(unit(!word))
    };
    -natural_log(exponential)
}

/// The noise of a token in a draw.
#[must_use]
pub fn noise(draw: Draw, token: u32) -> f32 {
    let halves = |x: u64| [x as u32, (x >> 32) as u32];
    let [low, high] = halves(draw.position);
    gumbel(philox([token / 4, low, high, 0], halves(draw.seed))[(token % 4) as usize])
}

/// The token of a row of logits: [`DeviceSampler::sample`](crate::DeviceSampler::sample)'s choice, bit for bit.
///
/// The largest logit (temperature 0), or the largest `logit / temperature + noise` of all tokens or the `top_k` with the
/// largest logits; of equals the lowest token. NaN counts as -infinity; `None` if nothing is above that.
#[must_use]
pub fn sample(logits: &[f32], draw: Draw) -> Option<u32> {
    // -0 becomes 0.
    let number = |x: f32| if x.is_nan() { f32::NEG_INFINITY } else { x + 0.0 };
    let mut candidates: Vec<(f32, u32)> =
        logits.iter().zip(0..).map(|(&x, token)| (number(x), token)).collect();
    if draw.temperature != 0.0 {
        if draw.top_k != 0 {
            // Stable: of equals the lowest token stays first.
            candidates.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            candidates.truncate(draw.top_k);
        }
        for (x, token) in &mut candidates {
            *x = number(x.mul_add(draw.inverse_temperature(), noise(draw, *token)));
        }
    }
    let better = |a: (f32, u32), b: (f32, u32)| if b.0 > a.0 || (b.0 == a.0 && b.1 < a.1) { b } else { a };
    let best = candidates.into_iter().reduce(better)?;
    (best.0 > f32::NEG_INFINITY).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    // The known answers of Random123, the authors' own library (philox4x32, 10 rounds).
    #[test]
    fn philox_gives_its_authors_known_answers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([!0; 4], [!0; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let digits = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        let answer = [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1];
        assert_eq!(philox(digits, [0xa409_3822, 0x299f_31d0]), answer);
    }

    #[test]
    fn the_noise_is_gumbels_to_the_last_bits() {
        let mut worst = 0f64;
        let words = (0..=32).flat_map(|bit: u32| {
            let top = 1u64.checked_shl(bit).unwrap_or(0);
            [top.wrapping_sub(1), top, top + 1, top * 3 / 2].map(|w| w as u32)
        });
        for word in words.chain((0..50_000).map(|i: u32| i.wrapping_mul(0x9e37_79b9))).chain([!0, !0 - 1]) {
            let v = (f64::from(word) + 0.5) / 2f64.powi(32);
            let want = -(-(-v).ln_1p()).ln();
            worst = worst.max((f64::from(gumbel(word)) - want).abs());
        }
        assert!(worst < 2f64.powi(-19), "{worst}");
    }
}
