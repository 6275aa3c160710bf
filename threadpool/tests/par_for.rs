//! Every item runs exactly once, whatever the sizes, and sees and shows all memory it should.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use halfbyte_threadpool::{Error, MAX_THREADS, ThreadPool};

const THREADS: [usize; 4] = [1, 2, 3, 8];
const SIZES: [usize; 13] = [0, 1, 2, 3, 7, 8, 9, 31, 64, 100, 255, 256, 1000];
const CHUNKS: [usize; 9] = [0, 1, 2, 3, 7, 64, 1000, 1001, usize::MAX];

/// The ranges a call must make, straight from its documentation.
fn expected_ranges(pool: &ThreadPool, n: usize, chunk: usize) -> Vec<Range<usize>> {
    let chunk = if chunk == 0 { pool.default_chunk(n) } else { chunk };
    let mut ranges = Vec::new();
    let mut start = 0;
    while start < n {
        let end = if n - start > chunk { start + chunk } else { n };
        ranges.push(start..end);
        start = end;
    }
    ranges
}

#[test]
fn par_for_runs_every_item_once() {
    for threads in THREADS {
        let pool = ThreadPool::new(threads).unwrap();
        assert_eq!(pool.threads(), threads);
        for n in SIZES {
            for chunk in CHUNKS {
                let runs: Vec<AtomicU32> = (0..n).map(|_| AtomicU32::new(0)).collect();
                pool.par_for(n, chunk, |i| {
                    runs[i].fetch_add(1, Relaxed);
                });
                assert!(
                    runs.iter().all(|r| r.load(Relaxed) == 1),
                    "{threads} threads, {n} items, chunk {chunk}"
                );
            }
        }
    }
}

#[test]
fn par_ranges_cuts_where_it_says() {
    for threads in THREADS {
        let pool = ThreadPool::new(threads).unwrap();
        for n in SIZES {
            for chunk in CHUNKS {
                let ranges = Mutex::new(Vec::new());
                pool.par_ranges(n, chunk, |range| ranges.lock().unwrap().push(range));
                let mut ranges = ranges.into_inner().unwrap();
                ranges.sort_by_key(|range| range.start);
                let expected = expected_ranges(&pool, n, chunk);
                assert_eq!(ranges, expected, "{threads} threads, {n} items, chunk {chunk}");
            }
        }
    }
}

#[test]
fn par_chunks_mut_writes_every_element_with_a_ragged_tail() {
    for threads in THREADS {
        let pool = ThreadPool::new(threads).unwrap();
        for n in SIZES {
            for chunk in CHUNKS {
                let len = if chunk == 0 { pool.default_chunk(n) } else { chunk };
                let mut data = vec![usize::MAX; n];
                pool.par_chunks_mut(&mut data, chunk, |part, values| {
                    assert_eq!(values.len(), len.min(n - part * len));
                    for (i, value) in values.iter_mut().enumerate() {
                        *value = part * len + i;
                    }
                });
                assert!(data.iter().copied().eq(0..n), "{threads} threads, {n} elements, chunk {chunk}");
            }
        }
    }
}

#[test]
fn par_chunks_mut_takes_values_without_size_and_values_that_own() {
    let pool = ThreadPool::new(3).unwrap();
    let parts = AtomicU32::new(0);
    pool.par_chunks_mut(&mut [(); 10], 4, |_, values| {
        parts.fetch_add(values.len() as u32, Relaxed);
    });
    assert_eq!(parts.into_inner(), 10);

    let mut words = vec![String::new(); 10];
    pool.par_chunks_mut(&mut words, 3, |part, words| {
        words.iter_mut().for_each(|word| word.push_str(&part.to_string()))
    });
    assert_eq!(words.concat(), "0001112223");
}

#[test]
fn results_of_one_call_are_seen_by_the_next() {
    let pool = ThreadPool::new(3).unwrap();
    let mut data = vec![0_u64; 300];
    for round in 0..2000 {
        pool.par_chunks_mut(&mut data, 7, |_, part| part.iter_mut().for_each(|x| *x += 1));
        let sum: u64 = data.iter().sum();
        assert_eq!(sum, (round + 1) * 300);
    }
}

#[test]
fn work_reaches_other_threads_which_have_names() {
    let pool = ThreadPool::new(2).unwrap();
    let names = Mutex::new(Vec::new());
    // Each item waits until the other has begun: one thread alone could not do it.
    let begun = AtomicU32::new(0);
    pool.par_for(2, 1, |_| {
        begun.fetch_add(1, Relaxed);
        while begun.load(Relaxed) < 2 {
            std::thread::yield_now();
        }
        names.lock().unwrap().push(std::thread::current().name().map(str::to_owned));
    });
    let names = names.into_inner().unwrap();
    assert_eq!(names.iter().filter(|name| name.as_deref() == Some("halfbyte-1")).count(), 1, "{names:?}");
}

#[test]
fn impossible_thread_counts_are_errors() {
    for got in [0, MAX_THREADS + 1, usize::MAX] {
        let error = ThreadPool::new(got).unwrap_err();
        assert!(matches!(error, Error::ThreadCount { got: g } if g == got), "{error:?}");
        assert_eq!(error.to_string(), format!("a pool has 1 to 1024 threads, got {got}"));
    }
}

#[test]
fn a_slow_thread_holds_one_chunk() {
    let pool = ThreadPool::new(2).unwrap();
    let done = AtomicU32::new(0);
    // Item 0 ends only when all others have: whoever does not hold it must take all of them.
    pool.par_for(50, 1, |i| {
        while i == 0 && done.load(Relaxed) < 49 {
            std::thread::yield_now();
        }
        done.fetch_add(1, Relaxed);
    });
    assert_eq!(done.into_inner(), 50);
}
