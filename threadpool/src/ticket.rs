//! The ticket: one 64-bit word that says which job is posted and what is left of it.
//!
//! ```text
//!  63                             32 31                              0
//! +---------------------------------+---------------------------------+
//! |           generation            |      next unclaimed item        |
//! +---------------------------------+---------------------------------+
//!
//! generation  0             no job: tells workers to acknowledge (see below), or to exit
//!             1             no job: a new pool, or one whose generations have just wrapped
//!             2..=u32::MAX  one number a job, in order
//! next item   0..=n         of the posted job's n items, those below are claimed; n: all are
//!             0xffff_ffff   closed: nothing can be claimed. n is at most 0xffff_fffe, so this is never an item.
//! ```
//!
//! A claim moves the low half forward by compare-exchange and leaves the high half alone; `next` is clamped to
//! `n`, so the low half never carries into the generation.
//!
//! # Why a late worker cannot claim from the wrong job
//!
//! A claim needs two things that are not read at once: the ticket, and the job's [`Shape`] (item count and
//! chunk). A worker may stop for any time between reading them and its compare-exchange. The poster therefore
//! closes the ticket, writes the shape, then publishes the ticket with the next generation:
//!
//! ```text
//! poster                                     worker
//!                                            W0 t = ticket       acquire, until its generation is new
//! P1 ticket = (g, closed)      relaxed       W1 t = ticket       relaxed
//! P2 shape  = new              release       W2 s = shape        acquire
//! P3 ticket = (g + 1, 0)       release       W3 ticket: t -> t'  compare-exchange
//! ```
//!
//! - *Old ticket, new shape.* If W2 reads what P2 wrote, P1 happens before W3. W3 then finds (g, closed) or
//!   something later. `t` is neither, because it is from before P1: the exchange fails.
//! - *New ticket, old shape.* A worker claims only from the generation that its W0 has read. If W0 read what P3
//!   wrote (or a claim made after it, which continues P3's release sequence), P2 happens before W2, so W2 reads the
//!   new shape or a later one. If a later one: the case above.
//! - *Old ticket, old shape.* The old job is finished, so its ticket is at `n`, and `n` is not less than `n`:
//!   no exchange is tried. If the worker read the ticket before it reached `n`, the exchange fails.
//!
//! # Why generations may wrap
//!
//! All of the above needs that a ticket value is never seen again once it is gone. Generations come back after
//! 2^32 jobs (seven minutes of jobs of 0.1 us), and a worker could in principle sit between W1 and W3 for as
//! long. So before the counter starts again, the poster publishes the control ticket (0, closed), wakes
//! everyone, and waits until each worker has acknowledged it; then the same with (1, closed), which puts everyone
//! in the state of a new pool. A worker acknowledges only from the top of its loop, where it holds no ticket, and
//! its next load of the ticket cannot return anything older than what it acknowledged. No value from before the
//! wrap is held by anyone after it; the argument is exact, not a probability.

use std::ops::Range;

use crate::orderings::Ordered;
use crate::sync::{AtomicU64, Ordering};

/// The most items a single job can have: the index after the last must differ from [`CLOSED`].
pub(crate) const MAX_ITEMS: u32 = CLOSED - 1;

/// The generation of control tickets.
pub(crate) const CONTROL: u32 = 0;

/// The generation a pool starts from, and starts from again after a wrap. It is never given to a job.
pub(crate) const FIRST: u32 = 1;

/// The index at which nothing can be claimed.
const CLOSED: u32 = u32::MAX;

/// A ticket's value; the module documentation has its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

impl Ticket {
    pub(crate) const fn new(generation: u32, next: u32) -> Self {
        Self((generation as u64) << 32 | next as u64)
    }

    pub(crate) const fn closed(generation: u32) -> Self {
        Self::new(generation, CLOSED)
    }

    pub(crate) const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    const fn next(self) -> u32 {
        self.0 as u32
    }

    /// The next chunk of a job of this shape and the ticket after claiming it, or `None` if nothing is left.
    fn claim(self, shape: Shape) -> Option<(Range<u32>, Self)> {
        let start = self.next();
        if start >= shape.n_items {
            return None;
        }
        let end = start.saturating_add(shape.chunk).min(shape.n_items);
        Some((start..end, Self::new(self.generation(), end)))
    }
}

/// What a claim must know of a job: how many items, and how many to take at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// At most [`MAX_ITEMS`].
    pub(crate) n_items: u32,
    /// At least 1.
    pub(crate) chunk: u32,
}

impl Shape {
    pub(crate) const fn n_chunks(self) -> u32 {
        self.n_items.div_ceil(self.chunk)
    }

    /// The items of a chunk.
    pub(crate) fn chunk(self, i: u32) -> Range<u32> {
        let start = i * self.chunk;
        start..start.saturating_add(self.chunk).min(self.n_items)
    }

    const fn pack(self) -> u64 {
        (self.n_items as u64) << 32 | self.chunk as u64
    }

    const fn unpack(word: u64) -> Self {
        Self { n_items: (word >> 32) as u32, chunk: word as u32 }
    }
}

/// A shared [`Shape`]: one word, so that a late worker can read an outdated shape but never half of one.
#[derive(Debug, Default)]
pub(crate) struct AtomicShape(AtomicU64);

impl AtomicShape {
    /// P2. Release pairs with the acquire in [`load`](Self::load): a thread that sees this shape sees the ticket closed.
    pub(crate) fn store(&self, shape: Shape) {
        self.0.store(shape.pack(), Ordering::Release);
    }

