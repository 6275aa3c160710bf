//! Shuffles, votes, matches and reductions among the lanes of a warp. `together` has made sure that all lanes that take part
//! are here.

use super::block::Block;
use super::lanes_of;
use super::registers::{Class, LANES, blend};
use crate::decode::program::{Match, Reduce, Shuffle, ShuffleMode, Vote, VoteMode};

impl Block<'_> {
    pub(super) fn shuffle(&mut self, w: usize, shuffle: &Shuffle, mask: u32) {
        let registers = &mut self.warps[w].registers;
        let values = registers.words[shuffle.value as usize];
        let lanes = registers.words[shuffle.lane as usize];
        let clamps = registers.words[shuffle.clamp as usize];
        let mut out = [0; LANES];
        let mut in_range = 0;
        for lane in lanes_of(mask) {
            let own = lane as u32;
            let (delta, clamp, segment) = (lanes[lane] & 31, clamps[lane] & 31, clamps[lane] >> 8 & 31);
            let highest = own & segment | clamp & !segment;
            let lowest = own & segment;
            let (from, valid) = match shuffle.mode {
                ShuffleMode::Up => (own.wrapping_sub(delta), own as i32 - delta as i32 >= highest as i32),
                ShuffleMode::Down => (own + delta, own + delta <= highest),
                ShuffleMode::Butterfly => (own ^ delta, own ^ delta <= highest),
                ShuffleMode::Index => {
                    let from = lowest | delta & !segment;
                    (from, from <= highest)
                }
            };
            let from = if valid { from & 31 } else { own };
            in_range |= u32::from(valid) << lane;
            // The value of a lane that does not take part is not defined.
            out[lane] = if mask >> from & 1 == 1 { values[from as usize] } else { u32::MAX };
        }
        blend(&mut registers.words[shuffle.result as usize], &out, mask);
        let predicate = &mut registers.predicates[shuffle.in_range as usize];
        *predicate = *predicate & !mask | in_range & mask;
    }

    pub(super) fn vote(&mut self, w: usize, vote: &Vote, mask: u32) {
        let registers = &mut self.warps[w].registers;
        let bits = registers.predicates[vote.predicate as usize];
        let set = if vote.negated { !bits } else { bits } & mask;
        let answer = match vote.mode {
            VoteMode::All => set == mask,
            VoteMode::Any => set != 0,
            VoteMode::Uniform => set == mask || set == 0,
            VoteMode::Ballot => {
                blend(&mut registers.words[vote.result as usize], &[set; LANES], mask);
                return;
            }
        };
        let predicate = &mut registers.predicates[vote.result as usize];
        *predicate = if answer { *predicate | mask } else { *predicate & !mask };
    }

    pub(super) fn match_values(&mut self, w: usize, matching: &Match, mask: u32) {
        let warp = &mut self.warps[w];
        let values: [u64; LANES] = std::array::from_fn(|lane| warp.get(matching.value, lane));
        let same = |lane: usize| {
            lanes_of(mask)
                .filter(|&other| values[other] == values[lane])
                .fold(0, |set, lane| set | 1u32 << lane)
        };
        for lane in lanes_of(mask) {
            let set = same(lane);
            let all = set == mask;
            let result = if matching.all && !all { 0 } else { set };
            warp.set((Class::Word, matching.result), lane, u64::from(result));
            if matching.all {
                warp.set((Class::Predicate, matching.agreed), lane, u64::from(all));
            }
        }
    }

    pub(super) fn reduce(&mut self, w: usize, reduce: &Reduce, mask: u32) {
        let registers = &mut self.warps[w].registers;
        let values = registers.words[reduce.value as usize];
        if let Some(total) = lanes_of(mask).map(|lane| values[lane]).reduce(reduce.combine) {
            blend(&mut registers.words[reduce.result as usize], &[total; LANES], mask);
        }
    }

    /// The lowest lane leads.
    pub(super) fn elect(&mut self, w: usize, result: u32, leader: u32, mask: u32) {
        let registers = &mut self.warps[w].registers;
        let lowest = Self::first(mask);
        blend(&mut registers.words[result as usize], &[lowest as u32; LANES], mask);
        let predicate = &mut registers.predicates[leader as usize];
        *predicate = *predicate & !mask | 1 << lowest;
    }
}
