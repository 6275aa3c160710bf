//! Bounded waiting: spin, then spin and yield, then give up so that the caller can sleep.
//!
//! Jobs follow each other within microseconds, and a sleeping thread takes tens of them to wake, so a thread
//! that waits spins first. It must not spin for ever: on a machine with more runnable threads than cores each
//! spin delays the thread that is waited for. Hence two bounds. Up to [`YIELD_AFTER`] the thread only spins.
//! From there to [`SLEEP_AFTER`] it also offers its core to others every few turns, which costs a fraction of a
//! microsecond when nobody wants it. After that it should sleep.

use crate::sync::{spin_loop, yield_now};

/// Spinning turns between two looks at the clock.
const TURNS_PER_LOOK: u32 = 16;

/// Ticks of pure spinning.
const YIELD_AFTER: u64 = SLEEP_AFTER >> 5;

/// Ticks after which to sleep: about 0.3 ms. On x86-64 a tick is one of the time stamp counter, which runs at
/// 1 to 5 GHz; elsewhere a nanosecond.
const SLEEP_AFTER: u64 = if cfg!(all(target_arch = "x86_64", not(miri))) { 1 << 20 } else { 300_000 };

/// One wait. Make a new one whenever the thing waited for has come.
#[derive(Debug, Default)]
pub(crate) struct Spin {
    turns: u32,
    start: Option<clock::Instant>,
}

impl Spin {
    /// Spins one turn. `false`: the deadline has passed, and the thread should sleep.
    pub(crate) fn turn(&mut self) -> bool {
        spin_loop();
        self.turns = self.turns.wrapping_add(1);
        if !self.turns.is_multiple_of(TURNS_PER_LOOK) {
            return true;
        }
        let elapsed = self.start.get_or_insert_with(clock::now).elapsed();
        if elapsed >= YIELD_AFTER {
            yield_now();
        }
        elapsed < SLEEP_AFTER
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod clock {
    #[derive(Debug)]
    pub(super) struct Instant(u64);

    impl Instant {
        /// Ticks since then. Should a thread move to a core whose counter is behind, the difference wraps to a
        /// huge number and the wait ends early, which is harmless.
        pub(super) fn elapsed(&self) -> u64 {
            now().0.wrapping_sub(self.0)
        }
    }

    pub(super) fn now() -> Instant {
        // SAFETY: RDTSC is part of every x86-64 CPU, reads a counter and touches no memory.
        Instant(unsafe { std::arch::x86_64::_rdtsc() })
    }
}

// Miri has no RDTSC.
#[cfg(any(not(target_arch = "x86_64"), miri))]
mod clock {
    #[derive(Debug)]
    pub(super) struct Instant(std::time::Instant);

    impl Instant {
        pub(super) fn elapsed(&self) -> u64 {
            u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
        }
    }

    pub(super) fn now() -> Instant {
        Instant(std::time::Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_at_its_deadline_and_not_before() {
        let mut spin = Spin::default();
        assert!(spin.turn(), "the first turn never looks at the clock");
        let start = clock::now();
        while spin.turn() {}
        // The wait looked at the clock for the first time after `start`.
        assert!(start.elapsed() >= SLEEP_AFTER);
    }
}
