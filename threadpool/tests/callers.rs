//! Calls from inside items and from several threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use halfbyte_threadpool::ThreadPool;

#[test]
fn nested_calls_run_in_the_items_thread() {
    for threads in [2, 3, 8] {
        let pool = ThreadPool::new(threads).unwrap();
        let runs = AtomicUsize::new(0);
        pool.par_for(6, 1, |_| {
            let outer = thread::current().id();
            pool.par_for(10, 1, |_| {
                assert_eq!(thread::current().id(), outer);
                pool.par_ranges(10, 3, |range| {
                    runs.fetch_add(range.len(), Relaxed);
                });
            });
        });
        assert_eq!(runs.into_inner(), 600);
    }
}

#[test]
fn two_pools_inside_each_other_do_not_deadlock() {
    let pools = [ThreadPool::new(2).unwrap(), ThreadPool::new(3).unwrap()];
    let runs = AtomicUsize::new(0);
    thread::scope(|scope| {
        for (outer, inner) in [(&pools[0], &pools[1]), (&pools[1], &pools[0])] {
            let runs = &runs;
            scope.spawn(move || {
                for _ in 0..200 {
                    outer.par_for(4, 1, |_| {
                        inner.par_for(4, 1, |_| {
                            runs.fetch_add(1, Relaxed);
                        });
                    });
                }
            });
        }
    });
    assert_eq!(runs.into_inner(), 2 * 200 * 16);
}

#[test]
fn a_call_of_one_chunk_leaves_the_pool_to_its_item() {
    let pool = ThreadPool::new(2).unwrap();
    let seen = Mutex::new(Vec::new());
    pool.par_for(1, 1, |_| {
        // Needs both threads: an inline call would wait for ever.
        let begun = AtomicUsize::new(0);
        pool.par_for(2, 1, |_| {
            begun.fetch_add(1, Relaxed);
            while begun.load(Relaxed) < 2 {
                thread::yield_now();
            }
            seen.lock().unwrap().push(thread::current().id());
        });
    });
    let seen = seen.into_inner().unwrap();
    assert_ne!(seen[0], seen[1]);
}

#[test]
fn concurrent_callers_take_turns() {
    let pool = ThreadPool::new(3).unwrap();
    thread::scope(|scope| {
        for caller in 0..4_usize {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..300_usize {
                    let n = caller * 37 + round % 50;
                    let sum = AtomicUsize::new(0);
                    pool.par_for(n, 1 + round % 5, |i| {
                        sum.fetch_add(i + caller, Relaxed);
                    });
                    assert_eq!(sum.into_inner(), n * n.saturating_sub(1) / 2 + n * caller);
                }
            });
        }
    });
}

#[test]
fn a_pool_may_be_made_used_and_dropped_inside_an_item() {
    let pool = ThreadPool::new(2).unwrap();
    let runs = AtomicUsize::new(0);
    pool.par_for(4, 1, |_| {
        let inner = ThreadPool::new(2).unwrap();
        inner.par_for(8, 1, |_| {
            runs.fetch_add(1, Relaxed);
        });
    });
    assert_eq!(runs.into_inner(), 32);
}
