//! How a group of activations becomes integers.

use crate::GROUP;

/// How many bits the codes of [`crate::Activations`] may have.
///
/// All three use the same group scales, the same kernels and the same exact integer sums; they differ in which inputs get
/// a second byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// 8 bits everywhere: the largest input of a group sets the step of all its 32.
    #[default]
    Int8,
    /// 8 bits, and 16 bits for outliers: inputs beyond [`OUTLIER_FACTOR`] times the mean magnitude of their row. The
    /// step of a group is that of its other inputs.
    Auto,
    /// 16 bits everywhere.
    Int16,
}

/// [`Precision::Auto`] gives two bytes to inputs that are larger than this times the mean magnitude of their row.
pub const OUTLIER_FACTOR: f32 = 6.0;

impl Precision {
    /// The magnitude up to which an input of `row` decides about the step of its group; what is larger is an outlier.
    ///
    /// Infinite for [`Precision::Int8`], 0 for [`Precision::Int16`], and for [`Precision::Auto`] `6 * (sum / n)` with the
    /// sum of the `n` magnitudes: sixteen f32 lanes, lane `i` adding inputs `i`, `i + 16`, ... in order, folded lanes 8
    /// apart, then 4, 2 and 1. A row with a NaN has the limit NaN, which makes nothing an outlier.
    #[must_use]
    pub fn limit(self, row: &[f32]) -> f32 {
        match self {
            Self::Int8 => f32::INFINITY,
            Self::Int16 => 0.0,
            Self::Auto => {
                let mut lanes = [0.0f32; 16];
                for vector in row.chunks(16) {
                    for (lane, x) in lanes.iter_mut().zip(vector) {
                        *lane += x.abs();
                    }
                }
                for apart in [8, 4, 2, 1] {
                    for i in 0..apart {
                        lanes[i] += lanes[i + apart];
                    }
                }
                outlier_limit(lanes[0], row.len())
            }
        }
    }

    /// Whether a code may have a second byte.
    #[must_use]
    pub fn has_high_bytes(self) -> bool {
        self != Self::Int8
    }
}

/// [`Precision::Auto`]'s limit for a row of `n` inputs whose magnitudes add up to `sum`.
#[must_use]
pub fn outlier_limit(sum: f32, n: usize) -> f32 {
    OUTLIER_FACTOR * (sum / n as f32)
}

/// Below this a group counts as zero, and no step is smaller than a 127th of it: the guard of rule 2.
const AMAX_MIN: f32 = 127.0 * f32::MIN_POSITIVE;

/// The codes and the scale of 32 activations: `x[i]` is about `scale * codes[i]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    /// The codes, -32512..=32512. No code has the low byte -128: see [`low_byte`].
    pub codes: [i16; GROUP],
    /// The step, NaN for a group with a NaN or an infinity.
    pub scale: f32,
}

impl Group {
    /// The sum of the codes.
    #[must_use]
    pub fn sum(&self) -> i32 {
        self.codes.iter().map(|&q| i32::from(q)).sum()
    }
}

/// The low byte of a code: `code - 256 * high_byte(code)`, within -127..=127 for the codes of this crate.
#[must_use]
pub fn low_byte(code: i16) -> i8 {
    code as i8
}

/// The high byte of a code, 0 for codes within -127..=127.
#[must_use]
pub fn high_byte(code: i16) -> i8 {
    ((i32::from(code) + 128) >> 8) as i8
}

/// Quantizes one group: the reference for every faster quantizer.
///
/// `limit` is the magnitude beyond which an input is an outlier, [`Precision::limit`] of its row. The rule is exact to the
/// bit. With `amax = max |x|`, `inner` the largest magnitude that is not above `limit`, or 0, and every operation in f32,
/// rounded to nearest even:
///
/// 1. some `x` is NaN or infinite: `scale = NaN` and codes 0. Every output that uses the group is NaN, as it would be
///    without quantization.
/// 2. `amax < 127 * f32::MIN_POSITIVE` (1.5e-36): `scale = 0` and codes 0.
/// 3. else `reach = max(inner, amax / 256, 127 * f32::MIN_POSITIVE)`, `scale = reach / 127`, `inv = 127 / reach`,
///    `code = round_ties_even(x * inv)`. A code whose low byte would be -128 is one larger instead.
///
/// So `x` is `scale * code` to within `scale / 2` and a rounding error, and to within `1.5 * scale` where the low byte was
/// moved.
///
/// Rule 2 and the last term of rule 3 keep `scale` and `inv` normal numbers, so that the result does not depend on whether
/// the processor flushes subnormals. Codes stay within -32512..=32512, since `|x * inv|` is at most `127 * 256` with two
/// roundings, and inputs up to `inner` get codes within -127..=127. -128 never is a byte of a code, so that negation, and
/// with it the sign trick of some dot-product instructions, is safe.
///
/// ```
/// let mut x = [0.0; 32];
/// x[0] = -254.0;
/// x[1] = 3.0;
/// let eight_bits = halfbyte_q8::quantize_group(&x, f32::INFINITY);
/// assert_eq!((eight_bits.codes[0], eight_bits.codes[1], eight_bits.scale), (-127, 2, 2.0));
/// // -254 is an outlier: the step is that of 3.
/// let outlier = halfbyte_q8::quantize_group(&x, 100.0);
/// assert_eq!((outlier.codes[0], outlier.codes[1], outlier.scale), (-10753, 127, 3.0 / 127.0));
/// ```
#[must_use]
pub fn quantize_group(x: &[f32; GROUP], limit: f32) -> Group {
    // The bits of |x| as integers order like the numbers, with infinity and the NaNs on top:
    // a maximum that does not lose a NaN, and vectorises.
    let amax = f32::from_bits(x.iter().fold(0, |m, v| m.max(v.abs().to_bits())));
    if !amax.is_finite() {
        return Group { codes: [0; GROUP], scale: f32::NAN };
    }
    if amax < AMAX_MIN {
        return Group { codes: [0; GROUP], scale: 0.0 };
    }
    let inner = |v: f32| if v.abs() > limit { 0.0 } else { v.abs() };
    let inner = x.iter().fold(0.0f32, |m, &v| m.max(inner(v)));
    let reach = inner.max(amax / 256.0).max(AMAX_MIN);
    let inv = 127.0 / reach;
    let codes = x.map(|v| {
        let code = round_ties_even(v * inv) as i16;
        code + i16::from(low_byte(code) == i8::MIN)
    });
    Group { codes, scale: reach / 127.0 }
}

/// `v.round_ties_even()` for `|v| < 2^22`, to an integer. At 1.5 * 2^23 the spacing of f32 is 1, so
/// the addition rounds; the low bits of the sum are the result. Unlike the method it needs no libm
/// call on plain x86-64.
fn round_ties_even(v: f32) -> i32 {
    const SHIFT: f32 = 12_582_912.0;
    (v + SHIFT).to_bits().wrapping_sub(SHIFT.to_bits()) as i32
}
