//! Rounding: to whole numbers by one addition, and to the f16s.
//!
//! Near 1.5 * 2^23 neighbouring f32s are 1 apart, so adding that number rounds the sum to a whole
//! number, ties to even, and subtracting it again is exact. `round_ties_even` gives the same, but is a
//! call into the C library on x86-64 without SSE4.1, and keeps the loop around it from vectorising.
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

/// The f16 nearest to `v`, ties to even; infinite from 65520 on, as IEEE 754 says.
///
/// `f16::from_f64` looks at the top half of an f64 only: just past the middle between two f16s it may give
/// the farther one.
pub(crate) fn nearest_f16(v: f64) -> f16 {
    let near = f16::from_f64(v);
    let away = |h: f16| (h.to_f64() - v).abs();
    if !near.is_finite() || near.to_f64() == v {
        // At the end of the range the middle is exact in the top half, and beyond it nothing is near.
        return near;
    }
    // Neighbours of one sign differ by one in their bits.
    let bits = near.to_bits();
    let outwards = near.to_f64().abs() < v.abs();
    let other = f16::from_bits(if outwards { bits + 1 } else { bits.saturating_sub(1) });
    if other.is_finite() && away(other) < away(near) { other } else { near }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_f16_is_the_nearest() {
        // Just above and below the middle of neighbours, even and odd, subnormal and the largest.
        for bits in [0, 1, 2, 0x3ff, 0x400, 0x3c00, 0x3c01, 0x7bfe] {
            let (low, high) = (f16::from_bits(bits), f16::from_bits(bits + 1));
            let middle = (low.to_f64() + high.to_f64()) / 2.0;
            assert_eq!(nearest_f16(middle.next_down()), low, "{bits:#x}");
            assert_eq!(nearest_f16(middle.next_up()), high, "{bits:#x}");
            assert_eq!(nearest_f16(-middle.next_up()), -high, "{bits:#x}");
            assert_eq!(nearest_f16(-middle.next_down()), -low, "{bits:#x}");
            assert_eq!(nearest_f16(middle).to_bits() & 1, 0, "{bits:#x}");
            assert_eq!(nearest_f16(low.to_f64()), low);
        }
        assert_eq!(nearest_f16(65504.0), f16::MAX);
        assert_eq!(nearest_f16(65520f64.next_down()), f16::MAX);
        assert_eq!(nearest_f16(65520.0), f16::INFINITY);
        assert_eq!(nearest_f16(-1e300), f16::NEG_INFINITY);
        assert!(nearest_f16(f64::NAN).is_nan());
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
