//! Stored and packed rows to f32 rows.

use super::group::{eight_bits, eight_bits_and_min, four_bits, four_bits_and_min};
use super::source::{PackedFloats, Weight};
use crate::matrix::Matrix;
use crate::packed::{PanelKind, Panels, UseFloatPanels, UseInt8Panels};
use crate::simd::{Kernel, LANES, Simd};

/// Writes inputs `from..from + out.len()` of a row as f32: all of them, or blocks of 256, of which `from` is a multiple.
pub(crate) struct DecodeRow<'a, 'o> {
    pub(crate) matrix: Matrix<'a>,
    pub(crate) row: usize,
    pub(crate) from: usize,
    pub(crate) out: &'o mut [f32],
}

impl Kernel for DecodeRow<'_, '_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.matrix.weights().decode(s, self.matrix.cols(), self.row, self.from, self.out);
    }
}

impl Panels {
    /// Decodes inputs from `from` on of row `row`, as [`DecodeRow`] says.
    #[inline(always)]
    pub(crate) fn decode<S: Simd>(&self, s: S, row: usize, from: usize, out: &mut [f32]) {
        if self.kind().floats(DecodeFloats { panels: self, row, from, out: &mut *out }).is_none() {
            self.kind().int8(DecodeCodes { s, panels: self, row, from, out });
        }
    }
}

/// Widens a part of a row of packed floats.
struct DecodeFloats<'a> {
    panels: &'a Panels,
    row: usize,
    from: usize,
    out: &'a mut [f32],
}

impl UseFloatPanels for DecodeFloats<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Weight>(self) {
        let panel = PackedFloats::<W>::new(self.panels).panel(self.row / LANES);
        for (y, numbers) in self.out.iter_mut().zip(panel[self.from * LANES..].chunks_exact(LANES)) {
            *y = numbers[self.row % LANES].into();
        }
    }
}

/// Decodes a part of a row of packed codes.
struct DecodeCodes<'a, S> {
    s: S,
    panels: &'a Panels,
    row: usize,
    from: usize,
    out: &'a mut [f32],
}

impl<S: Simd> UseInt8Panels for DecodeCodes<'_, S> {
    type Output = ();

    #[inline(always)]
    fn run<F: PanelKind>(self, format: F) {
        let Self { s, panels, row, from, out } = self;
        let panel_lines = format.panel_lines(panels.cols() / 32);
        let (panel, lane) = (row / LANES, row % LANES);
        let panel = &panels.lines()[panel * panel_lines..][..panel_lines];
        let inputs = 32 * format.unit_groups();
        let units = panel.chunks(format.unit_lines()).skip(from / inputs).zip(out.chunks_mut(inputs));
        for (unit, y) in units {
            for (k, y) in y.chunks_exact_mut(32).enumerate() {
                let codes = &unit[format.parameter_lines() + F::CODE_LINES * k..][..F::CODE_LINES];
                let d = s.to_array(format.scales(s, unit, k))[lane];
                if F::CODE_LINES == 8 {
                    let codes: [u32; 8] = core::array::from_fn(|j| codes[j].0[lane]);
                    let codes = bytemuck::cast_ref(&codes);
                    let one = |v| s.to_array(v)[lane];
                    let d = [d, one(format.second_scales(s, unit, k))];
                    if F::MIN {
                        let m = [one(format.minima(s, unit, k)), one(format.second_minima(s, unit, k))];
                        eight_bits_and_min(s, d, m, codes, y);
                    } else {
                        eight_bits(s, d, codes, y);
                    }
                    continue;
                }
                let codes: [u32; 4] = core::array::from_fn(|j| codes[j].0[lane]);
                if F::MIN {
                    let m = s.to_array(format.minima(s, unit, k))[lane];
                    four_bits_and_min(s, d, m, bytemuck::cast_ref(&codes), y);
                } else {
                    four_bits(s, d, bytemuck::cast_ref(&codes), y);
                }
            }
        }
    }
}
