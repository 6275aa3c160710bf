//! The pool: its threads, and the calls that give them work.

use std::io;
use std::ops::Range;

use crate::affinity::pin;
use crate::board::{Board, Job, in_item};
use crate::disjoint::DisjointMut;
use crate::fork::Process;
use crate::lanes::{Lanes, MAX_LANES};
use crate::panics::{FirstPanic, for_each};
use crate::sync::{Arc, Builder, JoinHandle, Thread};
use crate::ticket::{self, MAX_ITEMS, Shape};
use crate::{Error, PoolBuilder};

/// The most threads a pool can have. It is far more than is useful, and catches numbers that are the result of a mistake.
pub const MAX_THREADS: usize = 1024;

/// Chunks a thread gets on average when the caller leaves the chunk size to the pool.
const DEFAULT_CHUNKS_PER_THREAD: usize = 4;

/// A fork-join pool: a call splits its items among the pool's threads and returns when all are done.
///
/// The calling thread is one of the pool's threads: it works on its own call, and takes over whatever the
/// others do not claim. Between calls the other threads spin for about 0.3 ms and then sleep.
///
/// All calls share these rules, where an *item* is one call of the closure:
///
/// - Each thread gets an equal run of neighbouring chunks. A thread that has finished its run takes chunks from the ends of
///   the other threads' runs. (With more than 16 threads, chunks are given out in order, each to the first thread that is
///   free.) The borders of chunks depend only on the number of items and the chunk size (and on the number of threads if
///   the pool chooses the chunk size), never on timing.
/// - Items see everything that was done before the call, and the caller sees everything that they did when the call
///   returns.
/// - If items panic, all other items still run; then the call panics with the payload of the first one. The pool
///   stays usable. (Under `panic = "abort"` the process ends at once, as always.)
/// - A call made from inside an item, of this pool or another, runs in that thread alone. So does a call of a
///   single chunk, and one on a pool of one thread; calls made from inside *its* items are not nested.
/// - Calls from several threads take turns. An item must therefore not wait for another thread's call to the
///   same pool: that call waits for the item's job to end.
/// - No call allocates, unless an item panics or the caller has to sleep ([`par_reduce`](Self::par_reduce) does).
/// - In a child process made by `fork`, which has none of the pool's threads, every call runs in the calling thread
///   alone, and dropping the pool joins nobody. (Linux and Apple's systems; elsewhere a fork is not noticed, and a
///   call may wait for ever.) A child that was forked from inside an item has to leave by `exec` or `exit`: the
///   rest of that item's job is not there, and to return from the item aborts the child.
///
/// Dropping the pool joins its threads.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// let pool = halfbyte_threadpool::ThreadPool::new(2)?;
/// let sum = AtomicUsize::new(0);
/// pool.par_for(1000, 64, |i| {
///     sum.fetch_add(i, Ordering::Relaxed);
/// });
/// assert_eq!(sum.into_inner(), 499_500);
/// # Ok::<(), halfbyte_threadpool::Error>(())
/// ```
pub struct ThreadPool {
    board: Arc<Board>,
    process: Process,
    /// [`MAX_LANES`] but for tests.
    pub(crate) max_lanes: usize,
    /// Workers 1, 2, ...; the caller is number 0.
    workers: Vec<JoinHandle<()>>,
}

impl ThreadPool {
    /// A pool of `threads` threads, the caller's included: `threads - 1` are started, named
    /// `halfbyte-1`, `halfbyte-2`, ...
    ///
    /// [`default_threads`](crate::default_threads) knows a good number; [`PoolBuilder`] has other names, and CPUs to
    /// run on.
    ///
    /// # Errors
    ///
    /// [`Error::ThreadCount`] if `threads` is 0 or more than [`MAX_THREADS`]; [`Error::Spawn`] if the system
    /// refuses a thread.
    pub fn new(threads: usize) -> Result<Self, Error> {
        PoolBuilder::new(threads).build()
    }

