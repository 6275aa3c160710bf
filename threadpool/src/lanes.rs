//! Which chunks of a job a thread runs: its own run of neighbours, and then what others have not come to.
//!
//! Caches and prefetchers serve a thread that reads memory from chunk to chunk better than one that takes every other
//! chunk. So the chunks are divided into *lanes*, one for each thread, and each a run of neighbouring chunks:
//!
//! ```text
//! chunks   0  1  2  3 | 4  5  6  7 | 8  9 10     3 lanes
//!          ^ claimed with the lane
//!             ^ front: the lane's own thread goes on here
//!                  ^ back: threads that have finished their own lane take from here
//! ```
//!
//! The posted job has one item for each lane. The thread that claims the item runs the lane's first chunk and then claims
//! the others one by one. Both ends of a lane are in one word, so that each chunk is claimed once. The word orders no other
//! memory: what a chunk reads was published with the job, and what it wrote is published by the report of the lane in which
//! its thread claimed it.

use std::array;

use crate::orderings::Step;
use crate::sync::{AtomicU64, CachePadded, Ordering};

/// The most lanes there are; larger pools claim chunk by chunk.
pub(crate) const MAX_LANES: usize = 16;

/// The chunks of a job in lanes.
pub(crate) struct Lanes {
    n_chunks: u32,
    lanes: u32,
    /// Of each lane, the unclaimed chunks but the first: back in the high half, front in the low.
    ends: [CachePadded<AtomicU64>; MAX_LANES],
}

impl Lanes {
    /// `n_chunks` chunks, at most 2^32 - 2, in `lanes` lanes, from 1 to [`MAX_LANES`] and no more than chunks.
    pub(crate) fn new(n_chunks: u32, lanes: u32) -> Self {
        let start = |lane: u32| lane_start(n_chunks, lanes, lane);
        let ends = array::from_fn(|lane| {
            let lane = lane as u32;
            CachePadded(AtomicU64::new(if lane < lanes { pack(start(lane) + 1, start(lane + 1)) } else { 0 }))
        });
        Self { n_chunks, lanes, ends }
    }

    /// Calls `f` on the chunks of `lane`, which nobody else has run, and on those that remain of other lanes.
    pub(crate) fn run(&self, lane: u32, mut f: impl FnMut(u32)) {
        f(lane_start(self.n_chunks, self.lanes, lane));
        while let Some(chunk) = self.claim(lane, |front, back| (front, front + 1, back)) {
            f(chunk);
        }
        for other in (lane + 1..self.lanes).chain(0..lane) {
            while let Some(chunk) = self.claim(other, |front, back| (back - 1, front, back - 1)) {
                f(chunk);
            }
        }
    }

    /// Claims the chunk that `take` takes from between front and back, if there is any.
    fn claim(&self, lane: u32, take: impl Fn(u32, u32) -> (u32, u32, u32)) -> Option<u32> {
        let word = &self.ends[lane as usize];
        let mut ends = word.load(Ordering::Relaxed);
        loop {
            let (front, back) = (ends as u32, (ends >> 32) as u32);
            if front >= back {
                return None;
            }
            let (chunk, front, back) = take(front, back);
            if !Step::ClaimAtOnce.kept() {
                word.store(pack(front, back), Ordering::Relaxed);
                return Some(chunk);
            }
            match word.compare_exchange_weak(ends, pack(front, back), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(chunk),
                Err(now) => ends = now,
            }
        }
    }
}

/// The first chunk of a lane: lanes differ by one chunk at most.
fn lane_start(n_chunks: u32, lanes: u32, lane: u32) -> u32 {
    (u64::from(n_chunks) * u64::from(lane) / u64::from(lanes)) as u32
}

fn pack(front: u32, back: u32) -> u64 {
    u64::from(back) << 32 | u64::from(front)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::sync::{Mutex, lock};

    #[test]
    fn a_thread_runs_its_neighbours_in_order_then_others_from_their_ends() {
        let lanes = Lanes::new(11, 3);
        let mut chunks = Vec::new();
        lanes.run(1, |i| chunks.push(i));
        // The first chunks of the other lanes, 0 and 7, go to the threads that claim those lanes.
        assert_eq!(chunks, [3, 4, 5, 6, 10, 9, 8, 2, 1]);
        for (lane, first) in [(2, 7), (0, 0)] {
            chunks.clear();
            lanes.run(lane, |i| chunks.push(i));
            assert_eq!(chunks, [first]);
        }
    }

    #[test]
    fn every_chunk_runs_once_whoever_is_slow() {
        for (n_chunks, n_lanes) in [(2, 2), (3, 2), (5, 3), (16, 16), (17, 16), (1000, 4), (100_003, 16)] {
            let lanes = Lanes::new(n_chunks, n_lanes);
            let runs = Mutex::new(vec![0_u32; n_chunks as usize]);
            std::thread::scope(|scope| {
                for lane in 0..n_lanes {
                    let (lanes, runs) = (&lanes, &runs);
                    scope.spawn(move || {
                        let mut own = Vec::new();
                        lanes.run(lane, |chunk| {
                            if chunk % 251 == lane {
                                std::thread::yield_now();
                            }
                            own.push(chunk);
                        });
                        own.into_iter().for_each(|chunk| lock(runs)[chunk as usize] += 1);
                    });
                }
            });
            assert!(lock(&runs).iter().all(|&times| times == 1), "{n_chunks} chunks, {n_lanes} lanes");
        }
    }

    #[test]
    fn the_most_chunks_fit() {
        let lanes = Lanes::new(u32::MAX - 1, 2);
        assert_eq!(lane_start(u32::MAX - 1, 2, 1), u32::MAX / 2);
        assert_eq!(lanes.claim(1, |front, back| (back - 1, front, back - 1)), Some(u32::MAX - 2));
        assert_eq!(lanes.claim(0, |front, back| (front, front + 1, back)), Some(1));
    }
}
