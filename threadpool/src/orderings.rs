//! Every memory ordering the protocol leans on, and every step that could be left out by mistake, by name.
//!
//! PROTOCOL.md says what each is for. Named, they can be weakened one at a time: under `--cfg loom` the test
//! `models::every_mutant_is_caught` builds each [`Ordered`] place as relaxed, and each [`Step`] as left out, and
//! shows that a model fails then. In every other build the functions here are constants.

use crate::sync::{Ordering, fence};

/// The environment variable that names the mutant in a model's process.
#[cfg(all(test, loom))]
pub(crate) const MUTANT_VARIABLE: &str = "HALFBYTE_MUTANT";

macro_rules! places {
    ($($(#[$doc:meta])* $name:ident = $order:ident,)*) => {
        /// A place whose ordering matters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Ordered { $($(#[$doc])* $name,)* }

        impl Ordered {
            #[cfg(all(test, loom))]
            pub(crate) const ALL: &[Self] = &[$(Self::$name),*];

            const fn written(self) -> Ordering {
                match self { $(Self::$name => Ordering::$order,)* }
            }
        }
    };
}

places! {
    /// The store of a new ticket; read by [`NextGeneration`](Self::NextGeneration).
    Publish = Release,
    /// A worker's load of the ticket while it waits for a new generation; reads [`Publish`](Self::Publish).
    NextGeneration = Acquire,
    /// A worker's subtraction of the items it has run; read by [`Wait`](Self::Wait) and
    /// [`WaitAsleep`](Self::WaitAsleep).
    Report = Release,
    /// The spinning caller's load of the pending items; reads [`Report`](Self::Report).
    Wait = Acquire,
    /// The sleeping caller's load of the pending items; reads [`Report`](Self::Report).
    WaitAsleep = Acquire,
    /// Between the new ticket and the look at the sleepers' flags; with [`SleepFence`](Self::SleepFence).
    PublishFence = SeqCst,
    /// Between the raised flag and the last look at the ticket; with [`PublishFence`](Self::PublishFence).
    SleepFence = SeqCst,
}

impl Ordered {
    /// The ordering to use.
    #[inline(always)]
    pub(crate) fn get(self) -> Ordering {
        if is_mutant(&self) { Ordering::Relaxed } else { self.written() }
    }

    /// A fence of this ordering.
    #[inline(always)]
    pub(crate) fn fence(self) {
        if !is_mutant(&self) {
            fence(self.written());
        }
    }
}

/// A step of the protocol that everything would seem to work without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The poster closes the finished job's ticket before it writes the next job's shape (P1 before P2 in
    /// ticket.rs). Left out: it closes it after. That is what weakening the shape's release would allow.
    CloseFirst,
    /// The poster takes its turn.
    TakeTurn,
    /// A chunk of a lane is claimed in one step.
    ClaimAtOnce,
    /// A worker looks at the ticket once more after it has raised its flag.
    LookAgain,
    /// The caller takes its own items off the count and announces its sleep in one step.
    AnnounceAtOnce,
    /// The worker that reports last wakes the caller.
    WakeCaller,
    /// The end of the pool wakes the workers.
    WakeToStop,
}

impl Step {
    #[cfg(all(test, loom))]
    pub(crate) const ALL: &[Self] = &[
        Self::CloseFirst,
        Self::TakeTurn,
        Self::ClaimAtOnce,
        Self::LookAgain,
        Self::AnnounceAtOnce,
        Self::WakeCaller,
        Self::WakeToStop,
    ];

    /// Whether to do it: always, but in a mutant.
    #[inline(always)]
    pub(crate) fn kept(self) -> bool {
        !is_mutant(&self)
    }
}

/// Whether this process is the mutant of this name.
#[cfg(all(test, loom))]
fn is_mutant(name: &impl std::fmt::Debug) -> bool {
    static MUTANT: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let mutant = MUTANT.get_or_init(|| std::env::var(MUTANT_VARIABLE).ok());
    mutant.as_ref().is_some_and(|mutant| *mutant == format!("{name:?}"))
}

#[cfg(not(all(test, loom)))]
#[inline(always)]
const fn is_mutant<T>(_name: &T) -> bool {
    false
}