    pub(crate) fn from_builder(options: PoolBuilder) -> Result<Self, Error> {
        Self::build(options, ticket::FIRST, |builder, work| builder.spawn(work))
    }

    /// A pool that starts from `generation`, of threads that `spawn` starts.
    pub(crate) fn build(
        options: PoolBuilder,
        generation: u32,
        mut spawn: impl FnMut(Builder, Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>,
    ) -> Result<Self, Error> {
        let PoolBuilder { threads, name, cpus } = options;
        if !(1..=MAX_THREADS).contains(&threads) {
            return Err(Error::ThreadCount { got: threads });
        }
        if name.contains('\0') {
            return Err(Error::Name { got: name });
        }
        if let Some(cpus) = cpus.as_ref().filter(|cpus| cpus.len() != threads) {
            return Err(Error::PinCount { expected: threads, got: cpus.len() });
        }
        let mut pool = Self {
            board: Arc::new(Board::new(threads - 1, generation)),
            process: Process::current(),
            max_lanes: MAX_LANES,
            workers: Vec::with_capacity(threads - 1),
        };
        for worker in 1..threads {
            let board = Arc::clone(&pool.board);
            let work = Box::new(move || board.work(worker - 1, generation));
            let builder = Builder::new().name(format!("{name}-{worker}"));
            // On failure `pool` is dropped here, which joins the workers it has.
            let handle = spawn(builder, work).map_err(|source| Error::Spawn { worker, threads, source })?;
            pool.workers.push(handle);
        }
        if let Some(cpus) = cpus {
            for (worker, (handle, &cpu)) in (1..).zip(pool.workers.iter().zip(&cpus[1..])) {
                pin(handle, cpu).map_err(|source| Error::Pin { worker, cpu, source })?;
            }
        }
        Ok(pool)
    }

    /// The number of threads that work on a call, the caller included.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// The chunk size used for `n_items` items when a call is given 0: a quarter of a thread's equal share,
    /// rounded up, and at least 1.
    ///
    /// Four chunks a thread even out cores of different speed and leave claiming a small part of the work.
    /// Where items are tiny or must be aligned in groups, pass a chunk size.
    #[must_use]
    pub fn default_chunk(&self, n_items: usize) -> usize {
        n_items.div_ceil(self.threads() * DEFAULT_CHUNKS_PER_THREAD).max(1)
    }

    /// Calls `f(i)` for each `i` in `0..n_items`; threads claim `chunk` items at a time.
    ///
    /// `chunk` 0 means [`default_chunk`](Self::default_chunk). Within a chunk, items run in order. The
    /// [common rules](Self) hold for each `i` on its own.
    ///
    /// # Panics
    ///
    /// With an item's payload, after all items have run.
    pub fn par_for<F>(&self, n_items: usize, chunk: usize, f: F)
    where
        F: Fn(usize) + Sync,
    {
        self.dispatch(n_items, chunk, MAX_ITEMS, &|range| for_each(range, &f));
    }

    /// Calls `f(range)` for each chunk of `0..n_items`: `0..chunk`, `chunk..2 * chunk`, ..., the last one shorter.
    ///
    /// `chunk` 0 means [`default_chunk`](Self::default_chunk); more than 2^32 - 2 means 2^32 - 2. No range is
    /// empty. The item of the [common rules](Self) is a range: a panic ends its own range only.
    ///
    /// # Panics
    ///
    /// With a range's payload, after all ranges have been called.
    ///
    /// ```
    /// # let pool = halfbyte_threadpool::ThreadPool::new(2)?;
    /// let ranges = std::sync::Mutex::new(vec![]);
    /// pool.par_ranges(10, 4, |range| ranges.lock().unwrap().push(range));
    /// let mut ranges = ranges.into_inner().unwrap();
    /// ranges.sort_by_key(|range| range.start);
    /// assert_eq!(ranges, [0..4, 4..8, 8..10]);
    /// # Ok::<(), halfbyte_threadpool::Error>(())
    /// ```
    pub fn par_ranges<F>(&self, n_items: usize, chunk: usize, f: F)
    where
        F: Fn(Range<usize>) + Sync,
    {
        self.dispatch(n_items, chunk, MAX_ITEMS, &f);
    }

    /// Calls `f(i, part)` for each part of `data`, where part `i` is `data[i * chunk_len..][..chunk_len]`, the
    /// last one shorter.
    ///
    /// `chunk_len` 0 means [`default_chunk`](Self::default_chunk)`(data.len())`. Nothing is called for empty
    /// `data`. The item of the [common rules](Self) is a part, and a part is claimed at a time.
    ///
    /// # Panics
    ///
    /// With a part's payload, after `f` has been called on all parts.
    ///
    /// ```
    /// # let pool = halfbyte_threadpool::ThreadPool::new(2)?;
    /// let mut data = [0; 7];
    /// pool.par_chunks_mut(&mut data, 3, |i, part| part.fill(i));
    /// assert_eq!(data, [0, 0, 0, 1, 1, 1, 2]);
    /// # Ok::<(), halfbyte_threadpool::Error>(())
    /// ```
    pub fn par_chunks_mut<T, F>(&self, data: &mut [T], chunk_len: usize, f: F)
    where
        T: Send,
        F: Fn(usize, &mut [T]) + Sync,
    {
        let len = data.len();
        let chunk_len = if chunk_len == 0 { self.default_chunk(len) } else { chunk_len };
        let data = DisjointMut::new(data);
        self.par_ranges(len.div_ceil(chunk_len), 1, |range| {
            let i = range.start;
            let start = i * chunk_len;
            // SAFETY: each `i` is claimed once, and parts of different `i` do not overlap.
            let part = unsafe { data.part(start, chunk_len.min(len - start)) };
            f(i, part);
        });
    }

    /// Runs `body` on the chunks of `0..n_items`, in jobs of at most `window` items, which is [`MAX_ITEMS`] but
    /// for tests. Not generic, so that a caller's code holds only its own loop.
    fn dispatch(&self, n_items: usize, chunk: usize, window: u32, body: &(dyn Fn(Range<usize>) + Sync)) {
        let window = window as usize;
        let chunk = if chunk == 0 { self.default_chunk(n_items) } else { chunk }.min(window);
        // Whole chunks to a window keep the borders of chunks where they would be in a single job.
        let window = window - window % chunk;
        let panic = FirstPanic::default();
        if n_items <= chunk || self.workers.is_empty() || in_item() || self.process.is_past() {
            for start in (0..n_items).step_by(chunk) {
                panic.catch(|| body(start..n_items.min(start.saturating_add(chunk))));
            }
        } else {
            for base in (0..n_items).step_by(window) {
                // Both fit: neither is more than `window`.
                let shape = Shape { n_items: window.min(n_items - base) as u32, chunk: chunk as u32 };
                let job = Job { body, base, panic: &panic };
                if shape.n_chunks() as usize > self.threads() && self.threads() <= self.max_lanes {
                    self.run_in_lanes(job, shape);
                } else {
                    self.board.run(job, shape, self.process, self.worker_threads());
                }
            }
        }
        panic.resume();
    }

    /// Runs a job of more chunks than threads as one whose items are the [lanes](crate::lanes) of its chunks.
    fn run_in_lanes(&self, job: Job<'_>, shape: Shape) {
        // It fits: a pool of so many threads has no lanes.
        let threads = self.threads() as u32;
        let lanes = Lanes::new(shape.n_chunks(), threads);
        let body = |range: Range<usize>| {
            for lane in range {
                lanes.run(lane as u32, |chunk| job.catch(shape.chunk(chunk)));
            }
        };
        let all = Job { body: &body, base: 0, panic: job.panic };
        let shape = Shape { n_items: threads, chunk: 1 };
        self.board.run(all, shape, self.process, self.worker_threads());
    }

    fn worker_threads(&self) -> impl Iterator<Item = &Thread> + Clone {
        self.workers.iter().map(JoinHandle::thread)
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        if self.process.is_past() {
            // This process has no workers to stop or join, and a lock may be held by a thread that it does not have. The
            // handles are forgotten, not dropped: the C library can do nothing with them here.
            return std::mem::forget(std::mem::take(&mut self.workers));
        }
        self.board.stop(self.worker_threads());
        for worker in self.workers.drain(..) {
            // A worker catches its items' panics; one of its own has already been printed, and panicking here
            // could turn it into an abort.
            let _ = worker.join();
        }
    }
}

impl std::fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThreadPool").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::sync::{AtomicU64, Mutex, Ordering, lock};

