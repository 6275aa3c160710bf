//! The board: what the poster and the workers share. PROTOCOL.md tells the whole story; this file is its steps.
//!
//! What goes to the workers (ticket and job) shares a cache line, so that the one that sees the new ticket has
//! the whole job with it. What comes back (the count of pending items) has its own, as has each worker's flags.

use std::cell::Cell;
use std::ops::Range;

use crate::fork::Process;
use crate::orderings::{Ordered, Step};
use crate::panics::FirstPanic;
use crate::spin::Spin;
use crate::sync::{
    AtomicBool, AtomicU64, CachePadded, Mutex, Ordering, Thread, UnsafeCell, current, lock, park,
    thread_local, yield_now,
};
use crate::ticket::{AtomicShape, AtomicTicket, CONTROL, FIRST, Shape, Ticket};

#[cfg(not(loom))]
thread_local! {
    static IN_ITEM: Cell<bool> = const { Cell::new(false) };
}
#[cfg(loom)]
thread_local! {
    static IN_ITEM: Cell<bool> = Cell::new(false);
}

/// Whether this thread is running an item of some pool's job.
pub(crate) fn in_item() -> bool {
    IN_ITEM.with(Cell::get)
}

/// What to run on a job's items.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) body: &'a (dyn Fn(Range<usize>) + Sync),
    /// Added to every item number.
    pub(crate) base: usize,
    pub(crate) panic: &'a FirstPanic,
}

impl Job<'_> {
    /// Runs one claimed chunk. Does not unwind.
    fn run(self, range: Range<u32>) {
        // It was false: in an item nothing is posted, and nothing claimed.
        IN_ITEM.with(|flag| flag.set(true));
        self.catch(range);
        IN_ITEM.with(|flag| flag.set(false));
    }

    /// Calls the body on a chunk, and keeps its panic.
    pub(crate) fn catch(self, range: Range<u32>) {
        self.panic.catch(|| (self.body)(self.base + range.start as usize..self.base + range.end as usize));
    }
}

/// Set in [`Board::pending`] when the caller sleeps; above any count of items.
const CALLER_SLEEPS: u64 = 1 << 63;

/// The posted job.
struct Posted {
    ticket: AtomicTicket,
    shape: AtomicShape,
    /// Written by the poster while no claimed item is pending, read only by a thread that has claimed such an item:
    /// the ticket orders the two.
    job: UnsafeCell<Option<Job<'static>>>,
}

// SAFETY: only `job` is not Sync by itself. `Board::run` writes it, one thread at a time, while no claimed item is
// pending; `Board::help` reads it, while an item claimed by the reader is pending. The two are ordered: write to
// read by the ticket (release in `publish`, acquire in `claim`), read to write by `pending` (release in `report`,
// acquire in `wait`). What is in it may be used by any thread: `Job` is Send and Sync.
unsafe impl Sync for Posted {}

/// A worker's flags. Only that worker writes them.
#[derive(Debug, Default)]
struct Flags {
    /// Raised while the worker sleeps or is about to.
    asleep: AtomicBool,
    /// Raised when the worker has seen the control ticket of a restart, lowered when it has seen the end of it.
    acknowledged: AtomicBool,
}

/// See the module documentation.
pub(crate) struct Board {
    posted: CachePadded<Posted>,
    /// The posted job's items that are not reported as done, and [`CALLER_SLEEPS`].
    pending: CachePadded<AtomicU64>,
    workers: Box<[CachePadded<Flags>]>,
    /// The caller that set [`CALLER_SLEEPS`].
    sleeping_caller: Mutex<Option<Thread>>,
    stop: AtomicBool,
    /// Held by the poster.
    turn: Mutex<()>,
}

/// The poster's steps. All but [`run`](Self::run) and [`stop`](Self::stop) need `turn`.
impl Board {
    /// A board with nothing posted, for `workers` workers. `generation` is [`FIRST`], or a later one in a test.
    pub(crate) fn new(workers: usize, generation: u32) -> Self {
        Self {
            posted: CachePadded(Posted {
                ticket: AtomicTicket::new(Ticket::closed(generation)),
                shape: AtomicShape::default(),
                job: UnsafeCell::new(None),
            }),
            pending: CachePadded::default(),
            workers: (0..workers).map(|_| CachePadded::default()).collect(),
            sleeping_caller: Mutex::new(None),
            stop: AtomicBool::new(false),
            turn: Mutex::new(()),
        }
    }

