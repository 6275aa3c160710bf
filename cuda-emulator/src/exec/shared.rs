//! A block's shared memory: its bytes, and for each byte a tag that says who wrote it last and one that says who
//! read it last.
//!
//! A tag is an epoch of [`Order`] and a warp. A byte that was not written, and one that a `cp.async` will write,
//! have writer tags of their own, so that one comparison of the writer's tags decides most accesses: a read needs tags
//! that are not zero and either lie before the warp's floor or are its own. Accesses that fail it take a slow path. With
//! whole-block barriers alone the races found are exact. Barriers of part of a block order those warps only; of
//! several readers of a byte then one is remembered.

use super::Problem;
use super::global::misaligned;
use super::order::{FIRST, Order};
use crate::fault::FaultKind;
use crate::memory::POISON;

const WARP_BITS: u32 = 6;
/// A tag's warp when several warps read in one epoch; no warp has this number.
const SEVERAL: u16 = (1 << WARP_BITS) - 1;
/// The writer tag of a byte that was not written.
const NEVER: u16 = 0;
/// An access before all that could race with it.
const ANCIENT: u16 = 1 << WARP_BITS;
/// The writer tag of a byte that a `cp.async` will write: later than every epoch.
const PENDING: u16 = u16::MAX;
/// Epochs of tags stay below it.
const LAST_EPOCH: u32 = (1 << (16 - WARP_BITS)) - 1;

/// How an access takes part in races.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    /// Atomic, volatile and the like: they do not race with one another.
    StrongRead,
    StrongWrite,
}

/// The shared memory of one block.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    bytes: Vec<u8>,
    writers: Vec<u16>,
    readers: Vec<u16>,
    strong: Vec<u16>,
    pub(crate) order: Order,
    /// What is taken from an epoch to make it fit a tag.
    base: u32,
    /// The highest tag that is over for each warp.
    limits: Vec<u16>,
    check_races: bool,
    strong_used: bool,
}

impl Shared {
    /// Forgets everything, for a new block of `warps` warps.
    pub(crate) fn reset(&mut self, size: usize, warps: usize, check_initialised: bool, check_races: bool) {
        self.bytes.clear();
        self.bytes.resize(size, POISON);
        self.writers.clear();
        self.writers.resize(size, if check_initialised { NEVER } else { ANCIENT });
        for list in [&mut self.readers, &mut self.strong] {
            list.clear();
            list.resize(size, 0);
        }
        self.order.reset(warps);
        self.base = 0;
        self.limits.clear();
        self.limits.resize(warps, 0);
        self.check_races = check_races && warps > 1;
        self.strong_used = false;
        self.set_limits();
    }

    fn set_limits(&mut self) {
        for (warp, limit) in self.limits.iter_mut().enumerate() {
            // Without checks only pending bytes count as not over.
            let floor = if self.check_races {
                self.order.floor(warp).saturating_sub(self.base).max(1)
            } else {
                LAST_EPOCH - 1
            };
            *limit = (floor as u16) << WARP_BITS | SEVERAL;
        }
    }

    /// Reads aligned bytes, a power of two of them.
    #[inline(always)]
    pub(crate) fn read<const N: usize>(
        &mut self,
        address: u64,
        warp: usize,
        kind: Kind,
    ) -> Result<[u8; N], Box<Problem>> {
        let start = self.check::<N>(address)?;
        let (limit, own) = (self.limits[warp], warp as u16);
        let bad = match chunk::<N, _>(&self.writers, start) {
            Some(tags) => {
                tags.iter().fold(false, |bad, &tag| bad | (tag == NEVER) | suspicious(tag, limit, own))
            }
            None => true,
        };
        if bad || self.strong_used && self.meets_strong::<N>(start, warp, kind) {
            self.examine(start, N, warp, kind)?;
        }
        // A strong read is harmless to strong writes, which need to see plain reads alone.
        if self.check_races && kind == Kind::Read {
            let tag = self.tag(warp);
            if let Some(tags) = chunk_mut::<N, _>(&mut self.readers, start) {
                mark(tags, tag);
            }
        }
        Ok(chunk(&self.bytes, start).copied().unwrap_or([POISON; N]))
    }

