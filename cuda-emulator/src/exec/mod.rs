//! Executing decoded kernels.
//!
//! A [`Block`](block::Block) belongs to one host thread: its warps take turns in a seeded random order. Lanes of
//! a warp that part ways are run lowest position first, which brings them together again; at an
//! instruction that needs more lanes than have arrived, those that have wait until the others arrive, or until they cannot.

mod access;
mod barrier;
pub(crate) mod block;
mod collective;
mod copy;
mod global;
pub(crate) mod global_race;
mod interpret;
mod matrix;
mod order;
pub(crate) mod registers;
mod shared;
mod stats;
mod warp;
pub(crate) mod windows;

use crate::fault::FaultKind;

pub(crate) use global::GlobalView;

/// A problem with an access, before its block and thread are known.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) kind: FaultKind,
    pub(crate) detail: String,
}

impl Problem {
    pub(crate) fn new(kind: FaultKind, detail: impl Into<String>) -> Box<Self> {
        Box::new(Self { kind, detail: detail.into() })
    }
}

/// The lanes set in a mask, lowest first.
pub(crate) fn lanes_of(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        if rest == 0 {
            return None;
        }
        let lane = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        Some(lane)
    })
}
