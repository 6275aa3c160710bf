//! What a panel holds: sixteen rows, row = lane, one unit of groups after the other.
//!
//! ```text
//! panel   unit 0 | unit 1 | ...                         whole cache lines, in the order they are read
//! unit    parameters | codes of group 0 | codes of group 1 | ...
//!
//!         parameters                          codes of a group, 4 bits           codes of a group, 8 bits
//! Q4_0    2 x 16 f16 scales      (1 line)     4 lines; lane r of line j has      8 lines; lane r of line j has
//! Q8_0    2 x 16 f16 scales      (1 line)     inputs 4 j .. 4 j + 4 of row r     inputs 4 j .. 4 j + 4 of row r
//! Q4_1    2 x 16 f16 scales,                  in the low nibbles of its bytes
//!         2 x 16 f16 minima      (2 lines)    and 16 inputs on in the high ones
//! affine  scales, then biases, sixteen rows
//!         after each other, as stored
//! others  f32 scales of a group, or of its                                      as above
//!         halves, then minima; then those
//!         of the next group
//! ```
//!
//! A unit is two groups of 32 inputs, or for affine groups of 128 inputs the four that share parameters, so that
//! parameters of 16 bits fill lines too. A row's last unit has one group if the number of groups is odd. The
//! bytes are as many as a file's, but for sixteen rows at the end of the matrix and half a line there. Q4_K's panels are
//! those of affine groups with f32 parameters, 6 bits a weight; the others, whose codes have more than 4 bits or stand for
//! levels of 8 bits, take 9 to 12.

use crate::formats::{Affine, Parameters};
use crate::scratch::Line;
use crate::simd::{LANES, Simd};

/// How a kernel reads panels of one format.
pub(crate) trait PanelFormat: Copy + Send + Sync {
    /// Lines of codes a group: 4 for 4-bit codes, 8 for 8-bit ones.
    const CODE_LINES: usize;
    /// What 4-bit codes are counted from.
    const ZERO_POINT: i32;
    /// Whether groups have a minimum besides the scale.
    const MIN: bool;

    /// Groups of 32 in a unit: 2 or 4.
    fn unit_groups(&self) -> usize;
    /// Lines of parameters that a unit starts with.
    fn parameter_lines(&self) -> usize;
    /// The scales of group `k` of the unit.
    fn scales<S: Simd>(&self, s: S, unit: &[Line], k: usize) -> S::F32;
    /// The minima of group `k` of the unit; meaningless without [`Self::MIN`].
    fn minima<S: Simd>(&self, s: S, unit: &[Line], k: usize) -> S::F32;

    /// Whether each half of a group, 16 inputs, has a scale and a minimum of its own. Only 8-bit codes may.
    const HALVES: bool = false;

    /// The scales of the second half of group `k`, with [`Self::HALVES`].
    #[inline(always)]
    fn second_scales<S: Simd>(&self, s: S, unit: &[Line], k: usize) -> S::F32 {
        self.scales(s, unit, k)
    }

    /// The minima of the second half of group `k`, with [`Self::HALVES`].
    #[inline(always)]
    fn second_minima<S: Simd>(&self, s: S, unit: &[Line], k: usize) -> S::F32 {
        self.minima(s, unit, k)
    }

    /// Lines of a whole unit.
    #[inline(always)]
    fn unit_lines(&self) -> usize {
        self.parameter_lines() + self.unit_groups() * Self::CODE_LINES
    }

    /// Lines of a panel of `groups` groups a row.
    #[inline(always)]
    fn panel_lines(&self, groups: usize) -> usize {
        groups.div_ceil(self.unit_groups()) * self.parameter_lines() + groups * Self::CODE_LINES
    }
}

/// Sixteen half-precision numbers, the `i`-th such vector from the start of `lines`.
#[inline(always)]
fn halves<S: Simd>(s: S, lines: &[Line], i: usize) -> S::F32 {
    let halves: &[u16] = bytemuck::cast_slice(lines);
    let halves = &halves[LANES * i..][..LANES];
    // SAFETY: `halves` are 16 half-precision numbers.
    unsafe { s.load_f16(halves.as_ptr()) }
}

/// Formats of blocks: f16 scales, with `MIN` f16 minima after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockPanel<const CODE_LINES: usize, const ZERO_POINT: i32, const MIN: bool>;

