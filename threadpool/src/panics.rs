//! Panics of items: all other items still run, the first panic travels to the caller, the rest are dropped.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::sync::{Mutex, lock};

/// What a panic carries.
pub(crate) type Payload = Box<dyn Any + Send>;

/// Where threads put what their items panicked with.
#[derive(Debug, Default)]
pub(crate) struct FirstPanic(Mutex<Option<Payload>>);

impl FirstPanic {
    /// Runs `work`; keeps its panic if there is one and it is the first.
    ///
    /// What `work` leaves broken when it unwinds is seen by nobody until the panic is resumed in the caller, as
    /// in a plain loop. That is why the closures of this crate need not be `UnwindSafe`.
    pub(crate) fn catch(&self, work: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(work)) {
            let mut first = lock(&self.0);
            if first.is_none() {
                *first = Some(payload);
            } else {
                drop(first);
                discard(payload);
            }
        }
    }

    /// Continues the kept panic in this thread, if there is one.
    pub(crate) fn resume(self) {
        let payload = self.0.into_inner().unwrap_or_else(crate::sync::PoisonError::into_inner);
        if let Some(payload) = payload {
            resume_unwind(payload);
        }
    }
}

/// Drops a payload. One whose destructor panics must not take the worker with it.
fn discard(payload: Payload) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}

/// Calls `f` on each item of `range`, on the later ones too when one panics, then panics as the first did.
///
/// One `catch_unwind` covers the whole loop and is entered again only after a panic, so that the loop over
/// items that behave stays as the compiler likes it.
pub(crate) fn for_each(range: Range<usize>, f: &impl Fn(usize)) {
    let mut rest = range;
    let first = FirstPanic::default();
    while !rest.is_empty() {
        first.catch(|| rest.by_ref().for_each(f));
    }
    first.resume();
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn for_each_goes_on_after_a_panic_and_reports_the_first() {
        let seen = RefCell::new(Vec::new());
        let caught = catch_unwind(AssertUnwindSafe(|| {
            for_each(3..9, &|i| {
                seen.borrow_mut().push(i);
                assert!(i != 4 && i != 8, "item {i}");
            });
        }));
        assert_eq!(*seen.borrow(), [3, 4, 5, 6, 7, 8]);
        assert_eq!(caught.unwrap_err().downcast_ref::<String>().unwrap(), "item 4");
    }

    #[test]
    fn a_payload_that_panics_when_dropped_is_contained() {
        struct Grenade;
        impl Drop for Grenade {
            fn drop(&mut self) {
                panic!("payload dropped");
            }
        }
        let first = FirstPanic::default();
        first.catch(|| panic!("one"));
        first.catch(|| std::panic::panic_any(Grenade));
        let caught = catch_unwind(AssertUnwindSafe(|| first.resume()));
        assert_eq!(*caught.unwrap_err().downcast_ref::<&str>().unwrap(), "one");
    }
}
