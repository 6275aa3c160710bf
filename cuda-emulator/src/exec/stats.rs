//! The counts that a host thread keeps while it runs blocks.

use crate::decode::program::Program;
use crate::launch::LaunchStats;

/// Counts of one launch on one host thread.
#[derive(Debug)]
pub(crate) struct Counters {
    /// Executions of each instruction.
    pub(crate) executed: Vec<u64>,
    /// The counts that need no translation.
    pub(crate) stats: LaunchStats,
}

impl Counters {
    pub(crate) fn new(program: &Program) -> Self {
        Self { executed: vec![0; program.instructions.len()], stats: LaunchStats::default() }
    }

    /// Adds this thread's counts to the launch's.
    pub(crate) fn add_to(&self, program: &Program, total: &mut LaunchStats) {
        for (instruction, &count) in program.instructions.iter().zip(&self.executed) {
            if let (Some(name), true) = (instruction.name, count > 0) {
                total.warp_instructions += count;
                let name = &program.names[name as usize];
                match total.histogram.get_mut(name) {
                    Some(sum) => *sum += count,
                    None => {
                        total.histogram.insert(name.clone(), count);
                    }
                }
                if name.starts_with("mma.") {
                    total.mma += count;
                }
            }
        }
        total.divergent += self.stats.divergent;
        total.global_loaded += self.stats.global_loaded;
        total.global_stored += self.stats.global_stored;
        total.global_sectors += self.stats.global_sectors;
        total.global_accesses += self.stats.global_accesses;
        total.shared_loaded += self.stats.shared_loaded;
        total.shared_stored += self.stats.shared_stored;
        total.bank_conflicts += self.stats.bank_conflicts;
        total.barriers += self.stats.barriers;
    }

    /// Counts a warp's access to global memory: `size` bytes at each address.
    pub(crate) fn global_access(&mut self, addresses: &[u64], size: u64) {
        self.stats.global_accesses += 1;
        // Most often each lane's bytes follow those of the lane before.
        if let [first, .., last] = *addresses
            && addresses.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == size)
        {
            self.stats.global_sectors += (last + size - 1) / 32 - first / 32 + 1;
            return;
        }
        // Sorted already, nearly always.
        let mut sectors = [0u64; 64];
        let mut n = 0;
        for &address in addresses {
            for sector in [address / 32, (address + size - 1) / 32] {
                if n == 0 || sectors[n - 1] != sector {
                    sectors[n] = sector;
                    n += 1;
                }
            }
        }
        let sectors = &mut sectors[..n];
        if !sectors.is_sorted() {
            sectors.sort_unstable();
        }
        self.stats.global_sectors += 1 + sectors.windows(2).filter(|pair| pair[0] != pair[1]).count() as u64;
    }

    /// Counts the bank conflicts of a warp's access to shared memory. Lanes with wide accesses go in turns of 128
    /// bytes; in a turn a bank of four bytes serves one word, to any number of lanes.
    pub(crate) fn shared_access(&mut self, addresses: &[u64], size: u32) {
        let size = u64::from(size.max(4));
        let turn = 128 / size;
        for lanes in addresses.chunks(turn as usize) {
            // Without conflicts no place is met twice. An aligned access fills one of a turn's places of its size.
            let (mut met, mut twice) = (0u32, false);
            for &address in lanes {
                let place = 1 << (address / size % turn);
                twice |= met & place != 0;
                met |= place;
            }
            if twice {
                self.stats.bank_conflicts += u64::from(turns(lanes, size, turn) - 1);
            }
        }
    }
}

/// How often the busiest place is asked for something that is not what it was asked before.
fn turns(addresses: &[u64], size: u64, turn: u64) -> u8 {
    let mut latest = [u64::MAX; 32];
    let mut depth = [0u8; 32];
    let mut deepest = 1;
    for &address in addresses {
        let place = (address / size % turn) as usize;
        if latest[place] != address / size {
            // Something met before that is no longer the place's latest counts twice: an upper bound.
            latest[place] = address / size;
            depth[place] += 1;
            deepest = deepest.max(depth[place]);
        }
    }
    deepest
}
