//! Rounding to whole numbers by one addition, and rounding to f16.
//!
//! Near 1.5 * 2^23 neighbouring f32s are 1 apart, so adding that number rounds the sum to a whole
//! number, ties to even, and subtracting it again is exact. `round_ties_even` gives the same, but is a
//! call into the C library on x86-64 without SSE4.1, and prevents the vectorisation of loops around it.
//! Clamping first, between whole numbers, changes no result and keeps the argument small.

use half::f16;

/// `v` to the nearest whole number, ties to even, clamped to `low..=high`: whole numbers below 2^22.
pub(crate) fn round_clamped(v: f32, low: f32, high: f32) -> f32 {
    const SHIFT: f32 = 12_582_912.0;
    v.max(low).min(high) + SHIFT - SHIFT
}

/// The same in f64, for whole numbers below 2^51.
pub(crate) fn round_clamped_f64(v: f64, low: f64, high: f64) -> f64 {
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    v.max(low).min(high) + SHIFT - SHIFT
}

/// `v` as f32, rounded to odd: if `v` is no f32, the result is the one of its two neighbours whose last bit is 1.
///
/// Rounding the result to nearest, to a type with at least two bits less (f16, bf16), gives the same as rounding
/// `v` itself: an odd last bit is never on a tie, and always on the same side of it as `v`. (`half` converts an f64 by
/// its upper 32 bits alone, so a number just past the middle of two f16s may become the farther one.)
pub(crate) fn odd_f32(v: f64) -> f32 {
    let near = v as f32;
    let back = f64::from(near);
    // Neighbours of one sign differ by one in their bits.
    match near.to_bits() {
        _ if back == v || !near.is_finite() => near,
        odd if odd & 1 == 1 => near,
        even if back.abs() < v.abs() => f32::from_bits(even + 1),
        even => f32::from_bits(even - 1),
    }
}

/// The f16 nearest to `v`, ties to even; infinite from 65520 on, as IEEE 754 says.
pub(crate) fn nearest_f16(v: f64) -> f16 {
    f16::from_f32(odd_f32(v))
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    /// Compares `nearest` with the definition of rounding to nearest, ties to even: on, next to and near the middle of any
    /// two neighbours of a 16-bit type whose largest number has the bits `last`.
    fn check_nearest(last: u16, decode: impl Fn(u16) -> f64, nearest: impl Fn(f64) -> u16) {
        for low in 0..=last {
            let at = decode(low);
            // Beyond the largest number the rule is applied as if another number followed.
            let next = if low < last { decode(low + 1) } else { 2.0 * at - decode(low - 1) };
            let middle = (at + next) / 2.0;
            let even = low + (low & 1);
            let near = [1e-15, 1e-12, 1e-9, 1e-7].map(|e| e * (next - at));
            let below = near.map(|e| middle - e).into_iter().chain([at, middle.next_down()]);
            let above = near.map(|e| middle + e).into_iter().chain([middle.next_up()]);
            let cases = below.map(|v| (v, if v < middle { low } else { even }));
            let cases = cases.chain([(middle, even)]);
            for (v, expected) in cases.chain(above.map(|v| (v, if v > middle { low + 1 } else { even }))) {
                assert_eq!(nearest(v), expected, "{v:e}");
                assert_eq!(nearest(-v), expected | 0x8000, "{:e}", -v);
            }
        }
        for v in [f64::MAX, f64::INFINITY] {
            assert_eq!((nearest(v), nearest(-v)), (last + 1, (last + 1) | 0x8000));
        }
        assert_eq!((nearest(f64::MIN_POSITIVE), nearest(-1e-200)), (0, 0x8000));
        assert!(decode(nearest(f64::NAN)).is_nan());
    }

    #[test]
    fn sixteen_bits_are_rounded_once() {
        check_nearest(0x7bff, |bits| f16::from_bits(bits).to_f64(), |v| nearest_f16(v).to_bits());
        let decode = |bits| bf16::from_bits(bits).to_f64();
        check_nearest(0x7f7f, decode, |v| bf16::from_f32(odd_f32(v)).to_bits());
    }

    #[test]
    fn equals_the_library_function() {
        // Every multiple of 1/64 and its neighbours, past both ends.
        for i in -16 * 64..=16 * 64 {
            let v = i as f32 / 64.0;
            for v in [v.next_down(), v, v.next_up()] {
                let expected = v.round_ties_even().clamp(-8.0, 7.0);
                assert_eq!(round_clamped(v, -8.0, 7.0), expected, "{v}");
                assert_eq!(round_clamped_f64(f64::from(v), -8.0, 7.0), f64::from(expected), "{v}");
            }
            let v = f64::from(v);
            for v in [v.next_down(), v.next_up()] {
                assert_eq!(round_clamped_f64(v, -8.0, 7.0), v.round_ties_even().clamp(-8.0, 7.0), "{v}");
            }
        }
        assert_eq!(round_clamped(f32::INFINITY, 0.0, 15.0), 15.0);
        assert_eq!(round_clamped(f32::MIN, 0.0, 15.0), 0.0);
    }
}
