//! The sixteen equidistant levels that a format can store for a group.

use std::marker::PhantomData;

use crate::affine::AffineScale;
use crate::rounding::nearest_f16;

/// The levels `scale * code + offset`, codes 0..=15.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Levels {
    pub(super) scale: f64,
    pub(super) offset: f64,
}

/// The sums of a least-squares fit of levels to codes: `aa` is the sum of `a^2`, `ab` that of `a b`, and so on, where `a` is
/// the factor times the codes, `b` the factor times ones and `t` the factor times the targets.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sums {
    pub(super) aa: f64,
    pub(super) ab: f64,
    pub(super) bb: f64,
    pub(super) at: f64,
    pub(super) bt: f64,
}

/// The parameters that a format can store for a group.
pub(super) trait Grid: Copy + Send + Sync {
    /// `levels` rounded to what can be stored; `None` if they are out of range.
    fn store(self, levels: Levels) -> Option<Levels>;

    /// The levels to try for a group, before rounding to what can be stored.
    fn tries(self, target: &[f64]) -> Vec<Levels>;

    /// The levels of least error for given codes, before rounding to what can be stored; `None` if the codes do not
    /// determine them.
    fn fit(self, sums: Sums) -> Option<Levels>;
}

/// Q4_0: an f16 scale of either sign, level 8 at zero.
#[derive(Debug, Clone, Copy)]
pub(super) struct Symmetric;

/// The distances from zero, in steps, where the tries put the biggest weight; beyond 8 the weight is clipped.
const PLACES: [f64; 12] = [6.5, 6.75, 7.0, 7.25, 7.5, 7.75, 8.0, 8.25, 8.5, 8.75, 9.0, 9.25];

impl Grid for Symmetric {
    fn store(self, levels: Levels) -> Option<Levels> {
        let scale = nearest_f16(levels.scale);
        scale.is_finite().then(|| Levels { scale: scale.to_f64(), offset: -8.0 * scale.to_f64() })
    }

    fn tries(self, target: &[f64]) -> Vec<Levels> {
        let biggest = target.iter().fold(0.0f64, |m, t| m.max(t.abs()));
        let scales = PLACES.iter().flat_map(|p| [biggest / p, -biggest / p]);
        scales.map(|scale| Levels { scale, offset: -8.0 * scale }).collect()
    }

    fn fit(self, s: Sums) -> Option<Levels> {
        // `a - 8 b` belongs to the signed codes.
        let qq = s.aa - 16.0 * s.ab + 64.0 * s.bb;
        let scale = (s.at - 8.0 * s.bt) / qq;
        scale.is_finite().then_some(Levels { scale, offset: -8.0 * scale })
    }
}

/// Q4_1 and MLX affine: scale and offset in the type `S`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Affine<S>(PhantomData<S>);

impl<S> Affine<S> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

/// How far the tries move each end of the range inwards, as a share of the range.
const INSETS: [f64; 4] = [-0.02, 0.03, 0.08, 0.13];

impl<S: AffineScale> Grid for Affine<S> {
    fn store(self, levels: Levels) -> Option<Levels> {
        let [scale, offset] = [levels.scale, levels.offset].map(|v| f64::from(S::from_f64(v).to_f32()));
        (scale.is_finite() && scale >= 0.0 && offset.is_finite()).then_some(Levels { scale, offset })
    }

    fn tries(self, target: &[f64]) -> Vec<Levels> {
        let (low, high) =
            target.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), &t| (l.min(t), h.max(t)));
        let range = high - low;
        let ends = INSETS.iter().flat_map(|a| INSETS.map(|b| (low + a * range, high - b * range)));
        ends.map(|(low, high)| Levels { scale: (high - low) / 15.0, offset: low }).collect()
    }

    fn fit(self, s: Sums) -> Option<Levels> {
        let determinant = s.aa * s.bb - s.ab * s.ab;
        // With equal codes the determinant is 0 except for rounding.
        if determinant <= 1e-12 * s.aa * s.bb {
            return None;
        }
        let scale = (s.at * s.bb - s.bt * s.ab) / determinant;
        let offset = (s.bt * s.aa - s.at * s.ab) / determinant;
        (scale > 0.0).then_some(Levels { scale, offset })
    }
}
