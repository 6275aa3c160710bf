//! The board: what the poster and the workers share. PROTOCOL.md tells the whole story; this file is its steps.
//!
//! Each field sits on cache lines of its own, by who writes it when: the ticket changes with every claim, the
//! job's fields once a job, the count of pending items when a thread is done with its share, and a worker's
//! flags only around its sleep.

use std::ops::Range;
use std::ptr;

use crate::panics::FirstPanic;
use crate::spin::Spin;
use crate::sync::{
    AtomicBool, AtomicPtr, AtomicU64, CachePadded, Mutex, Ordering, Thread, current, fence, lock, park, yield_now,
};
use crate::ticket::{AtomicShape, AtomicTicket, CONTROL, FIRST, Shape, Ticket};

/// A job, on its caller's stack. It outlives its last claimed item because the caller waits for that.
pub(crate) struct Job<'a> {
    body: &'a (dyn Fn(Range<usize>) + Sync),
    /// Added to every item number.
    base: usize,
    panic: &'a FirstPanic,
}

impl<'a> Job<'a> {
    pub(crate) fn new(body: &'a (dyn Fn(Range<usize>) + Sync), base: usize, panic: &'a FirstPanic) -> Self {
        Self { body, base, panic }
    }

    /// Runs one claimed chunk. Does not unwind.
    fn run(&self, range: Range<u32>) {
        self.panic.catch(|| (self.body)(self.base + range.start as usize..self.base + range.end as usize));
    }
}

/// Set in [`Board::pending`] when the caller sleeps; above any count of items.
const CALLER_SLEEPS: u64 = 1 << 63;

/// The fields of the posted job that change once a job.
#[derive(Debug, Default)]
struct Posted {
    shape: AtomicShape,
    /// Valid to follow while a claimed item of the job is pending. Relaxed throughout: stored before the
    /// ticket is published (release), loaded after a claim (acquire), so the ticket orders it.
    job: AtomicPtr<Job<'static>>,
}

/// A worker's flags. Only that worker writes them.
#[derive(Debug, Default)]
struct Flags {
    /// Raised while the worker sleeps or is about to.
    asleep: AtomicBool,
    /// Raised when the worker has seen the control ticket of a restart, lowered when it has seen the end of it.
    acknowledged: AtomicBool,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Board {
    ticket: CachePadded<AtomicTicket>,
    posted: CachePadded<Posted>,
    /// The posted job's items that are not reported as done, and [`CALLER_SLEEPS`].
    pending: CachePadded<AtomicU64>,
    workers: Box<[CachePadded<Flags>]>,
    /// The caller that set [`CALLER_SLEEPS`].
    sleeping_caller: Mutex<Option<Thread>>,
    stop: AtomicBool,
}

/// The poster's steps. The caller of each must hold the pool's lock: there is one poster at a time.
impl Board {
    /// A board with nothing posted, for `workers` workers. `generation` is [`FIRST`], or a later one in a test.
    pub(crate) fn new(workers: usize, generation: u32) -> Self {
        Self {
            ticket: CachePadded(AtomicTicket::new(Ticket::closed(generation))),
            posted: CachePadded::default(),
            pending: CachePadded::default(),
            workers: (0..workers).map(|_| CachePadded::default()).collect(),
            sleeping_caller: Mutex::new(None),
            stop: AtomicBool::new(false),
        }
    }

    /// Posts a job and returns its generation. Wakes at most as many sleepers as there are chunks for, the
    /// caller's own first one left aside.
    ///
    /// The caller must not let `job` go before [`wait`](Self::wait) has returned.
    pub(crate) fn post<'t>(
        &self,
        job: &Job<'_>,
        shape: Shape,
        workers: impl Iterator<Item = &'t Thread> + Clone,
    ) -> u32 {
        let generation = match self.ticket.close().wrapping_add(1) {
            CONTROL => self.restart_generations(workers.clone()),
            next => next,
        };
        self.posted.shape.store(shape);
        self.posted.job.store(ptr::from_ref(job).cast_mut().cast(), Ordering::Relaxed);
        // Relaxed: published by the ticket; the finished job's reports are all in, or `wait` had not returned.
        self.pending.store(u64::from(shape.n_items), Ordering::Relaxed);
        self.publish(Ticket::new(generation, 0));
        let helpers = shape.n_items.div_ceil(shape.chunk) - 1;
        self.wake(workers, helpers as usize);
        generation
    }

    /// Waits until all items of the posted job but the `own` that this thread ran itself are done.
    pub(crate) fn wait(&self, own: u32) {
        let own = u64::from(own);
        let mut spin = Spin::default();
        // Acquire pairs with the release in `report`: the items' effects are visible to the caller. Each report
        // is a read-modify-write, so the last one carries all.
        while self.pending.load(Ordering::Acquire) != own {
            if !spin.turn() {
                return self.sleep_until_done(own);
            }
        }
    }

    /// Takes the caller's own items off `pending` and announces the sleeper in one step, so that exactly one
    /// of two things happens: this thread finds the count at zero, or the last report finds the announcement.
    #[cold]
    fn sleep_until_done(&self, own: u64) {
        *lock(&self.sleeping_caller) = Some(current());
        // Release pairs with the acquire in `report`: who finds the announcement finds the thread to wake.
        self.pending.fetch_add(CALLER_SLEEPS - own, Ordering::Release);
        // Acquire: as in `wait`.
        while self.pending.load(Ordering::Acquire) != CALLER_SLEEPS {
            park();
        }
    }

    /// Ends the workers: each leaves [`work`](Self::work) when it next looks at the ticket.
    pub(crate) fn stop<'t>(&self, workers: impl Iterator<Item = &'t Thread>) {
        // Relaxed: published by the control ticket.
        self.stop.store(true, Ordering::Relaxed);
        self.publish(Ticket::closed(CONTROL));
        self.wake(workers, usize::MAX);
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
        self.ticket.publish(ticket);
        // Pairs with the fence in `sleep_until_changed`: of two threads that each write one thing and then read
        // the other's, at least one sees the other's write.
        fence(Ordering::SeqCst);
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
        while let Some(range) = self.ticket.claim(generation, &self.posted.shape) {
            done += range.end - range.start;
            let job = self.posted.job.load(Ordering::Relaxed);
            // SAFETY: the claim succeeded, so the pointer is the one stored with this generation (ticket.rs),
            // and the job it points to lives until `wait` returns, which it does not do before the items of
            // this claim are reported (a worker) or before `help` returns (the caller itself).
            let job = unsafe { &*job };
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
        // Release pairs with the acquires in `wait` and `sleep_until_done`; acquire with the release in the latter.
        let before = self.pending.fetch_sub(done, Ordering::AcqRel);
        if before == CALLER_SLEEPS | done {
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
            let generation = self.ticket.load().generation();
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
        fence(Ordering::SeqCst);
        while self.ticket.load().generation() == seen {
            park();
        }
        // Relaxed: a poster that still sees it raised wakes a thread that is awake, which is harmless.
        flags.asleep.store(false, Ordering::Relaxed);
    }
}
