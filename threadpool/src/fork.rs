//! Whether this process is a child that `fork` made after a pool was.
//!
//! `fork` copies one thread. The copy of a pool has no workers, and its locks stay as they were, perhaps held by a
//! thread that is not there. So the pool must know before it touches any of that. The process's number would
//! tell, but costs a system call each time. Instead the C library is asked once to count forks in each child.
//! Processes made by a bare `clone` system call, past the C library, are not noticed.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// How often this process's line has forked. Relaxed throughout: it changes only in a child that has one thread.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The process something belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(u32);

impl Process {
    /// The process that calls.
    pub(crate) fn current() -> Self {
        count_forks();
        Self(FORKS.load(Relaxed))
    }

    /// Whether the caller is in another process, a child of this one.
    #[inline]
    pub(crate) fn is_past(self) -> bool {
        FORKS.load(Relaxed) != self.0
    }
}

#[cfg(all(any(target_os = "linux", target_vendor = "apple"), not(miri)))]
fn count_forks() {
    static ONCE: std::sync::Once = std::sync::Once::new();

    extern "C" fn in_child() {
        FORKS.fetch_add(1, Relaxed);
    }

    ONCE.call_once(|| {
        // SAFETY: the handler adds to an atomic number, which any moment of a new process allows.
        let status = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        // Out of memory is its only error. Then forks go unnoticed, as on systems without this function.
        debug_assert_eq!(status, 0, "pthread_atfork");
    });
}

#[cfg(not(all(any(target_os = "linux", target_vendor = "apple"), not(miri))))]
fn count_forks() {}