    fn pool_from_generation(threads: usize, generation: u32) -> ThreadPool {
        ThreadPool::build(PoolBuilder::new(threads), generation, |builder, work| builder.spawn(work)).unwrap()
    }

    fn sum_of_squares(pool: &ThreadPool, n: usize) -> u64 {
        let sum = AtomicU64::new(0);
        pool.par_for(n, 3, |i| {
            sum.fetch_add((i * i) as u64, Ordering::Relaxed);
        });
        sum.into_inner()
    }

    #[test]
    fn generations_wrap() {
        for threads in [2, 3, 8] {
            let pool = pool_from_generation(threads, u32::MAX - 3);
            for _ in 0..20 {
                assert_eq!(sum_of_squares(&pool, 100), 328_350);
            }
        }
    }

    #[test]
    fn generations_wrap_while_workers_sleep() {
        let pool = pool_from_generation(3, u32::MAX);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(sum_of_squares(&pool, 100), 328_350);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(sum_of_squares(&pool, 100), 328_350);
    }

    #[test]
    fn more_items_than_a_job_holds_become_several_jobs() {
        let pool = ThreadPool::new(3).unwrap();
        for (n, chunk, window) in [(100, 4, 10), (100, 50, 10), (7, 3, 7), (8, 3, 7), (1, 1, 1), (64, 0, 5)] {
            let seen = Mutex::new(Vec::new());
            pool.dispatch(n, chunk, window, &|range| lock(&seen).push(range));
            let mut seen = seen.into_inner().unwrap();
            seen.sort_by_key(|range| range.start);
            let chunk = if chunk == 0 { pool.default_chunk(n) } else { chunk }.min(window as usize);
            let expected: Vec<_> = (0..n).step_by(chunk).map(|start| start..n.min(start + chunk)).collect();
            assert_eq!(seen, expected, "n {n}, chunk {chunk}, window {window}");
        }
    }

