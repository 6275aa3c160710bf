//! Which tile a product takes: a host-side count of waves.
//!
//! A grid runs in *waves*: the blocks that fit on all multiprocessors at once. 176 tiles on a GPU that holds 140 are two
//! waves, and the second one is three quarters empty; smaller tiles may fill it. A smaller tile moves more bytes for
//! every multiplication, though, so it is slower per output. The estimate below weighs the two:
//!
//! ```text
//! full  = sms * blocks_per_sm                     blocks in a full wave
//! deep  = (blocks / full) * blocks_per_sm         blocks, one after the other, that a multiprocessor runs in full waves
//! last  = ceil((blocks % full) / sms)             blocks side by side on the busiest multiprocessor in the last wave
//! cost  = (deep + last / filled(last)) * rows * cols / rate
//! ```
//!
//! Blocks on one multiprocessor share its tensor cores, so a full wave takes as long as its blocks one after the other.
//! `filled` is the part of the tensor cores' rate that `last` blocks reach: with fewer than `blocks_per_sm` no other block
//! computes while one waits for memory. `rate` is the tile's rate beside the largest tile's, from the bytes that it moves.
//! The depth K is common to all tiles and cancels. The unit is outputs, scaled: only the order counts.
//!
//! Every tile gives a row the same bits, so the choice is free to differ from GPU to GPU.

use crate::Error;

/// A tile that a kernel was compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// Rows of the input (tokens) a block takes.
    pub rows: u32,
    /// Outputs a block takes.
    pub cols: u32,
}

/// A tile and how many of its blocks one multiprocessor holds, by its registers, threads and shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TileOption {
    /// The tile.
    pub tile: Tile,
    /// Blocks resident on one multiprocessor, at least one.
    pub blocks_per_sm: u32,
}

/// What a tile costs on a GPU: the terms of the estimate, for a table or a test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The tile.
    pub tile: Tile,
    /// Blocks of the grid.
    pub blocks: u64,
    /// Waves, as a fraction: 2.5 is two full ones and a half-empty one.
    pub waves: f64,
    /// The estimate, in outputs; smaller is better, and only ratios mean something.
    pub cost: f64,
}

impl Tile {
    /// The rate of this tile beside an infinite one's when loads are part of the price: a tile of `r x c` loads `r + c`
    /// vectors for `r * c` dot products. 128x128 gets 0.8; half of each gets two thirds.
    fn rate(self) -> f64 {
        // The price of a loaded vector in dot products: a guess that has not been measured on a GPU. It puts the knee at 64
        // rows, below which a block loads more weights than it works on.
        const LOAD: f64 = 16.0;
        let (rows, cols) = (f64::from(self.rows), f64::from(self.cols));
        rows * cols / (rows * cols + LOAD * (rows + cols))
    }
}

/// The part of the tensor cores' rate that `running` blocks of `resident` reach together.
fn filled(running: u64, resident: u32) -> f64 {
    let share = running as f64 / f64::from(resident);
    // A guess, too: one block alone of two reaches three quarters, as its warps overlap loads and products.
    0.5 + 0.5 * share.min(1.0)
}

/// Estimates a product of `rows` x `cols` outputs on `sms` multiprocessors with one tile.
#[must_use]
pub fn estimate(rows: u32, cols: u32, sms: u32, option: TileOption) -> Estimate {
    let TileOption { tile, blocks_per_sm } = option;
    let sms = u64::from(sms.max(1));
    let resident = blocks_per_sm.max(1);
    let blocks = u64::from(rows.div_ceil(tile.rows)) * u64::from(cols.div_ceil(tile.cols));
    let full = sms * u64::from(resident);
    let deep = blocks / full * u64::from(resident);
    let last = (blocks % full).div_ceil(sms);
    let tail = if last == 0 { 0.0 } else { last as f64 / filled(last, resident) };
    let outputs = f64::from(tile.rows) * f64::from(tile.cols);
    Estimate {
        tile,
        blocks,
        waves: blocks as f64 / full as f64,
        cost: (deep as f64 + tail) * outputs / tile.rate(),
    }
}

/// The cheapest tile for a product of `rows` x `cols` outputs; of equals the first.
///
/// # Errors
/// [`Error::NoTile`] when `options` is empty.
pub fn choose(rows: u32, cols: u32, sms: u32, options: &[TileOption]) -> Result<Estimate, Error> {
    options
        .iter()
        .map(|&option| estimate(rows, cols, sms, option))
        .min_by(|a, b| a.cost.total_cmp(&b.cost))
        .ok_or(Error::NoTile { rows, cols })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    const LARGE: TileOption = TileOption { tile: Tile { rows: 128, cols: 128 }, blocks_per_sm: 2 };
    const SMALL: TileOption = TileOption { tile: Tile { rows: 64, cols: 128 }, blocks_per_sm: 3 };
    const FLAT: TileOption = TileOption { tile: Tile { rows: 16, cols: 128 }, blocks_per_sm: 4 };
    const ALL: [TileOption; 3] = [LARGE, SMALL, FLAT];

    // Two gradients of a training step on a card of 70 multiprocessors that hold two blocks each: the waves that the authors
    // of that step had counted by hand.
    #[test]
    fn waves_are_those_that_were_counted_by_hand() {
        let w13 = estimate(5632, 1024, 70, LARGE);
        assert_eq!((w13.blocks, format!("{:.1}", w13.waves)), (352, "2.5".into()));
        let w2 = estimate(1024, 2816, 70, LARGE);
        assert_eq!((w2.blocks, format!("{:.2}", w2.waves)), (176, "1.26".into()));
    }

    // 1.26 waves of the large tile: the tail of 36 blocks runs one a multiprocessor. By the formula, with tiles of
    // 16384 outputs at 0.8 of the rate: (2 + 1 / 0.75) * 16384 / 0.8 = 68267.
    #[test]
    fn the_estimate_is_the_formulas() {
        let estimate = estimate(1024, 2816, 70, LARGE);
        assert!((estimate.cost - 68_266.67).abs() < 0.1, "{}", estimate.cost);
    }

    #[test]
    fn a_full_wave_prefers_the_large_tile() {
        // 2048 x 2048 is 256 large tiles: 132 multiprocessors of two hold 264, one wave.
        for (sms, rows, cols) in
            [(132, 2048, 2048), (108, 4096, 11008), (170, 4096, 5120), (128, 4096, 4096), (82, 4096, 4096)]
        {
            assert_eq!(choose(rows, cols, sms, &ALL).unwrap().tile, LARGE.tile, "{rows}x{cols} on {sms}");
        }
    }

    #[test]
    fn an_almost_empty_last_wave_prefers_a_smaller_tile() {
        // 1024 x 2560 on 70: 160 large tiles are a wave and a seventh. 320 small ones are 1.5 waves of 210, and the
        // half wave is two a multiprocessor of 8192 outputs.
        let (large, small) = (estimate(1024, 2560, 70, LARGE), estimate(1024, 2560, 70, SMALL));
        assert!(small.cost < large.cost, "{small:?} {large:?}");
    }

    #[test]
    fn few_rows_take_the_flat_tile_and_never_pay_for_empty_ones() {
        for sms in [70, 82, 108, 128, 132, 170] {
            for rows in [1, 8, 16] {
                assert_eq!(choose(rows, 5120, sms, &ALL).unwrap().tile, FLAT.tile, "{rows} rows on {sms}");
            }
        }
    }

    #[test]
    fn no_tile_is_an_error() {
        assert!(matches!(choose(1, 1, 1, &[]), Err(Error::NoTile { rows: 1, cols: 1 })));
    }
}
