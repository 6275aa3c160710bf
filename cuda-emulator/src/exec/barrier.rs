//! The sixteen barriers of a block.
//!
//! A barrier without a thread count waits for every thread of the block that has not exited. One with a count
//! counts whole warps, as PTX says. An aligned barrier needs all threads that its warp began with, at the same
//! instruction: threads that left early make its behaviour undefined, which is a fault here.

use super::block::Block;
use super::interpret::Gathered;
use super::{Problem, lanes_of};
use crate::decode::program::{Barrier, BarrierKind};
use crate::exec::registers::Class;
use crate::fault::{Fault, FaultKind};

/// All barriers.
#[derive(Debug, Default)]
pub(crate) struct Barriers {
    states: [State; 16],
}

#[derive(Debug, Default)]
struct State {
    /// Threads that arrived.
    threads: u32,
    /// The same, with every warp counted as 32 threads.
    in_warps: u32,
    /// The count that the first to arrive named.
    expected: Option<u32>,
    /// Warps that arrived, and those of them that wait.
    arrived: u32,
    /// Lanes that wait, with the result that they asked for.
    waiting: Vec<(usize, u32, BarrierKind)>,
    set: u32,
    clear: u32,
}

impl Block<'_> {
    pub(super) fn barrier(
        &mut self,
        w: usize,
        at: u32,
        barrier: &Barrier,
        mask: u32,
        stuck: bool,
    ) -> Result<Gathered, Box<Fault>> {
        let lane = Self::first(mask);
        let warp = &self.warps[w];
        if barrier.aligned && mask != warp.started {
            if warp.started & !warp.alive == 0 && !stuck {
                return Ok(Gathered::Missing);
            }
            if !(self.env.options.checks.exited_lanes_pass_barriers && mask == warp.alive) {
                if !stuck && mask != warp.alive {
                    return Ok(Gathered::Missing);
                }
                let detail = format!(
                    "lanes {mask:#010x} of a warp of {:#010x} are here, {:#010x} have exited",
                    warp.started,
                    warp.started & !warp.alive
                );
                return Err(self.fault(w, at, lane, *Problem::new(FaultKind::DivergentBarrier, detail)));
            }
        }
        let id = warp.registers.words[barrier.id as usize][lane];
        let expected = barrier.threads.map(|threads| warp.registers.words[threads as usize][lane]);
        let illegal = |detail: String| *Problem::new(FaultKind::IllegalInstruction, detail);
        let Some(state) = self.barriers.states.get_mut(id as usize) else {
            return Err(self.fault(w, at, lane, illegal(format!("barrier {id}; there are 0 to 15"))));
        };
        if state.threads > 0 && state.expected != expected {
            let detail =
                format!("barrier {id} for {expected:?} threads, others came for {:?}", state.expected);
            return Err(self.fault(w, at, lane, illegal(detail)));
        }
        if let Some(count) = expected
            && (count == 0 || count % 32 != 0 || state.in_warps + 32 > count)
        {
            let detail = format!("barrier {id} for {count} threads, {} are there", state.in_warps + 32);
            return Err(self.fault(w, at, lane, illegal(detail)));
        }
        state.expected = expected;
        state.threads += mask.count_ones();
        state.in_warps += if barrier.aligned { 32 } else { mask.count_ones() };
        state.arrived |= 1 << w;
        let predicate = match barrier.kind {
            BarrierKind::Count { predicate, negated, .. }
            | BarrierKind::All { predicate, negated, .. }
            | BarrierKind::Any { predicate, negated, .. } => Some((predicate, negated)),
            BarrierKind::Sync | BarrierKind::Arrive => None,
        };
        if let Some((predicate, negated)) = predicate {
            let bits = warp.registers.predicates[predicate as usize];
            let set = (if negated { !bits } else { bits } & mask).count_ones();
            state.set += set;
            state.clear += mask.count_ones() - set;
        }
        if barrier.kind != BarrierKind::Arrive {
            state.waiting.push((w, mask, barrier.kind));
            self.warps[w].parked |= mask;
        }
        self.complete_barrier(id as usize);
        Ok(Gathered::Done)
    }

    /// Releases the lanes that wait at a barrier that all have reached.
    pub(super) fn complete_barriers(&mut self) {
        for id in 0..self.barriers.states.len() {
            self.complete_barrier(id);
        }
    }

    fn complete_barrier(&mut self, id: usize) {
        let state = &self.barriers.states[id];
        let complete = state.threads > 0
            && match state.expected {
                Some(count) => state.in_warps >= count,
                None => state.threads >= self.warps.iter().map(|warp| warp.alive.count_ones()).sum(),
            };
        if complete {
            let state = std::mem::take(&mut self.barriers.states[id]);
            self.let_go(state);
        }
    }

    fn let_go(&mut self, state: State) {
        self.counters.stats.barriers += 1;
        let mut waited = 0;
        for &(w, lanes, kind) in &state.waiting {
            waited |= 1 << w;
            let warp = &mut self.warps[w];
            warp.parked &= !lanes;
            let (register, value) = match kind {
                BarrierKind::Count { result, .. } => ((Class::Word, result), state.set),
                BarrierKind::All { result, .. } => ((Class::Predicate, result), u32::from(state.clear == 0)),
                BarrierKind::Any { result, .. } => ((Class::Predicate, result), u32::from(state.set > 0)),
                BarrierKind::Sync | BarrierKind::Arrive => continue,
            };
            for lane in lanes_of(lanes) {
                warp.set(register, lane, u64::from(value));
            }
        }
        // Warps that have exited can no longer race.
        let gone = self.warps.iter().enumerate().filter(|(_, warp)| warp.alive == 0);
        let gone = gone.fold(0, |mask, (w, _)| mask | 1 << w);
        self.shared.synchronise(state.arrived | gone, waited | gone);
    }
}