    #[test]
    fn a_panic_in_one_job_of_several_leaves_the_others_running() {
        let pool = ThreadPool::new(2).unwrap();
        let seen = AtomicU64::new(0);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.dispatch(60, 2, 10, &|range| {
                for_each(range, &|i| {
                    seen.fetch_or(1 << i, Ordering::Relaxed);
                    assert!(i != 7, "item 7");
                });
            });
        }));
        assert_eq!(*caught.unwrap_err().downcast_ref::<&str>().unwrap(), "item 7");
        assert_eq!(seen.into_inner(), (1 << 60) - 1);
    }

    #[test]
    fn a_refused_thread_is_an_error_and_the_others_end() {
        let mut started = Vec::new();
        let error = ThreadPool::build(PoolBuilder::new(5), ticket::FIRST, |builder, work| {
            if started.len() == 2 {
                return Err(io::Error::from(io::ErrorKind::WouldBlock));
            }
            let alive = Arc::new(());
            started.push(Arc::downgrade(&alive));
            builder.spawn(move || {
                let _alive = alive;
                work();
            })
        })
        .unwrap_err();
        let Error::Spawn { worker, threads, source } = error else { panic!("{error}") };
        assert_eq!((worker, threads, source.kind()), (3, 5, io::ErrorKind::WouldBlock));
        assert!(started.iter().all(|alive| alive.upgrade().is_none()), "a worker is still running");
    }
}
