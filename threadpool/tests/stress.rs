//! More threads than cores, random jobs, random sleeps, several callers: nothing lost, nothing twice.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use halfbyte_testing::Rng;
use halfbyte_threadpool::ThreadPool;

/// Where each run ends, whatever the machine.
const LIMIT: Duration = Duration::from_millis(1500);

/// Runs random jobs until `rounds` are done or the time is up.
fn random_jobs(pool: &ThreadPool, seed: u64, rounds: usize) {
    let mut rng = Rng(seed);
    let start = Instant::now();
    for round in 0..rounds {
        if start.elapsed() > LIMIT {
            break;
        }
        let n = rng.below(200);
        let chunk = rng.below(12);
        let slow = rng.below(400);
        let (count, sum) = (AtomicUsize::new(0), AtomicU64::new(0));
        pool.par_for(n, chunk, |i| {
            if i == slow {
                thread::sleep(Duration::from_micros(600));
            }
            count.fetch_add(1, Relaxed);
            sum.fetch_add((i * i) as u64, Relaxed);
        });
        let expected: u64 = (0..n as u64).map(|i| i * i).sum();
        let got = (count.into_inner(), sum.into_inner());
        assert_eq!(got, (n, expected), "seed {seed}, round {round}: {n} items, chunk {chunk}");
        if rng.below(50) == 0 {
            thread::sleep(Duration::from_micros(rng.below(1000) as u64));
        }
    }
}

#[test]
fn eight_threads_one_caller() {
    let pool = ThreadPool::new(8).unwrap();
    random_jobs(&pool, 1, 20_000);
}

#[test]
fn eight_threads_three_callers() {
    let pool = ThreadPool::new(8).unwrap();
    thread::scope(|scope| {
        for seed in 2..5 {
            let pool = &pool;
            scope.spawn(move || random_jobs(pool, seed, 20_000));
        }
    });
}

#[test]
fn pools_come_and_go() {
    let start = Instant::now();
    for seed in 100..200 {
        if start.elapsed() > LIMIT {
            break;
        }
        let pool = ThreadPool::new(1 + Rng(seed).below(8)).unwrap();
        random_jobs(&pool, seed, 20);
    }
}
