//! The pool under the model checker: every order of events that matters, on small jobs.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test -p halfbyte-threadpool --release --lib models
//! ```
//!
//! Each model runs the real pool, from [`ThreadPool::build`] to its end, on jobs whose items write to cells that are
//! not atomic. It fails if an item runs twice or never, if an effect is not visible to who should see it, if two
//! threads get at a cell without an order between them, and if nobody can go on (a lost wake-up).
//!
//! What loom cannot show: it runs stores in program order, so it would not see a *store* that passes an earlier one.
//! Where that is the danger (the close before the shape, P1 and P2 in ticket.rs), the mutant is the swap itself.

use crate::orderings::{MUTANT_VARIABLE, Ordered, Step};
use crate::sync::{Arc, UnsafeCell};
use crate::{PoolBuilder, ThreadPool, ticket};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;

/// Explores `model` with at most `preemptions` switches away from a thread that could go on. Switches where a thread
/// waits are not counted.
fn check(preemptions: usize, model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    // A limit that no run of these models comes near, so that a mutant that goes on for ever fails.
    builder.max_branches = 2000;
    builder.check(model);
}

/// A pool that claims chunk by chunk: jobs of all sizes meet on the board.
fn pool(threads: usize, generation: u32) -> ThreadPool {
    let mut pool = pool_with_lanes(threads, generation);
    pool.max_lanes = 0;
    pool
}

fn pool_with_lanes(threads: usize, generation: u32) -> ThreadPool {
    ThreadPool::build(PoolBuilder::new(threads), generation, |builder, work| builder.spawn(work))
        .expect("a pool")
}

/// How often each item ran, in cells that nothing but the pool orders.
struct Runs(Vec<UnsafeCell<u32>>);

// SAFETY: loom's cell reports, and does not perform, accesses that are not ordered.
unsafe impl Sync for Runs {}

impl Runs {
    fn new(items: usize) -> Self {
        Self((0..items).map(|_| UnsafeCell::new(0)).collect())
    }

    fn add(&self, item: usize) {
        self.0[item].with_mut(|count| {
            // SAFETY: `with_mut` has checked that nobody else has access.
            unsafe { *count += 1 }
        });
    }

    fn get(&self, item: usize) -> u32 {
        self.0[item].with(|count| {
            // SAFETY: `with` has checked that nobody writes.
            unsafe { *count }
        })
    }

    /// Fails unless each item ran `times` times.
    fn check(&self, times: u32) {
        for item in 0..self.0.len() {
            assert_eq!(self.get(item), times, "item {item}");
        }
    }
}

/// Runs a job of `items` items and checks it.
fn job(pool: &ThreadPool, items: usize) {
    let runs = Runs::new(items);
    pool.par_for(items, 1, |i| runs.add(i));
    runs.check(1);
}

/// The pool ends before its workers sleep, while they fall asleep, and when they do.
#[test]
fn shutdown() {
    check(3, || drop(pool(3, ticket::FIRST)));
}

/// A job, and its caller's sleep until the worker reports.
#[test]
fn one_job() {
    check(4, || job(&pool(2, ticket::FIRST), 2));
}

/// A worker that is late with the first job meets the second, which has more items: claim against close.
#[test]
fn a_late_worker() {
    check(3, || {
        let pool = pool(2, ticket::FIRST);
        job(&pool, 2);
        job(&pool, 3);
    });
}

/// Two workers and the caller claim from one job.
#[test]
fn three_threads() {
    check(2, || job(&pool(3, ticket::FIRST), 3));
}

/// Both threads claim from both lanes, each chunk once.
#[test]
fn lanes() {
    check(3, || job(&pool_with_lanes(2, ticket::FIRST), 4));
}

/// Effects of one job are visible in the next, whoever runs it.
#[test]
fn jobs_see_each_other() {
    check(3, || {
        let pool = pool(2, ticket::FIRST);
        let runs = Runs::new(2);
        pool.par_for(2, 1, |i| runs.add(i));
        pool.par_for(2, 1, |i| runs.add(1 - i));
        runs.check(2);
    });
}

/// Two callers take turns.
#[test]
fn two_callers() {
    check(2, || {
        let pool = Arc::new(pool(2, ticket::FIRST));
        let other = {
            let pool = Arc::clone(&pool);
            loom::thread::spawn(move || job(&pool, 2))
        };
        job(&pool, 2);
        other.join().unwrap();
    });
}

/// Either item panics, whoever runs it; the caller gets it, and the pool goes on.
#[test]
fn panics() {
    for culprit in [0, 1] {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(move || {
            let pool = pool(2, ticket::FIRST);
            let runs = Runs::new(2);
            let caught = catch_unwind(AssertUnwindSafe(|| {
                pool.par_for(2, 1, |i| {
                    runs.add(i);
                    if i == culprit {
                        // Not `panic!`, which would print a message for each of thousands of runs.
                        resume_unwind(Box::new(i));
                    }
                });
            }));
            assert_eq!(caught.unwrap_err().downcast_ref(), Some(&culprit));
            runs.check(1);
            job(&pool, 2);
        });
    }
}

/// Generations start again while the worker is anywhere.
#[test]
fn generations_wrap() {
    check(1, || {
        let pool = pool(2, u32::MAX - 1);
        job(&pool, 2);
        job(&pool, 2);
    });
}

/// Every weakened ordering and every step left out makes a model fail. Each is tried in a process of its own,
/// since a model that fails may leave anything behind.
#[test]
fn every_mutant_is_caught() {
    const MODELS: [&str; 7] = [
        "shutdown",
        "one_job",
        "jobs_see_each_other",
        "a_late_worker",
        "two_callers",
        "three_threads",
        "lanes",
    ];
    let mutants =
        Ordered::ALL.iter().map(|m| format!("{m:?}")).chain(Step::ALL.iter().map(|m| format!("{m:?}")));
    let mut missed = Vec::new();
    for mutant in mutants {
        let caught = MODELS.into_iter().find(|model| {
            let name = format!("models::{model}");
            let mut test = Command::new(std::env::current_exe().unwrap());
            let output =
                test.args(["--exact", &name]).env(MUTANT_VARIABLE, &mutant).output().expect("a process");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("running 1 test"), "{name} is not a test");
            !output.status.success()
        });
        match caught {
            Some(model) => println!("{mutant}: caught by {model}"),
            None => missed.push(mutant),
        }
    }
    assert!(missed.is_empty(), "no model fails without {missed:?}");
}
