//! Rounding to whole numbers by one addition.
//!
//! Near 1.5 * 2^23 neighbouring f32s are 1 apart, so adding that number rounds the sum to a whole
//! number, ties to even, and subtracting it again is exact. `round_ties_even` gives the same, but is a
//! call into the C library on x86-64 without SSE4.1, and keeps the loop around it from vectorising.
//! Clamping first, between whole numbers, changes no result and keeps the argument small.

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

#[cfg(test)]
mod tests {
    use super::*;

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
