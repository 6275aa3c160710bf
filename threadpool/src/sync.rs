//! Every synchronisation primitive the pool uses, in one place.
//!
//! The rest of the crate imports atomics, locks and thread parking from here and never from `std`. Under
//! `--cfg loom` they are those of the model checker `loom`, which runs the tests of models.rs in every order that
//! matters. The protocol therefore keeps to what loom models: acquire/release accesses, SeqCst *fences* (no
//! SeqCst accesses), mutexes and park/unpark.

#[cfg(not(loom))]
mod primitives {
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
    pub(crate) use std::sync::{Arc, Mutex, MutexGuard};
    pub(crate) use std::thread::{Builder, JoinHandle, Thread, current, park, yield_now};
    pub(crate) use std::thread_local;

    /// A cell whose accesses the pool orders by itself, with the interface of loom's, which reports accesses that
    /// are not ordered.
    #[derive(Debug)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// For reading.
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        /// For writing.
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

#[cfg(loom)]
mod primitives {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
    pub(crate) use loom::sync::{Arc, Mutex, MutexGuard};
    pub(crate) use loom::thread::{Builder, JoinHandle, Thread, current, park, yield_now};
    pub(crate) use loom::thread_local;
}

pub(crate) use primitives::*;
pub(crate) use std::sync::PoisonError;

use std::ops::Deref;

/// Locks `mutex`, ignoring poison: nothing in this crate leaves guarded data half written.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A value alone on its cache lines.
///
/// 128 bytes, not 64: x86 prefetches lines in pairs, and some ARM cores have 128-byte lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

impl<T> Deref for CachePadded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