    /// Writes aligned bytes, a power of two of them.
    #[inline(always)]
    pub(crate) fn write<const N: usize>(
        &mut self,
        address: u64,
        from: &[u8; N],
        warp: usize,
        kind: Kind,
    ) -> Result<(), Box<Problem>> {
        let start = self.claim::<N>(address, warp, kind)?;
        let tag = self.tag(warp);
        if let Some(bytes) = chunk_mut(&mut self.bytes, start) {
            *bytes = *from;
        }
        match (kind, chunk_mut::<N, _>(&mut self.writers, start)) {
            (Kind::StrongWrite, Some(writers)) => {
                writers.iter_mut().filter(|tag| **tag == NEVER).for_each(|tag| *tag = ANCIENT);
                self.strong_used = true;
                if let Some(tags) = chunk_mut::<N, _>(&mut self.strong, start) {
                    mark(tags, tag);
                }
            }
            (_, Some(writers)) => *writers = [tag; N],
            (_, None) => {}
        }
        Ok(())
    }

    /// Starts an asynchronous write: until [`Self::deliver`] the bytes may not be touched.
    #[inline(always)]
    pub(crate) fn expect<const N: usize>(&mut self, address: u64, warp: usize) -> Result<(), Box<Problem>> {
        let start = self.claim::<N>(address, warp, Kind::Write)?;
        if let (Some(bytes), Some(writers)) =
            (chunk_mut(&mut self.bytes, start), chunk_mut(&mut self.writers, start))
        {
            *bytes = [POISON; N];
            *writers = [PENDING; N];
        }
        Ok(())
    }

    /// Ends an asynchronous write: from here on it is as if `warp` had written now.
    #[inline(always)]
    pub(crate) fn deliver<const N: usize>(&mut self, start: usize, from: &[u8; N], warp: usize) {
        let tag = self.tag(warp);
        if let (Some(bytes), Some(writers)) =
            (chunk_mut(&mut self.bytes, start), chunk_mut(&mut self.writers, start))
        {
            *bytes = *from;
            *writers = [tag; N];
        }
    }

    /// Checks that a warp may write aligned bytes now.
    #[inline(always)]
    fn claim<const N: usize>(
        &mut self,
        address: u64,
        warp: usize,
        kind: Kind,
    ) -> Result<usize, Box<Problem>> {
        let start = self.check::<N>(address)?;
        let (limit, own) = (self.limits[warp], warp as u16);
        let any = |tags: &[u16; N]| tags.iter().fold(false, |any, &tag| any | suspicious(tag, limit, own));
        let bad = match (chunk(&self.writers, start), chunk(&self.readers, start)) {
            (Some(writers), Some(readers)) => any(writers) | any(readers),
            _ => true,
        };
        if bad || self.strong_used && self.meets_strong::<N>(start, warp, kind) {
            self.examine(start, N, warp, kind)?;
        }
        Ok(start)
    }

    /// Whether a plain access may race with an atomic one.
    fn meets_strong<const N: usize>(&self, start: usize, warp: usize, kind: Kind) -> bool {
        let (limit, own) = (self.limits[warp], warp as u16);
        let any = |tags: &[u16; N]| tags.iter().fold(false, |any, &tag| any | suspicious(tag, limit, own));
        matches!(kind, Kind::Read | Kind::Write) && chunk(&self.strong, start).is_some_and(any)
    }

    fn tag(&self, warp: usize) -> u16 {
        ((self.order.epoch() - self.base) as u16) << WARP_BITS | warp as u16
    }

    #[inline(always)]
    fn check<const N: usize>(&self, address: u64) -> Result<usize, Box<Problem>> {
        let (size, n) = (self.bytes.len() as u64, N as u64);
        if n > size || address > size - n {
            return Err(self.outside(address, N));
        }
        if !address.is_multiple_of(n) {
            return Err(misaligned(address, N as u32));
        }
        Ok(address as usize)
    }

