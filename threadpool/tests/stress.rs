//! More threads than cores, random jobs, random sleeps, several callers: nothing lost, nothing twice.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use halfbyte_threadpool::ThreadPool;

/// Where each run ends, whatever the machine.
const LIMIT: Duration = Duration::from_millis(1500);

/// splitmix64: numbers that are the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// Runs random jobs until `rounds` are done or the time is up.
fn random_jobs(pool: &ThreadPool, seed: u64, rounds: usize) {
    let mut random = Random(seed);
    let start = Instant::now();
    for round in 0..rounds {
        if start.elapsed() > LIMIT {
            break;
        }
        let n = random.below(200) as usize;
        let chunk = random.below(12) as usize;
        let slow = random.below(400) as usize;
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
        if random.below(50) == 0 {
            thread::sleep(Duration::from_micros(random.below(1000)));
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
        let pool = ThreadPool::new(1 + Random(seed).below(8) as usize).unwrap();
        random_jobs(&pool, seed, 20);
    }
}
