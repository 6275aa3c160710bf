//! Panels of floats: for every input sixteen numbers, one a row, with the bits that the file has.
//!
//! ```text
//! F32         input 0: 16 rows | input 1: 16 rows | ...      a cache line each
//! F16, BF16   input 0: 16 rows | input 1: 16 rows | ...      half a line each; an odd number ends with half a line unused
//! ```

use super::BLOCK;
use super::source::{FloatRows, Weight};
use crate::Context;
use crate::scratch::Line;
use crate::simd::{Kernel, LANES, Simd};

/// Fills `panel` with number `p` of the panels of `rows`.
pub(crate) fn write_panel<W: Weight>(ctx: Context<'_>, rows: FloatRows<'_, W>, p: usize, panel: &mut [Line]) {
    ctx.isa.dispatch(WritePanel { rows, p, panel });
}

struct WritePanel<'a, W> {
    rows: FloatRows<'a, W>,
    p: usize,
    panel: &'a mut [Line],
}

impl<W: Weight> Kernel for WritePanel<'_, W> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let cols = self.rows.cols;
        let numbers: &mut [W] = bytemuck::cast_slice_mut(self.panel);
        for from in (0..cols).step_by(BLOCK) {
            let to = cols.min(from + BLOCK);
            self.rows.pack(s, self.p, from..to, &mut numbers[from * LANES..to * LANES]);
        }
    }
}