    #[cold]
    fn outside(&self, address: u64, size: usize) -> Box<Problem> {
        let have = self.bytes.len();
        Problem::new(
            FaultKind::OutOfBounds,
            format!("{size} bytes at offset {address} of shared memory, of which the block has {have}"),
        )
    }

    /// Checks each tag against the warp it names: the slow path.
    #[cold]
    fn examine(&self, start: usize, size: usize, warp: usize, kind: Kind) -> Result<(), Box<Problem>> {
        let writers = &self.writers[start..start + size];
        if writers.contains(&PENDING) {
            return Err(Problem::new(
                FaultKind::PendingAsyncCopy,
                format!(
                    "{size} bytes at offset {start} of shared memory belong to a cp.async that was not waited for"
                ),
            ));
        }
        let (verb, writes) = match kind {
            Kind::Read | Kind::StrongRead => ("reads", false),
            Kind::Write | Kind::StrongWrite => ("writes", true),
        };
        let unwritten = writers.iter().filter(|&&tag| tag == NEVER).count();
        if !writes && unwritten > 0 {
            return Err(Problem::new(
                FaultKind::Uninitialised,
                format!("{unwritten} of {size} bytes at offset {start} of shared memory were never written"),
            ));
        }
        if !self.check_races {
            return Ok(());
        }
        let races = |tag: u16| {
            let (epoch, other) = (u32::from(tag >> WARP_BITS) + self.base, tag & SEVERAL);
            if usize::from(other) == warp || tag <= ANCIENT {
                return None;
            }
            let over = match other {
                SEVERAL => self.order.floor(warp),
                other => self.order.before(warp, other.into()),
            };
            (epoch > over).then_some(other)
        };
        let plain = matches!(kind, Kind::Read | Kind::Write);
        for at in start..start + size {
            let found = races(self.writers[at])
                .map(|other| (other, "wrote"))
                .or_else(|| races(self.readers[at]).filter(|_| writes).map(|other| (other, "read")))
                .or_else(|| races(self.strong[at]).filter(|_| plain).map(|other| (other, "updated")));
            if let Some((other, did)) = found {
                let other = match other {
                    SEVERAL => "other warps".to_owned(),
                    other => format!("warp {other}"),
                };
                return Err(Problem::new(
                    FaultKind::SharedRace,
                    format!(
                        "warp {warp} {verb} byte {at} of shared memory, which {other} {did}, with no barrier between"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// A barrier has completed: see [`Order::synchronise`].
    pub(crate) fn synchronise(&mut self, arrived: u32, waited: u32) {
        self.order.synchronise(arrived, waited);
        if self.order.epoch() - self.base == LAST_EPOCH {
            // The tags are used up: start again. Races across this point are not found.
            for tag in self.writers.iter_mut().filter(|tag| !matches!(**tag, NEVER | PENDING)) {
                *tag = ANCIENT;
            }
            self.readers.fill(0);
            self.strong.fill(0);
            self.base = self.order.epoch() - FIRST;
        }
        self.set_limits();
    }
}

/// Whether an access with that tag may race with one of warp `own` now.
#[inline(always)]
fn suspicious(tag: u16, limit: u16, own: u16) -> bool {
    (tag > limit) & (tag & SEVERAL != own)
}

#[inline(always)]
fn chunk<const N: usize, T>(list: &[T], start: usize) -> Option<&[T; N]> {
    list.get(start..)?.first_chunk()
}

#[inline(always)]
fn chunk_mut<const N: usize, T>(list: &mut [T], start: usize) -> Option<&mut [T; N]> {
    list.get_mut(start..)?.first_chunk_mut()
}

/// Leaves a reader's tag: another warp's of this epoch becomes "several".
#[inline(always)]
fn mark<const N: usize>(tags: &mut [u16; N], own: u16) {
    for tag in tags {
        let same_epoch = *tag >> WARP_BITS == own >> WARP_BITS;
        *tag = if same_epoch && *tag != own { own | SEVERAL } else { own };
    }
}
