//! A pool in a process made by `fork`. Alone in its file, one test, so that the process that forks has no other
//! threads but the pools'.

#![cfg(any(target_os = "linux", target_os = "macos"))]

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use halfbyte_threadpool::ThreadPool;

/// How a child ended, as `waitpid` tells it: the exit status, or the signal.
#[derive(Debug, PartialEq)]
enum End {
    Exit(i32),
    Signal(i32),
    Hang,
}

/// Runs `child` in a fork and tells its end: status 0 if it returns true.
fn in_child(child: impl FnOnce() -> bool) -> End {
    // SAFETY: the child runs code that allocates and starts threads, which POSIX does not promise after a fork of a
    // process with threads; the C libraries of these systems keep their allocators usable.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        let status = if child() { 0 } else { 1 };
        // SAFETY: ends the child without the exit handlers, which belong to the parent.
        unsafe { libc::_exit(status) }
    }
    let start = Instant::now();
    let mut status = 0;
    loop {
        // SAFETY: the pointer is to an integer that outlives the call.
        match unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } {
            0 if start.elapsed() < Duration::from_secs(20) => thread::sleep(Duration::from_millis(1)),
            0 => {
                // SAFETY: `pid` is this process's own child, not waited for yet.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                // SAFETY: as above.
                unsafe { libc::waitpid(pid, &mut status, 0) };
                return End::Hang;
            }
            _ if libc::WIFEXITED(status) => return End::Exit(libc::WEXITSTATUS(status)),
            _ => return End::Signal(libc::WTERMSIG(status)),
        }
    }
}

fn works(pool: &ThreadPool) -> bool {
    let runs = AtomicUsize::new(0);
    pool.par_for(1000, 7, |i| {
        runs.fetch_add(i, Relaxed);
    });
    runs.into_inner() == 499_500
}

#[test]
fn a_forked_child_has_a_pool_that_works() {
    // Workers spinning, and workers asleep.
    for pause in [0, 20] {
        let pool = ThreadPool::new(3).unwrap();
        assert!(works(&pool));
        thread::sleep(Duration::from_millis(pause));

        assert_eq!(in_child(|| works(&pool)), End::Exit(0), "the parent's pool");
        assert_eq!(in_child(|| works(&ThreadPool::new(3).unwrap())), End::Exit(0), "a pool of its own");
        let grandchild = || in_child(|| works(&pool)) == End::Exit(0);
        assert_eq!(in_child(grandchild), End::Exit(0), "a grandchild");
        let pool_of_child = || {
            let own = ThreadPool::new(2).unwrap();
            in_child(|| works(&own) && works(&pool)) == End::Exit(0) && works(&own)
        };
        assert_eq!(in_child(pool_of_child), End::Exit(0), "a child's pool in a grandchild");
        assert!(works(&pool), "the parent after the forks");
    }

    // Dropping the copy joins nobody.
    let pool = ThreadPool::new(3).unwrap();
    let mut pool = Some(pool);
    assert_eq!(in_child(|| pool.take().is_some()), End::Exit(0));
    assert!(works(pool.as_ref().unwrap()));
    let pool = pool.unwrap();

    // A fork while another thread has the pool's lock, which stays locked in the child.
    let busy = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            pool.par_for(2, 1, |_| {
                busy.fetch_add(1, Relaxed);
                while busy.load(Relaxed) < 3 {
                    thread::yield_now();
                }
            })
        });
        while busy.load(Relaxed) < 2 {
            thread::yield_now();
        }
        let end = in_child(|| works(&pool));
        busy.fetch_add(1, Relaxed);
        assert_eq!(end, End::Exit(0), "a fork during a job");
    });

    // A child that returns from the item it was forked in would wait for workers it does not have: it is aborted.
    let pid = std::process::id();
    let meet = AtomicUsize::new(0);
    let ends = std::sync::Mutex::new(Vec::new());
    pool.par_for(3, 1, |i| {
        meet.fetch_add(1, Relaxed);
        while meet.load(Relaxed) < 3 {
            thread::yield_now();
        }
        if i > 0 {
            // The workers' items, which last until the child has ended.
            while meet.load(Relaxed) < 4 {
                thread::yield_now();
            }
        } else {
            // SAFETY: as in `in_child`.
            let child = unsafe { libc::fork() };
            if child == 0 {
                return;
            }
            let mut status = 0;
            // SAFETY: the pointer is to an integer that outlives the call.
            unsafe { libc::waitpid(child, &mut status, 0) };
            meet.fetch_add(1, Relaxed);
            ends.lock().unwrap().push(libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)));
        }
    });
    if std::process::id() != pid {
        // The child, which should not have come here: a status that is not the abort's.
        // SAFETY: as in `in_child`.
        unsafe { libc::_exit(1) }
    }
    assert_eq!(ends.into_inner().unwrap(), [Some(libc::SIGABRT)]);
    assert!(works(&pool));
}
