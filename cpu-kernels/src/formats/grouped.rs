//! Blocks whose weights are integers of at most 8 bits times a scale: what the int8 tiles need to know of each.

use crate::int8::panel::{
    AffinePanel, BytesMinPanel, BytesPanel, HalvesMinPanel, HalvesPanel, ParameterType,
};
use crate::packed::PanelKind;
use half::f16;
use halfbyte_k_quants::{
    Block, BlockIq4Nl, BlockIq4Xs, BlockMxfp4, BlockNvfp4, BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5_0,
    BlockQ5_1, BlockQ5K, BlockQ6K, FP4_LEVELS, IQ4_LEVELS,
};

/// 32 weights of a row: `w = scale * code + min`, with a scale and a minimum for each half.
///
/// Scales and minima are those of the file, exactly: a product of an f16 and a sub-block's scale fits into f32.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) codes: [i8; 32],
    pub(crate) scales: [f32; 2],
    pub(crate) minima: [f32; 2],
}

/// Blocks that are such groups, one after the other.
pub(crate) trait GroupedBlock: Block {
    /// What their panels look like.
    type Panel: PanelKind;
    /// The panels.
    const PANEL: Self::Panel;

    /// Weights `32 g..32 (g + 1)` of the block.
    fn group(&self, g: usize) -> Group;
}

impl Group {
    /// Codes with one scale and without a minimum.
    fn new(scale: f32, codes: [i8; 32]) -> Self {
        Self { codes, scales: [scale; 2], minima: [0.0; 2] }
    }

    /// Codes that are not negative, with one scale and one minimum.
    fn with_min(scale: f32, min: f32, codes: [u8; 32]) -> Self {
        Self { codes: codes.map(u8::cast_signed), scales: [scale; 2], minima: [min; 2] }
    }
}

/// 32 nibbles: byte `i` has number `i` below number `i + 16`.
fn nibbles(bytes: &[u8]) -> [u8; 32] {
    core::array::from_fn(|i| bytes[i % 16] >> (i / 16 * 4) & 15)
}

/// Code `i` of a group of a K-quant's two-bit part: a half of 128 weights has 32 bytes, whose bit pairs are the groups'.
fn pair(bytes: &[u8; 64], g: usize, i: usize) -> u8 {
    bytes[g / 4 * 32 + i] >> (g % 4 * 2) & 3
}

/// Nibbles of a group of Q4_K and Q5_K: two groups share 32 bytes.
fn run_of_nibbles(codes: &[u8; 128], g: usize) -> [u8; 32] {
    core::array::from_fn(|i| codes[g / 2 * 32 + i] >> (g % 2 * 4) & 15)
}

/// The scale and the minimum of a group of Q4_K and Q5_K.
fn scale_and_min([d, dmin]: [f16; 2], (sc, m): (u8, u8)) -> (f32, f32) {
    (d.to_f32() * f32::from(sc), -(dmin.to_f32() * f32::from(m)))
}

impl GroupedBlock for BlockQ5_0 {
    type Panel = BytesPanel;
    const PANEL: Self::Panel = BytesPanel {};

    fn group(&self, _: usize) -> Group {
        Group::new(self.scale.to_f32(), self.codes().map(|q| q.cast_signed() - 16))
    }
}

impl GroupedBlock for BlockQ5_1 {
    type Panel = BytesMinPanel;
    const PANEL: Self::Panel = BytesMinPanel {};

    fn group(&self, _: usize) -> Group {
        Group::with_min(self.scale.to_f32(), self.min.to_f32(), self.codes())
    }
}

impl GroupedBlock for BlockQ2K {
    type Panel = HalvesMinPanel;
    const PANEL: Self::Panel = HalvesMinPanel {};

    fn group(&self, g: usize) -> Group {
        let bytes = [self.scales[2 * g], self.scales[2 * g + 1]];
        Group {
            codes: core::array::from_fn(|i| pair(&self.codes, g, i).cast_signed()),
            scales: bytes.map(|b| self.d.to_f32() * f32::from(b & 15)),
            minima: bytes.map(|b| -(self.dmin.to_f32() * f32::from(b >> 4))),
        }
    }
}

