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
fn an_idle_pool_sleeps() {
    let pool = ThreadPool::new(8).unwrap();
    pool.par_for(100, 1, |_| {});
    // The spin deadline is 0.3 ms of each thread's own; leave them time to get there on a busy machine.
    thread::sleep(Duration::from_millis(100));

    let before = cpu_time();
    thread::sleep(Duration::from_millis(200));
    let used = cpu_time() - before;
    // A single spinning thread would use 200 ms of a free core; 40 ms is a fifth of one core.
    assert!(used < Duration::from_millis(40), "an idle pool used {used:?} of CPU time in 200 ms");
}