    /// Runs all items of a job, on this thread and on those of `workers` that come to help, and returns when all
    /// are done. Waits for its turn first. `process` is the one the workers are in.
    pub(crate) fn run<'t>(
        &self,
        job: Job<'_>,
        shape: Shape,
        process: Process,
        workers: impl Iterator<Item = &'t Thread> + Clone,
    ) {
        let _turn = Step::TakeTurn.kept().then(|| lock(&self.turn));
        let guard = AbortOnUnwind;
        let first = 0..shape.chunk.min(shape.n_items);
        let generation = self.post(job, shape, first.end, workers);
        job.run(first.clone());
        self.wait(first.end + self.help(generation), process);
        std::mem::forget(guard);
    }

    /// Posts a job whose first `claimed` items are claimed already, by the poster, and returns its generation.
    /// Wakes at most as many sleepers as there are other chunks.
    fn post<'t>(
        &self,
        job: Job<'_>,
        shape: Shape,
        claimed: u32,
        workers: impl Iterator<Item = &'t Thread> + Clone,
    ) -> u32 {
        let last = self.posted.ticket.last_generation();
        if Step::CloseFirst.kept() {
            self.posted.ticket.close(last);
        }
        let generation = match last.wrapping_add(1) {
            CONTROL => self.restart_generations(workers.clone()),
            next => next,
        };
        self.posted.shape.store(shape);
        if !Step::CloseFirst.kept() {
            self.posted.ticket.close(last);
        }
        // SAFETY: only the lifetime changes, and the job is used only until `run`, whose callers lend it, returns:
        // `help` copies it for a claimed item, and `run` does not return, not even by unwinding, before `wait` has
        // seen all claimed items reported.
        let job = unsafe { std::mem::transmute::<Job<'_>, Job<'static>>(job) };
        // SAFETY: `turn` makes this the only writer. All items of the last job have been reported, and none can
        // be claimed since the ticket is closed, so nobody reads.
        self.posted.job.with_mut(|slot| unsafe { *slot = Some(job) });
        // Relaxed: published by the ticket. No report of the last job is still to come, or `wait` had not returned.
        self.pending.store(u64::from(shape.n_items), Ordering::Relaxed);
        self.publish(Ticket::new(generation, claimed));
        let others = (shape.n_items - claimed).div_ceil(shape.chunk);
        self.wake(workers, others as usize);
        generation
    }

    /// Waits until all items of the posted job but the `own` that this thread ran itself are done.
    fn wait(&self, own: u32, process: Process) {
        let own = u64::from(own);
        let mut spin = Spin::default();
        // Acquire pairs with the release in `report`: the items' effects are visible to the caller. Each report
        // is a read-modify-write, so the last one carries all.
        while self.pending.load(Ordered::Wait.get()) != own {
            if !spin.turn() {
                return self.sleep_until_done(own, process);
            }
        }
    }

    /// Takes the caller's own items off `pending` and announces the sleeper in one step, so that exactly one
    /// of two things happens: this thread finds the count at zero, or the last report finds the announcement.
    #[cold]
    fn sleep_until_done(&self, own: u64, process: Process) {
        if process.is_past() {
            eprintln!("halfbyte-threadpool: a process forked inside an item returned from it; aborting");
            std::process::abort();
        }
        *lock(&self.sleeping_caller) = Some(current());
        // Relaxed: the worker that finds the announcement locks `sleeping_caller` after this thread has (PROTOCOL.md).
        if Step::AnnounceAtOnce.kept() {
            self.pending.fetch_add(CALLER_SLEEPS - own, Ordering::Relaxed);
        } else {
            let pending = self.pending.load(Ordering::Relaxed);
            self.pending.store(pending + CALLER_SLEEPS - own, Ordering::Relaxed);
        }
        // Acquire: as in `wait`.
        while self.pending.load(Ordered::WaitAsleep.get()) != CALLER_SLEEPS {
            park();
        }
    }

    /// Ends the workers: each leaves [`work`](Self::work) when it next looks at the ticket.
    pub(crate) fn stop<'t>(&self, workers: impl Iterator<Item = &'t Thread>) {
        let _turn = lock(&self.turn);
        // Relaxed: published by the control ticket.
        self.stop.store(true, Ordering::Relaxed);
        self.publish(Ticket::closed(CONTROL));
        if Step::WakeToStop.kept() {
            self.wake(workers, usize::MAX);
        }
    }

    /// Once every 2^32 jobs: makes sure that nobody holds a ticket from before, then starts again after [`FIRST`].
    ///
    /// Two rounds, so that every worker ends up as in a new pool, having seen `FIRST` last: one that had seen
    /// `CONTROL` last could miss the next control ticket if it slept through all jobs until then.
    #[cold]
    fn restart_generations<'t>(&self, workers: impl Iterator<Item = &'t Thread> + Clone) -> u32 {
        for (generation, acknowledged) in [(CONTROL, true), (FIRST, false)] {
            self.publish(Ticket::closed(generation));
            self.wake(workers.clone(), usize::MAX);
            for worker in &self.workers {
                // Acquire pairs with the release in `work`: the worker's claims with older tickets are in the past.
                while worker.acknowledged.load(Ordering::Acquire) != acknowledged {
                    yield_now();
                }
            }
        }
        FIRST + 1
    }

    /// Publishes, and orders that before the look at the sleepers' flags that follows in [`wake`](Self::wake).
    fn publish(&self, ticket: Ticket) {
        self.posted.ticket.publish(ticket);
        // Pairs with the fence in `sleep_until_changed`: of two threads that each write one thing and then read
        // the other's, at least one sees the other's write.
        Ordered::PublishFence.fence();
    }

    /// Wakes up to `most` workers that have raised their flag. `threads` are the workers' in order.
    fn wake<'t>(&self, threads: impl Iterator<Item = &'t Thread>, most: usize) {
        // Relaxed: ordered by the fence in `publish`.
        self.workers
            .iter()
            .zip(threads)
            .filter(|(worker, _)| worker.asleep.load(Ordering::Relaxed))
            .take(most)
            .for_each(|(_, thread)| thread.unpark());
    }
}

