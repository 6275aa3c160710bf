//! A reduction gives the same bits whatever the threads and their timing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use halfbyte_threadpool::ThreadPool;

/// Terms of very different size: their sum depends on the order.
fn terms(n: usize) -> Vec<f32> {
    (0..n)
        .map(|i| if i % 3 == 0 { 1e8 } else { 1.0 / (i + 1) as f32 } * if i % 2 == 0 { 1.0 } else { -1.0 })
        .collect()
}

fn sum(part: &[f32]) -> f32 {
    part.iter().fold(0.0, |sum, x| sum + x)
}

#[test]
fn the_sum_is_that_of_a_plain_loop_over_the_chunks() {
    for n in [1, 2, 63, 64, 65, 1000, 4097] {
        let terms = terms(n);
        for chunk in [0, 1, 7, 64, 5000, usize::MAX] {
            let len = if chunk == 0 { n.div_ceil(64) } else { chunk };
            let expected = terms.chunks(len).map(sum).reduce(|a, b| a + b).unwrap();
            for threads in [1, 2, 3, 8] {
                let pool = ThreadPool::new(threads).unwrap();
                for _ in 0..5 {
                    let got = pool.par_reduce(n, chunk, |range| sum(&terms[range]), |a, b| a + b);
                    assert_eq!(
                        got.map(f32::to_bits),
                        Some(expected.to_bits()),
                        "{n} by {chunk}, {threads} threads"
                    );
                }
            }
        }
    }
}

#[test]
fn chunks_that_end_in_another_order_are_combined_in_theirs() {
    let pool = ThreadPool::new(3).unwrap();
    let text = pool.par_reduce(
        8,
        1,
        |range| {
            // The first chunks take longest.
            thread::sleep(Duration::from_millis(8 - range.start as u64));
            range.start.to_string()
        },
        |a, b| format!("({a} {b})"),
    );
    assert_eq!(text.unwrap(), "(((((((0 1) 2) 3) 4) 5) 6) 7)");
}

#[test]
fn nothing_reduces_to_none_and_one_to_itself() {
    let pool = ThreadPool::new(2).unwrap();
    let none = pool.par_reduce(0, 0, |_| panic!("an empty range"), |a: u8, _| a);
    assert_eq!(none, None);
    assert_eq!(pool.par_reduce(5, 0, |range| range.len(), |a, b| a + b), Some(5));
    assert_eq!(pool.par_reduce(5, 5, |range| range, |_, _| panic!("one value")), Some(0..5));
}

#[test]
fn a_panic_in_either_closure_reaches_the_caller() {
    let pool = ThreadPool::new(2).unwrap();
    let payload =
        |call: &dyn Fn()| *catch_unwind(AssertUnwindSafe(call)).unwrap_err().downcast::<&str>().unwrap();
    let map = payload(&|| {
        pool.par_reduce(9, 1, |range| assert!(range.start != 4, "map"), |(), ()| ());
    });
    let combine = payload(&|| {
        pool.par_reduce(9, 1, |range| range.start, |_, _| panic!("combine"));
    });
    assert_eq!((map, combine), ("map", "combine"));
    assert_eq!(pool.par_reduce(9, 1, |range| range.start, |a, b| a + b), Some(36));
}
