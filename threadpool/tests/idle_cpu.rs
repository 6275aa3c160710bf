//! An idle pool uses no CPU. Alone in its file: it reads the CPU time of the whole process.

#![cfg(target_os = "linux")]

use std::thread;
use std::time::Duration;

use halfbyte_threadpool::ThreadPool;

/// CPU time this process has used.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec that outlives the call.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(status, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn an_idle_pool_uses_less_than_a_thousandth_of_a_core() {
    let pool = ThreadPool::new(8).unwrap();
    let mut used = Vec::new();
    // A thread that others keep from its core for long reaches its deadline late, so a busy machine gets more tries.
    for _ in 0..5 {
        pool.par_for(100, 1, |_| {});
        thread::sleep(Duration::from_millis(10));
        let before = cpu_time();
        thread::sleep(Duration::from_millis(500));
        used.push(cpu_time() - before);
        if used.last() < Some(&Duration::from_micros(500)) {
            return;
        }
    }
    panic!("an idle pool of 8 threads used {used:?} of CPU time in 500 ms each, from 10 ms after a call");
}
