//! Names and CPUs of workers.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use halfbyte_threadpool::{Error, PoolBuilder, ThreadPool};

/// What each of the pool's threads says, the caller's included.
fn ask_all<T: Send>(pool: &ThreadPool, ask: impl Fn() -> T + Sync) -> Vec<T> {
    let begun = AtomicUsize::new(0);
    let answers = Mutex::new(Vec::new());
    pool.par_for(pool.threads(), 1, |_| {
        // Nobody ends before all have begun, so each has one item.
        begun.fetch_add(1, Relaxed);
        while begun.load(Relaxed) < pool.threads() {
            thread::yield_now();
        }
        answers.lock().expect("no panic").push(ask());
    });
    answers.into_inner().expect("no panic")
}

#[test]
fn workers_are_named_as_asked() {
    let pool = PoolBuilder::new(4).name("decoder").build().unwrap();
    let names: BTreeSet<_> =
        ask_all(&pool, || thread::current().name().unwrap().to_owned()).into_iter().collect();
    let caller = thread::current().name().unwrap().to_owned();
    let expected = ["decoder-1", "decoder-2", "decoder-3"].map(str::to_owned).into_iter().chain([caller]);
    assert_eq!(names, expected.collect());
}

#[test]
fn impossible_wishes_are_errors() {
    let error = PoolBuilder::new(2).name("a\0b").build().unwrap_err();
    assert!(matches!(&error, Error::Name { got } if got == "a\0b"), "{error:?}");
    let error = PoolBuilder::new(3).pin([0, 0]).build().unwrap_err();
    assert!(matches!(error, Error::PinCount { expected: 3, got: 2 }), "{error:?}");
    assert!(matches!(PoolBuilder::new(0).pin([]).build(), Err(Error::ThreadCount { got: 0 })));
}

#[cfg(target_os = "linux")]
mod pinned {
    use super::*;

    /// The CPUs the calling thread may run on, as the kernel shows them: `0-1`.
    fn allowed() -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("procfs");
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.expect("the kernel's list").trim().to_owned()
    }

    #[test]
    fn workers_run_on_their_cpu_and_the_caller_where_it_did() {
        let before = allowed();
        let first: usize = before.split(['-', ',']).next().unwrap().parse().unwrap();
        let last: usize = before.split(['-', ',']).next_back().unwrap().parse().unwrap();
        let pool = PoolBuilder::new(3).pin([0, first, last]).build().unwrap();
        let mut seen = ask_all(&pool, || (thread::current().name().map(str::to_owned), allowed()));
        seen.sort();
        let worker = |i: usize, cpu: usize| (Some(format!("halfbyte-{i}")), cpu.to_string());
        assert!(seen.contains(&worker(1, first)), "{seen:?}");
        assert!(seen.contains(&worker(2, last)), "{seen:?}");
        assert_eq!(allowed(), before);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error() {
        for cpu in [4095, usize::MAX] {
            let error = PoolBuilder::new(2).pin([0, cpu]).build().unwrap_err();
            assert!(matches!(error, Error::Pin { worker: 1, cpu: got, .. } if got == cpu), "{error:?}");
            assert_eq!(error.to_string(), format!("could not pin worker 1 to CPU {cpu}"));
        }
    }
}

#[cfg(not(target_os = "linux"))]
#[test]
fn pinning_is_refused_where_it_cannot_be_done() {
    let error = PoolBuilder::new(2).pin([0, 0]).build().unwrap_err();
    let Error::Pin { source, .. } = error else { panic!("{error:?}") };
    assert_eq!(source.kind(), std::io::ErrorKind::Unsupported);
}