impl GroupedBlock for BlockQ3K {
    type Panel = HalvesPanel;
    const PANEL: Self::Panel = HalvesPanel {};

    fn group(&self, g: usize) -> Group {
        let code = |i: usize| (pair(&self.low, g, i) | (self.high[i] >> g & 1) << 2).cast_signed() - 4;
        let scales = [0, 1].map(|half| self.d.to_f32() * f32::from(self.scale(2 * g + half)));
        Group { codes: core::array::from_fn(code), scales, minima: [0.0; 2] }
    }
}

impl GroupedBlock for BlockQ4K {
    type Panel = AffinePanel;
    const PANEL: Self::Panel =
        AffinePanel { share: 1, scales: ParameterType::F32, biases: ParameterType::F32 };

    fn group(&self, g: usize) -> Group {
        let (scale, min) = scale_and_min([self.d, self.dmin], self.scale_min(g));
        Group::with_min(scale, min, run_of_nibbles(&self.codes, g))
    }
}

impl GroupedBlock for BlockQ5K {
    type Panel = BytesMinPanel;
    const PANEL: Self::Panel = BytesMinPanel {};

    fn group(&self, g: usize) -> Group {
        let (scale, min) = scale_and_min([self.d, self.dmin], self.scale_min(g));
        let low = run_of_nibbles(&self.codes, g);
        Group::with_min(scale, min, core::array::from_fn(|i| low[i] | (self.high[i] >> g & 1) << 4))
    }
}

impl GroupedBlock for BlockQ6K {
    type Panel = HalvesPanel;
    const PANEL: Self::Panel = HalvesPanel {};

    fn group(&self, g: usize) -> Group {
        // Groups 0 and 1 of a half have the low nibbles of its 64 bytes, groups 2 and 3 the high ones.
        let (bytes, shift) = (&self.low[g / 4 * 64 + g % 2 * 32..][..32], g % 4 / 2 * 4);
        let code = |i: usize| (bytes[i] >> shift & 15 | pair(&self.high, g, i) << 4).cast_signed() - 32;
        let scales = [0, 1].map(|half| self.d.to_f32() * f32::from(self.scales[2 * g + half]));
        Group { codes: core::array::from_fn(code), scales, minima: [0.0; 2] }
    }
}

impl GroupedBlock for BlockIq4Nl {
    type Panel = BytesPanel;
    const PANEL: Self::Panel = BytesPanel {};

    fn group(&self, _: usize) -> Group {
        Group::new(self.scale.to_f32(), nibbles(&self.codes).map(|q| IQ4_LEVELS[usize::from(q)]))
    }
}

impl GroupedBlock for BlockIq4Xs {
    type Panel = BytesPanel;
    const PANEL: Self::Panel = BytesPanel {};

    fn group(&self, g: usize) -> Group {
        let scale = self.d.to_f32() * f32::from(self.scale(g));
        Group::new(scale, nibbles(&self.codes[16 * g..][..16]).map(|q| IQ4_LEVELS[usize::from(q)]))
    }
}

impl GroupedBlock for BlockMxfp4 {
    type Panel = BytesPanel;
    const PANEL: Self::Panel = BytesPanel {};

    fn group(&self, _: usize) -> Group {
        Group::new(self.unit(), nibbles(&self.codes).map(|q| FP4_LEVELS[usize::from(q)]))
    }
}

impl GroupedBlock for BlockNvfp4 {
    type Panel = HalvesPanel;
    const PANEL: Self::Panel = HalvesPanel {};

    fn group(&self, g: usize) -> Group {
        let code = |i: usize| {
            let byte = self.codes[8 * (2 * g + i / 16) + i % 8];
            FP4_LEVELS[usize::from(byte >> (i % 16 / 8 * 4) & 15)]
        };
        let scales = [self.unit(2 * g), self.unit(2 * g + 1)];
        Group { codes: core::array::from_fn(code), scales, minima: [0.0; 2] }
    }
}