/// Panels of Q8_0.
pub(crate) type Q8_0Panel = BlockPanel<8, 0, false>;
/// Panels of Q4_0.
pub(crate) type Q4_0Panel = BlockPanel<4, 8, false>;
/// Panels of Q4_1.
pub(crate) type Q4_1Panel = BlockPanel<4, 0, true>;

impl<const CODE_LINES: usize, const ZERO_POINT: i32, const MIN: bool> PanelFormat
    for BlockPanel<CODE_LINES, ZERO_POINT, MIN>
{
    const CODE_LINES: usize = CODE_LINES;
    const ZERO_POINT: i32 = ZERO_POINT;
    const MIN: bool = MIN;

    #[inline(always)]
    fn unit_groups(&self) -> usize {
        2
    }
    #[inline(always)]
    fn parameter_lines(&self) -> usize {
        1 + usize::from(MIN)
    }
    #[inline(always)]
    fn scales<S: Simd>(&self, s: S, unit: &[Line], k: usize) -> S::F32 {
        halves(s, &unit[..1], k)
    }
    #[inline(always)]
    fn minima<S: Simd>(&self, s: S, unit: &[Line], k: usize) -> S::F32 {
        if MIN { halves(s, &unit[1..2], k) } else { s.splat(0.0) }
    }
}

/// Formats with f32 parameters for each group, or with `HALVES` for each half, in 8-bit codes. A line has sixteen
/// parameters: the scales of a group, then, with `MIN`, its minima.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupPanel<const HALVES: bool, const MIN: bool> {}

/// Panels of Q5_0, IQ4_NL, IQ4_XS and MXFP4.
pub(crate) type BytesPanel = GroupPanel<false, false>;
/// Panels of Q5_1 and Q5_K.
pub(crate) type BytesMinPanel = GroupPanel<false, true>;
/// Panels of Q3_K, Q6_K and NVFP4.
pub(crate) type HalvesPanel = GroupPanel<true, false>;
/// Panels of Q2_K.
pub(crate) type HalvesMinPanel = GroupPanel<true, true>;

impl<const HALVES: bool, const MIN: bool> GroupPanel<HALVES, MIN> {
    /// Lines of scales of a group.
    const SCALES: usize = 1 + HALVES as usize;
    /// Lines of parameters of a group.
    const PARAMETERS: usize = Self::SCALES * (1 + MIN as usize);

    /// Sixteen parameters: line `line` of group `k`.
    #[inline(always)]
    fn parameters<S: Simd>(s: S, unit: &[Line], k: usize, line: usize) -> S::F32 {
        s.load_slice(bytemuck::cast_slice(&unit[k * Self::PARAMETERS + line].0))
    }
}

impl<const HALVES: bool, const MIN: bool> PanelFormat for GroupPanel<HALVES, MIN> {
    const CODE_LINES: usize = 8;
    const ZERO_POINT: i32 = 0;
    const MIN: bool = MIN;
    const HALVES: bool = HALVES;

    #[inline(always)]
    fn unit_groups(&self) -> usize {
        2
    }
    #[inline(always)]
    fn parameter_lines(&self) -> usize {
        2 * Self::PARAMETERS
    }
    #[inline(always)]
    fn scales<S: Simd>(&self, s: S, unit: &[Line], k: usize) -> S::F32 {
        Self::parameters(s, unit, k, 0)
    }
    #[inline(always)]
    fn minima<S: Simd>(&self, s: S, unit: &[Line], k: usize) -> S::F32 {
        if MIN { Self::parameters(s, unit, k, Self::SCALES) } else { s.splat(0.0) }
    }
    #[inline(always)]
    fn second_scales<S: Simd>(&self, s: S, unit: &[Line], k: usize) -> S::F32 {
        Self::parameters(s, unit, k, usize::from(HALVES))
    }
    #[inline(always)]
    fn second_minima<S: Simd>(&self, s: S, unit: &[Line], k: usize) -> S::F32 {
        if MIN { Self::parameters(s, unit, k, Self::SCALES + usize::from(HALVES)) } else { s.splat(0.0) }
    }
}

/// A panel format whose groups are written one weight after the other.
pub(crate) trait WriteGroups: PanelFormat {
    /// Writes the parameters of lane `lane` of group `k`.
    fn write_parameters(&self, unit: &mut [Line], k: usize, lane: usize, scales: [f32; 2], minima: [f32; 2]);
}

