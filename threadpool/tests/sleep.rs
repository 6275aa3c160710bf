//! Workers and callers that sleep are woken, by jobs and by the end of the pool.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use halfbyte_threadpool::ThreadPool;

/// Well past the deadline of about 0.3 ms at which threads stop spinning.
const LONG: Duration = Duration::from_millis(15);

/// A job that ends only if all of `threads` take part at the same time.
fn meet(pool: &ThreadPool) {
    let begun = AtomicUsize::new(0);
    pool.par_for(pool.threads(), 1, |_| {
        begun.fetch_add(1, Relaxed);
        while begun.load(Relaxed) < pool.threads() {
            thread::yield_now();
        }
    });
}

#[test]
fn a_job_wakes_all_the_sleepers_it_has_chunks_for() {
    for threads in [2, 3, 8] {
        let pool = ThreadPool::new(threads).unwrap();
        for _ in 0..5 {
            thread::sleep(LONG);
            meet(&pool);
        }
    }
}

#[test]
fn sleepers_that_missed_small_jobs_come_to_a_large_one() {
    let pool = ThreadPool::new(8).unwrap();
    for round in 0..5 {
        thread::sleep(LONG);
        for _ in 0..50 {
            let runs = AtomicUsize::new(0);
            pool.par_for(2, 1, |_| {
                runs.fetch_add(1, Relaxed);
            });
            assert_eq!(runs.into_inner(), 2, "round {round}");
        }
        meet(&pool);
    }
}

#[test]
fn jobs_around_the_deadline_lose_no_wake_up() {
    // Gaps of 0 to 0.8 ms: workers are caught spinning, yielding, falling asleep and asleep.
    let pool = ThreadPool::new(3).unwrap();
    for i in 0..300_u64 {
        thread::sleep(Duration::from_micros(i * 37 % 800));
        meet(&pool);
    }
}

#[test]
fn a_caller_that_sleeps_is_woken_by_the_last_item() {
    let pool = ThreadPool::new(2).unwrap();
    for _ in 0..5 {
        let begun = AtomicUsize::new(0);
        let slow = AtomicUsize::new(0);
        pool.par_for(2, 1, |_| {
            begun.fetch_add(1, Relaxed);
            while begun.load(Relaxed) < 2 {
                thread::yield_now();
            }
            // The worker's item outlasts the caller's by far more than the caller spins.
            if thread::current().name() == Some("halfbyte-1") {
                thread::sleep(LONG);
                slow.fetch_add(1, Relaxed);
            }
        });
        assert_eq!(slow.into_inner(), 1);
    }
}

#[test]
fn dropping_ends_workers_asleep_spinning_or_just_started() {
    for threads in [1, 2, 3, 8] {
        drop(ThreadPool::new(threads).unwrap());

        let spinning = ThreadPool::new(threads).unwrap();
        spinning.par_for(100, 1, |_| {});
        drop(spinning);

        let asleep = ThreadPool::new(threads).unwrap();
        thread::sleep(LONG);
        drop(asleep);
    }
}
