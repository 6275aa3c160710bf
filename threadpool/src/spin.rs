//! Bounded waiting: spin, offering the core to others now and then, and give up so that the caller can sleep.
//!
//! Jobs follow each other within microseconds, and a sleeping thread takes tens of them to wake, so a thread
//! that waits spins first. It must not spin for ever: on a machine with more runnable threads than cores each
//! spin delays the thread that is waited for. So a wait
//!
//! - yields every [`YIELD_EVERY`]. While nobody wants the core that costs a fraction of a microsecond, and is
//!   rare enough that what is waited for seldom arrives in the middle of it;
//! - ends when a yield took longer than [`STOLEN`]: another thread ran meanwhile, so the core is wanted, and to go
//!   on spinning takes time from another thread, perhaps from the very one that is waited for;
//! - ends at [`SLEEP_AFTER`].

use crate::sync::{spin_loop, yield_now};

/// Spinning turns between two looks at the clock.
const TURNS_PER_LOOK: u32 = 16;

/// Ticks from one yield to the next.
const YIELD_EVERY: u64 = SLEEP_AFTER >> 5;

/// Ticks that no yield takes unless somebody else ran: a few microseconds.
const STOLEN: u64 = SLEEP_AFTER >> 7;

/// Ticks after which to sleep: about 0.3 ms. On x86-64 a tick is one of the time stamp counter, which runs at
/// 1 to 5 GHz; elsewhere a nanosecond.
const SLEEP_AFTER: u64 = if cfg!(all(target_arch = "x86_64", not(miri))) { 1 << 20 } else { 300_000 };

/// One wait. Make a new one whenever the thing waited for has come.
#[derive(Debug, Default)]
pub(crate) struct Spin {
    turns: u32,
    start: Option<clock::Instant>,
    /// When the next yield is due, in ticks since `start`.
    next_yield: u64,
}

impl Spin {
    /// Spins one turn. `false`: the thread should sleep.
    pub(crate) fn turn(&mut self) -> bool {
        spin_loop();
        self.turns = self.turns.wrapping_add(1);
        if !self.turns.is_multiple_of(TURNS_PER_LOOK) {
            return true;
        }
        let Some(start) = &self.start else {
            self.start = Some(clock::now());
            self.next_yield = YIELD_EVERY;
            return true;
        };
        let before = start.elapsed();
        if before < self.next_yield {
            return true;
        }
        if before >= SLEEP_AFTER {
            return false;
        }
        yield_now();
        let after = start.elapsed();
        self.next_yield = after.saturating_add(YIELD_EVERY);
        after.saturating_sub(before) < STOLEN
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
    fn a_wait_ends_at_its_deadline_or_when_the_core_is_taken() {
        let mut spin = Spin::default();
        let start = clock::now();
        let mut turns = 1_u64;
        while spin.turn() {
            turns += 1;
        }
        // Either the deadline has passed, or a yield has lasted; both leave this much on the clock.
        assert!(start.elapsed() >= STOLEN);
        assert!(turns > u64::from(TURNS_PER_LOOK), "it ended before it had looked at the clock twice");
    }
}