/// The workers' steps; the poster shares the claiming.
impl Board {
    /// A worker's life: waits for tickets of new generations and helps with their jobs until told to stop.
    /// `seen` is the generation of the board when it was made.
    pub(crate) fn work(&self, worker: usize, mut seen: u32) {
        let flags = &self.workers[worker];
        loop {
            seen = self.next_generation(seen, flags);
            match seen {
                // Relaxed: ordered by the acquire load of the control ticket.
                CONTROL if self.stop.load(Ordering::Relaxed) => return,
                // Release, twice, pairs with the acquire in `restart_generations`.
                CONTROL => flags.acknowledged.store(true, Ordering::Release),
                FIRST => flags.acknowledged.store(false, Ordering::Release),
                job => self.report(self.help(job)),
            }
        }
    }

    /// Runs chunks of the job of `generation` until none are left, and returns how many items that was.
    pub(crate) fn help(&self, generation: u32) -> u32 {
        let mut done = 0;
        while let Some(range) = self.posted.ticket.claim(generation, &self.posted.shape) {
            done += range.end - range.start;
            // SAFETY: an item claimed here is pending until this thread reports it (or, for the poster, until it
            // has returned to `run`), so nobody writes; and the claim shows that this generation's job is there.
            let job = self.posted.job.with(|slot| unsafe { *slot });
            let Some(job) = job else { unreachable!("a claim without a job") };
            job.run(range);
        }
        done
    }

    /// Reports `done` items, all at once because nothing waits for some of a thread's items. From here on the
    /// job may be gone.
    fn report(&self, done: u32) {
        if done == 0 {
            return;
        }
        let done = u64::from(done);
        // Release pairs with the acquires in `wait` and `sleep_until_done`.
        let before = self.pending.fetch_sub(done, Ordered::Report.get());
        if before == CALLER_SLEEPS | done && Step::WakeCaller.kept() {
            // The caller may have seen the count and left already, even another may sleep here by now: waking
            // it for nothing is harmless.
            if let Some(caller) = &*lock(&self.sleeping_caller) {
                caller.unpark();
            }
        }
    }

    /// Waits until the ticket's generation is not `seen`, and returns it.
    fn next_generation(&self, seen: u32, flags: &Flags) -> u32 {
        let mut spin = Spin::default();
        loop {
            let generation = self.posted.ticket.load().generation();
            if generation != seen {
                return generation;
            }
            if !spin.turn() {
                self.sleep_until_changed(seen, flags);
            }
        }
    }

    /// Sleeps until the ticket's generation is not `seen`.
    #[cold]
    fn sleep_until_changed(&self, seen: u32, flags: &Flags) {
        // Relaxed: ordered by the fence, which pairs with the one in `publish`. Either the poster sees the flag
        // and unparks, or this thread sees the new ticket and does not park.
        flags.asleep.store(true, Ordering::Relaxed);
        Ordered::SleepFence.fence();
        if !Step::LookAgain.kept() {
            park();
        }
        while self.posted.ticket.load().generation() == seen {
            park();
        }
        // Relaxed: a poster that still sees it raised wakes a thread that is awake, which is harmless.
        flags.asleep.store(false, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Board").field("ticket", &self.posted.ticket.load()).finish_non_exhaustive()
    }
}

/// Ends the process if dropped: a job's caller must not unwind past the job while workers may be using it.
/// Nothing between is known to panic; this is what makes that a matter of a bug's cost and not of soundness.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        eprintln!("halfbyte-threadpool: panic while a job was posted; aborting");
        std::process::abort();
    }
}
