//! From blocks of any layout to panels, a group of a row at a time.

use super::pack::PanelRows;
use super::panel::WriteGroups;
use crate::formats::{Group, GroupedBlock};
use crate::packed::PanelKind;
use crate::scratch::Line;
use crate::simd::{LANES, Simd};

/// Rows of blocks that become panels of `format`.
///
/// The blocks' type is behind a function, so that kernels are compiled once for each format of panels and not once for each
/// type of blocks.
#[derive(Clone, Copy)]
pub(crate) struct GroupedRows<'a, P> {
    bytes: &'a [u8],
    /// Bytes of a block, groups of 32 in a block, and blocks in a row.
    block: usize,
    groups: usize,
    row: usize,
    group: fn(&[u8], usize) -> Group,
    format: P,
}

impl<'a, P> GroupedRows<'a, P> {
    pub(crate) fn new<B: GroupedBlock<Panel = P>>(blocks: &'a [B], cols: usize) -> Self {
        Self {
            bytes: bytemuck::cast_slice(blocks),
            block: size_of::<B>(),
            groups: B::WEIGHTS / 32,
            row: cols / B::WEIGHTS,
            group: |bytes, g| bytemuck::from_bytes::<B>(bytes).group(g),
            format: B::PANEL,
        }
    }
}

impl<P: PanelKind + WriteGroups> PanelRows for GroupedRows<'_, P> {
    type Format = P;

    #[inline(always)]
    fn format(&self) -> P {
        self.format
    }

    #[inline(always)]
    fn prefetch<S: Simd>(&self, _: S, _: usize, _: usize) {}

    #[inline(always)]
    fn pack_group<S: Simd>(
        &self,
        _: S,
        first: usize,
        valid: usize,
        group: usize,
        k: usize,
        unit: &mut [Line],
    ) {
        write_group(self, first, valid, group, k, unit);
    }
}

/// Writes a group of each row. It uses no vectors, so it is not compiled for each instruction set.
#[inline(never)]
fn write_group<P: PanelKind + WriteGroups>(
    rows: &GroupedRows<'_, P>,
    first: usize,
    valid: usize,
    group: usize,
    k: usize,
    unit: &mut [Line],
) {
    let codes = &mut unit[rows.format.parameter_lines() + k * P::CODE_LINES..][..P::CODE_LINES];
    for line in codes.iter_mut() {
        line.0[valid..].fill(0);
    }
    for lane in 0..valid {
        let block = (first + lane) * rows.row + group / rows.groups;
        let Group { codes, scales, minima } =
            (rows.group)(&rows.bytes[block * rows.block..][..rows.block], group % rows.groups);
        let lines = &mut unit[rows.format.parameter_lines() + k * P::CODE_LINES..][..P::CODE_LINES];
        for (j, line) in lines.iter_mut().enumerate() {
            line.0[lane] = u32::from_ne_bytes(core::array::from_fn(|i| {
                let low = codes[4 * j + i].cast_unsigned();
                if P::CODE_LINES == 4 { low | codes[4 * j + i + LANES].cast_unsigned() << 4 } else { low }
            }));
        }
        rows.format.write_parameters(unit, k, lane, scales, minima);
    }
}
