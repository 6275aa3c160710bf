//! Parts of one slice: those inside it, those outside, and parts on several threads.

#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use halfbyte_threadpool::{DisjointMut, ThreadPool};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn parts_are_where_they_were_asked_for() {
    let mut data: Vec<usize> = (0..10).collect();
    let shared = DisjointMut::new(&mut data);
    assert_eq!((shared.len(), shared.is_empty()), (10, false));
    // SAFETY: the three parts do not overlap.
    let parts = [(0, 3), (3, 7), (10, 0)].map(|(start, len)| unsafe { shared.part(start, len) });
    assert_eq!(parts[0], [0, 1, 2]);
    assert_eq!(parts[1], [3, 4, 5, 6, 7, 8, 9]);
    assert!(parts[2].is_empty());
    parts[1][6] = 90;
    assert_eq!(data[9], 90);
    assert!(DisjointMut::<u8>::new(&mut []).is_empty());
}

#[test]
fn parts_outside_the_slice_are_refused() {
    let mut data = [0_u8; 10];
    let shared = DisjointMut::new(&mut data);
    for (start, len) in [(0, 11), (10, 1), (11, 0), (5, usize::MAX), (usize::MAX, 1), (usize::MAX, 0)] {
        // SAFETY: no other part is in use.
        let part = catch_unwind(AssertUnwindSafe(|| unsafe { shared.part(start, len) }.len()));
        let message = *part.unwrap_err().downcast::<String>().unwrap();
        assert_eq!(message, format!("part of {len} elements from {start} on, of a slice of 10"));
    }
}

#[test]
fn items_write_columns_of_a_matrix() {
    const ROWS: usize = 37;
    const COLUMNS: usize = 53;
    for threads in [1, 2, 4] {
        let pool = ThreadPool::new(threads).unwrap();
        let mut matrix: Vec<String> = vec![String::new(); ROWS * COLUMNS];
        let shared = DisjointMut::new(&mut matrix);
        pool.par_for(COLUMNS, 2, |column| {
            for row in 0..ROWS {
                // SAFETY: every item has a column of its own.
                let element = unsafe { shared.part(row * COLUMNS + column, 1) };
                element[0] += &format!("{row} {column}");
            }
        });
        for (i, text) in matrix.iter().enumerate() {
            assert_eq!(*text, format!("{} {}", i / COLUMNS, i % COLUMNS));
        }
    }
}