impl<const HALVES: bool, const MIN: bool> WriteGroups for GroupPanel<HALVES, MIN> {
    fn write_parameters(&self, unit: &mut [Line], k: usize, lane: usize, scales: [f32; 2], minima: [f32; 2]) {
        let lines = &mut unit[k * Self::PARAMETERS..][..Self::PARAMETERS];
        let values = scales[..Self::SCALES].iter().chain(&minima[..Self::SCALES]);
        for (line, value) in lines.iter_mut().zip(values) {
            line.0[lane] = value.to_bits();
        }
    }
}

/// The type of scales or biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParameterType {
    F32,
    F16,
    Bf16,
}

impl ParameterType {
    pub(crate) fn of(parameters: Parameters<'_>) -> Self {
        match parameters {
            Parameters::F32(_) => Self::F32,
            Parameters::F16(_) => Self::F16,
            Parameters::Bf16(_) => Self::Bf16,
        }
    }

    /// Bytes of one.
    #[inline(always)]
    pub(crate) fn size(self) -> usize {
        if self == Self::F32 { 4 } else { 2 }
    }

    /// Sixteen of them from byte `at` of `lines` on.
    #[inline(always)]
    fn load<S: Simd>(self, s: S, lines: &[Line], at: usize) -> S::F32 {
        let bytes: &[u8] = bytemuck::cast_slice(lines);
        let bytes = &bytes[at..][..LANES * self.size()];
        match self {
            // SAFETY: `bytes` are 16 of them.
            Self::F32 => unsafe { s.load(bytes.as_ptr().cast()) },
            // SAFETY: `bytes` are 16 of them.
            Self::F16 => unsafe { s.load_f16(bytes.as_ptr().cast()) },
            // SAFETY: `bytes` are 16 of them.
            Self::Bf16 => unsafe { s.load_bf16(bytes.as_ptr().cast()) },
        }
    }
}

/// MLX affine 4-bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AffinePanel {
    /// Groups of 32 that share parameters: 1, 2 or 4.
    pub(crate) share: usize,
    pub(crate) scales: ParameterType,
    pub(crate) biases: ParameterType,
}

impl AffinePanel {
    pub(crate) fn of(affine: &Affine<'_>) -> Self {
        Self {
            share: affine.group / 32,
            scales: ParameterType::of(affine.scales),
            biases: ParameterType::of(affine.biases),
        }
    }

    /// Sets of parameters in a unit.
    #[inline(always)]
    fn sets(&self) -> usize {
        self.unit_groups() / self.share
    }

    /// Where in a unit the scales of group `k` begin, in bytes.
    #[inline(always)]
    pub(crate) fn scales_at(&self, k: usize) -> usize {
        k / self.share * LANES * self.scales.size()
    }

    /// Where in a unit the biases of group `k` begin, in bytes.
    #[inline(always)]
    pub(crate) fn biases_at(&self, k: usize) -> usize {
        (self.sets() * self.scales.size() + k / self.share * self.biases.size()) * LANES
    }
}

impl PanelFormat for AffinePanel {
    const CODE_LINES: usize = 4;
    const ZERO_POINT: i32 = 0;
    const MIN: bool = true;

    #[inline(always)]
    fn unit_groups(&self) -> usize {
        self.share.max(2)
    }
    #[inline(always)]
    fn parameter_lines(&self) -> usize {
        (self.sets() * LANES * (self.scales.size() + self.biases.size())).div_ceil(size_of::<Line>())
    }
    #[inline(always)]
    fn scales<S: Simd>(&self, s: S, unit: &[Line], k: usize) -> S::F32 {
        self.scales.load(s, unit, self.scales_at(k))
    }
    #[inline(always)]
    fn minima<S: Simd>(&self, s: S, unit: &[Line], k: usize) -> S::F32 {
        self.biases.load(s, unit, self.biases_at(k))
    }
}

impl WriteGroups for AffinePanel {
    fn write_parameters(&self, unit: &mut [Line], k: usize, lane: usize, scales: [f32; 2], minima: [f32; 2]) {
        debug_assert_eq!((self.scales, self.biases), (ParameterType::F32, ParameterType::F32));
        let (scales_at, biases_at) = (self.scales_at(k), self.biases_at(k));
        let words: &mut [u32] = bytemuck::cast_slice_mut(unit);
        words[scales_at / 4 + lane] = scales[0].to_bits();
        words[biases_at / 4 + lane] = minima[0].to_bits();
    }
}
