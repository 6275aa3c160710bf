//! One slot for every function of the driver, empty until a driver is loaded or an emulator installed.
//!
//! A slot is written at most once, from empty to an address, and read by every call: [`crate::sys`] reads it in Rust,
//! the exports of feature `cust` in one machine instruction.

use crate::symbols::with_symbols;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The address of one driver function, null while there is none.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Slot(AtomicPtr<()>);

impl Slot {
    const fn empty() -> Slot {
        Slot(AtomicPtr::new(null_mut()))
    }

    /// The function's address, or null.
    pub(crate) fn address(&self) -> *mut () {
        // Pairs with the Release of `fill`: a thread that sees the address also sees the library that it points into.
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn is_filled(&self) -> bool {
        !self.address().is_null()
    }

    /// Sets the address. Only `load.rs` calls it, under its lock.
    pub(crate) fn fill(&self, address: *mut ()) {
        // Pairs with the Acquire of `address`.
        self.0.store(address, Ordering::Release);
    }
}

macro_rules! slots {
    (answered { $($answered:ident,)* } forwarded { $($forwarded:ident,)* } ours { $($ours:ident,)* }) => {
        slots! { $($answered)* $($forwarded)* $($ours)* }
    };
    ($($name:ident)*) => {
        #[allow(non_upper_case_globals, reason = "the driver's own names")]
        #[allow(dead_code, reason = "without feature `cust` most are reached by name only")]
        pub(crate) mod slot {
            use super::Slot;
            $(pub(crate) static $name: Slot = Slot::empty();)*
        }

        /// All slots by name, in no particular order.
        pub(crate) static TABLE: &[(&str, &Slot)] = &[$((stringify!($name), &slot::$name),)*];
    };
}

with_symbols!(slots);

/// The slot of the function called `name`.
pub(crate) fn find(name: &str) -> Option<&'static Slot> {
    TABLE.iter().find(|(n, _)| *n == name).map(|(_, slot)| *slot)
}
