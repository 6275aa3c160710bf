//! The order that barriers give to what the warps of a block did.
//!
//! Time is cut into epochs, one more each time a barrier completes. `before(w, v)` is the last epoch of warp `v` that
//! barriers have put before what warp `w` does now: what `v` did in a later one races with it.

use super::registers::LANES;

/// The first epoch; what lies before a block's start has a lower one.
pub(crate) const FIRST: u32 = 2;

/// The order of a block's warps.
#[derive(Debug, Default)]
pub(crate) struct Order {
    epoch: u32,
    before: Vec<[u32; LANES]>,
    /// The least of each warp's `before`, the warp itself aside.
    floors: Vec<u32>,
}

impl Order {
    /// A new block of `warps` warps.
    pub(crate) fn reset(&mut self, warps: usize) {
        self.epoch = FIRST;
        self.before.clear();
        self.before.resize(warps, [FIRST - 1; LANES]);
        self.floors.clear();
        self.floors.resize(warps, FIRST - 1);
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(crate) fn before(&self, warp: usize, other: usize) -> u32 {
        self.before[warp][other]
    }

    /// The last epoch that is over for a warp as far as all others are concerned.
    pub(crate) fn floor(&self, warp: usize) -> u32 {
        self.floors[warp]
    }

    /// A barrier has completed: all that `arrived` (bits of warps) did comes before what `waited` will do.
    pub(crate) fn synchronise(&mut self, arrived: u32, waited: u32) {
        let warps = self.before.len();
        let all = if warps >= 32 { u32::MAX } else { (1 << warps) - 1 };
        if arrived == all && waited == all {
            self.before.fill([self.epoch; LANES]);
            self.floors.fill(self.epoch);
        } else {
            // Order is transitive: what came before the arriving warps' work comes before the waiting warps', too.
            let mut known = [0; LANES];
            for (v, known) in known.iter_mut().enumerate().take(warps) {
                let seen = (0..warps).filter(|w| arrived >> w & 1 == 1).map(|w| self.before[w][v]);
                *known = if arrived >> v & 1 == 1 { self.epoch } else { seen.max().unwrap_or(0) };
            }
            for w in (0..warps).filter(|w| waited >> w & 1 == 1) {
                for (before, known) in self.before[w].iter_mut().zip(known) {
                    *before = (*before).max(known);
                }
                let others = self.before[w][..warps].iter().enumerate().filter(|&(v, _)| v != w);
                self.floors[w] = others.map(|(_, &epoch)| epoch).min().unwrap_or(self.epoch);
            }
        }
        self.epoch += 1;
    }
}