    /// W2. Acquire pairs with the release in [`store`](Self::store).
    fn load(&self) -> Shape {
        Shape::unpack(self.0.load(Ordering::Acquire))
    }
}

/// The shared ticket. Only the poster (one at a time, under the pool's lock) closes and publishes; anyone claims.
#[derive(Debug)]
pub(crate) struct AtomicTicket(AtomicU64);

impl AtomicTicket {
    pub(crate) fn new(ticket: Ticket) -> Self {
        Self(AtomicU64::new(ticket.0))
    }

    /// The ticket as a waiting worker sees it. Acquire pairs with the release in [`publish`](Self::publish): who sees
    /// a generation sees its job.
    pub(crate) fn load(&self) -> Ticket {
        Ticket(self.0.load(Ordered::NextGeneration.get()))
    }

    /// The generation of the last job, for the poster. Relaxed: generations are written under the poster's lock.
    pub(crate) fn last_generation(&self) -> u32 {
        Ticket(self.0.load(Ordering::Relaxed)).generation()
    }

    /// P1. Closes the ticket of the finished job of `generation`.
    ///
    /// Relaxed: it is ordered before the job's new fields by [`AtomicShape::store`]. A plain store overwrites no
    /// claim: everything of the finished job is claimed, and nothing newer is published.
    pub(crate) fn close(&self, generation: u32) {
        self.0.store(Ticket::closed(generation).0, Ordering::Relaxed);
    }

    /// P3. Release pairs with the acquire in [`load`](Self::load).
    pub(crate) fn publish(&self, ticket: Ticket) {
        self.0.store(ticket.0, Ordered::Publish.get());
    }

    /// Claims the next chunk of the job of `generation`, which the caller has seen by [`load`](Self::load) or posted
    /// itself; `None` when it has no more or is no longer posted.
    pub(crate) fn claim(&self, generation: u32, shape: &AtomicShape) -> Option<Range<u32>> {
        // W1. Relaxed: what came with `generation` was acquired by the load that saw it, and a later load of the same
        // word cannot return anything older.
        let mut ticket = Ticket(self.0.load(Ordering::Relaxed));
        while ticket.generation() == generation {
            let (range, after) = ticket.claim(shape.load())?;
            // W3. Success is relaxed: any read-modify-write continues the release sequence of `publish`, so that who
            // loads this claim's ticket acquires the job all the same. Failure is W1 again.
            match self.0.compare_exchange_weak(ticket.0, after.0, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(range),
                Err(now) => ticket = Ticket(now),
            }
        }
        None
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn shape(n_items: u32, chunk: u32) -> Shape {
        Shape { n_items, chunk }
    }

    #[test]
    fn fields_are_where_the_map_says() {
        let ticket = Ticket::new(0x1234_5678, 0x9abc_def0);
        assert_eq!(ticket.0, 0x1234_5678_9abc_def0);
        assert_eq!(ticket.generation(), 0x1234_5678);
        assert_eq!(ticket.next(), 0x9abc_def0);
        assert_eq!(Ticket::closed(7).0, 0x0000_0007_ffff_ffff);
        assert_eq!(shape(0xffff_fffe, 3).pack(), 0xffff_fffe_0000_0003);
        assert_eq!(Shape::unpack(shape(5, 0xffff_fffe).pack()), shape(5, 0xffff_fffe));
    }

    #[test]
    fn claims_cover_the_items_once_and_stop() {
        let ticket = AtomicTicket::new(Ticket::new(2, 0));
        let fields = AtomicShape::default();
        fields.store(shape(10, 4));
        assert_eq!(ticket.claim(2, &fields), Some(0..4));
        assert_eq!(ticket.claim(2, &fields), Some(4..8));
        assert_eq!(ticket.claim(2, &fields), Some(8..10));
        assert_eq!(ticket.claim(2, &fields), None);
        assert_eq!(ticket.load(), Ticket::new(2, 10));
    }

    #[test]
    fn the_largest_job_neither_carries_nor_reaches_closed() {
        let near_end = Ticket::new(9, MAX_ITEMS - 1);
        let (range, after) = near_end.claim(shape(MAX_ITEMS, u32::MAX)).unwrap();
        assert_eq!(range, MAX_ITEMS - 1..MAX_ITEMS);
        assert_eq!(after, Ticket::new(9, MAX_ITEMS));
        assert_ne!(after, Ticket::closed(9));
        assert_eq!(after.claim(shape(MAX_ITEMS, 1)), None);
    }

    #[test]
    fn a_closed_ticket_gives_nothing_whatever_the_shape() {
        for generation in [CONTROL, FIRST, 2, u32::MAX] {
            assert_eq!(Ticket::closed(generation).claim(shape(MAX_ITEMS, 1)), None);
        }
    }

    #[test]
    fn closing_keeps_the_generation() {
        let ticket = AtomicTicket::new(Ticket::new(0xdead_beef, 17));
        let generation = ticket.last_generation();
        assert_eq!(generation, 0xdead_beef);
        ticket.close(generation);
        assert_eq!(ticket.load(), Ticket::closed(0xdead_beef));
    }

    #[test]
    fn an_old_generation_claims_nothing_from_a_new_job() {
        let ticket = AtomicTicket::new(Ticket::new(3, 0));
        let fields = AtomicShape::default();
        fields.store(shape(100, 1));
        assert_eq!(ticket.claim(2, &fields), None);
        assert_eq!(ticket.load(), Ticket::new(3, 0));
    }
}
