//! A panic in an item: the others run, the caller gets it, the pool lives on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use halfbyte_threadpool::ThreadPool;

/// The payload of the panic of `call`.
fn payload_of(call: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(call)).expect_err("the call should have panicked");
    *payload.downcast::<String>().expect("a formatted message")
}

#[test]
fn all_other_items_run_and_the_pool_stays_usable() {
    for threads in [1, 2, 3, 8] {
        let pool = ThreadPool::new(threads).unwrap();
        for chunk in [0, 1, 7, 100] {
            for culprit in [0, 1, 50, 99] {
                let runs: Vec<AtomicU32> = (0..100).map(|_| AtomicU32::new(0)).collect();
                let message = payload_of(|| {
                    pool.par_for(100, chunk, |i| {
                        runs[i].fetch_add(1, Relaxed);
                        assert!(i != culprit, "item {i}");
                    });
                });
                assert_eq!(message, format!("item {culprit}"));
                assert!(runs.iter().all(|r| r.load(Relaxed) == 1), "{threads} threads, chunk {chunk}");

                let after = AtomicU32::new(0);
                pool.par_for(100, chunk, |_| {
                    after.fetch_add(1, Relaxed);
                });
                assert_eq!(after.into_inner(), 100);
            }
        }
    }
}

#[test]
fn every_item_may_panic() {
    let pool = ThreadPool::new(3).unwrap();
    for _ in 0..20 {
        let runs = AtomicU32::new(0);
        let message = payload_of(|| {
            pool.par_for(40, 2, |i| {
                runs.fetch_add(1, Relaxed);
                panic!("item {i}");
            });
        });
        assert!(message.starts_with("item "), "{message}");
        assert_eq!(runs.into_inner(), 40);
    }
}

#[test]
fn a_range_or_part_is_the_unit_of_the_other_calls() {
    for threads in [1, 3] {
        let pool = ThreadPool::new(threads).unwrap();
        let calls = AtomicU32::new(0);
        let message = payload_of(|| {
            pool.par_ranges(100, 9, |range| {
                calls.fetch_add(1, Relaxed);
                assert!(!range.contains(&50), "range at {}", range.start);
            });
        });
        assert_eq!((message.as_str(), calls.into_inner()), ("range at 45", 12));

        let mut data = [0; 10];
        let message = payload_of(|| {
            pool.par_chunks_mut(&mut data, 4, |i, part| {
                assert!(i != 1, "part {i}");
                part.fill(1);
            });
        });
        assert_eq!((message.as_str(), data), ("part 1", [1, 1, 1, 1, 0, 0, 0, 0, 1, 1]));
    }
}

#[test]
fn a_panic_in_a_nested_call_passes_both() {
    let pool = ThreadPool::new(2).unwrap();
    let runs = AtomicU32::new(0);
    let message = payload_of(|| {
        pool.par_for(4, 1, |i| {
            pool.par_for(5, 2, |j| {
                runs.fetch_add(1, Relaxed);
                assert!((i, j) != (2, 3), "item {i}, {j}");
            });
        });
    });
    assert_eq!((message.as_str(), runs.into_inner()), ("item 2, 3", 20));
}
