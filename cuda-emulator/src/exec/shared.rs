//! A block's shared memory: its bytes, which of them were written, and who touched them last.
//!
//! Races: time is cut into epochs, one more each time a barrier completes. A byte remembers its last writer and its
//! last reader as a tag of epoch and warp; `ordered[w][v]` is the last epoch of warp `v` that barriers have put
//! before what warp `w` does now. Two accesses of different warps race when one writes and the earlier tag's epoch
//! lies after that. With whole-block barriers alone this is exact. Barriers of part of a block order those warps
//! only; of several readers of a byte then one is remembered.

use super::Problem;
use super::global::misaligned;
use super::registers::LANES;
use crate::fault::FaultKind;
use crate::memory::POISON;

/// A tag's warp number when several warps read in one epoch.
const SEVERAL: u16 = 63;
const WARP_BITS: u32 = 6;
/// Epochs that fit a tag; 0 is "never".
const LAST_EPOCH: u16 = (1 << (16 - WARP_BITS)) - 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum State {
    Uninitialised,
    Written,
    /// A `cp.async` will write it.
    Pending,
}

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
    state: Vec<State>,
    writers: Vec<u16>,
    readers: Vec<u16>,
    strong: Vec<u16>,
    epoch: u16,
    ordered: Vec<[u16; LANES]>,
    check_initialised: bool,
    check_races: bool,
    strong_used: bool,
}

impl Shared {
    /// Forgets everything, for a new block of `warps` warps.
    pub(crate) fn reset(&mut self, size: usize, warps: usize, check_initialised: bool, check_races: bool) {
        self.bytes.clear();
        self.bytes.resize(size, POISON);
        self.state.clear();
        self.state.resize(size, State::Uninitialised);
        let tags = if check_races { size } else { 0 };
        for list in [&mut self.writers, &mut self.readers, &mut self.strong] {
            list.clear();
            list.resize(tags, 0);
        }
        self.epoch = 1;
        self.ordered.clear();
        self.ordered.resize(warps, [0; LANES]);
        self.check_initialised = check_initialised;
        self.check_races = check_races && warps > 1;
        self.strong_used = false;
    }

    /// The bytes of an aligned read.
    #[inline]
    pub(crate) fn read(
        &mut self,
        address: u64,
        size: u32,
        warp: usize,
        kind: Kind,
    ) -> Result<&[u8], Box<Problem>> {
        let start = self.check(address, size)?;
        let range = start..start + size as usize;
        let state = &self.state[range.clone()];
        if state.iter().any(|&state| state != State::Written) {
            self.refuse_read(start, size)?;
        }
        if self.check_races {
            self.note(start, size as usize, warp, kind)?;
        }
        Ok(&self.bytes[range])
    }

    /// Writes aligned bytes.
    #[inline]
    pub(crate) fn write(
        &mut self,
        address: u64,
        from: &[u8],
        warp: usize,
        kind: Kind,
    ) -> Result<(), Box<Problem>> {
        let start = self.check(address, from.len() as u32)?;
        let range = start..start + from.len();
        if self.state[range.clone()].contains(&State::Pending) {
            return Err(pending(start, from.len()));
        }
        if self.check_races {
            self.note(start, from.len(), warp, kind)?;
        }
        self.bytes[range.clone()].copy_from_slice(from);
        self.state[range].fill(State::Written);
        Ok(())
    }

    /// Starts an asynchronous write: until [`Self::deliver`] the bytes may not be touched.
    pub(crate) fn expect(&mut self, address: u64, size: u32, warp: usize) -> Result<(), Box<Problem>> {
        let start = self.check(address, size)?;
        let range = start..start + size as usize;
        if self.state[range.clone()].contains(&State::Pending) {
            return Err(pending(start, size as usize));
        }
        if self.check_races {
            self.note(start, size as usize, warp, Kind::Write)?;
        }
        self.bytes[range.clone()].fill(POISON);
        self.state[range].fill(State::Pending);
        Ok(())
    }

    /// Ends an asynchronous write: from here on it is as if `warp` had written now.
    pub(crate) fn deliver(&mut self, address: u64, from: &[u8], warp: usize) {
        let range = address as usize..address as usize + from.len();
        self.bytes[range.clone()].copy_from_slice(from);
        self.state[range.clone()].fill(State::Written);
        if self.check_races {
            self.writers[range].fill(self.epoch << WARP_BITS | warp as u16);
        }
    }

    #[inline]
    fn check(&self, address: u64, size: u32) -> Result<usize, Box<Problem>> {
        if address >= self.bytes.len() as u64 || u64::from(size) > self.bytes.len() as u64 - address {
            return Err(Problem::new(
                FaultKind::OutOfBounds,
                format!(
                    "{size} bytes at offset {address} of shared memory, of which the block has {}",
                    self.bytes.len()
                ),
            ));
        }
        if address & u64::from(size - 1) != 0 {
            return Err(misaligned(address, size));
        }
        Ok(address as usize)
    }

    #[cold]
    fn refuse_read(&self, start: usize, size: u32) -> Result<(), Box<Problem>> {
        let bytes = start..start + size as usize;
        if self.state[bytes.clone()].contains(&State::Pending) {
            return Err(pending(start, size as usize));
        }
        if !self.check_initialised {
            return Ok(());
        }
        let unwritten = bytes.filter(|&at| self.state[at] == State::Uninitialised).count();
        Err(Problem::new(
            FaultKind::Uninitialised,
            format!("{unwritten} of {size} bytes at offset {start} of shared memory were never written"),
        ))
    }

    /// Checks an access against the tags and leaves its own.
    #[inline]
    fn note(&mut self, start: usize, size: usize, warp: usize, kind: Kind) -> Result<(), Box<Problem>> {
        let range = start..start + size;
        let own = warp as u16;
        let floor = self.floor(warp);
        let suspicious = |tags: &[u16]| {
            tags.iter().fold(false, |any, &tag| any | (tag >> WARP_BITS > floor && tag & SEVERAL != own))
        };
        let plain = matches!(kind, Kind::Read | Kind::Write);
        let writes = matches!(kind, Kind::Write | Kind::StrongWrite);
        let found = suspicious(&self.writers[range.clone()])
            || writes && suspicious(&self.readers[range.clone()])
            || plain && self.strong_used && suspicious(&self.strong[range.clone()]);
        if found {
            self.examine(start, size, warp, kind)?;
        }
        let tag = self.epoch << WARP_BITS | own;
        match kind {
            Kind::Write => self.writers[range].fill(tag),
            Kind::Read => mark(&mut self.readers[range], tag),
            // A strong read is harmless to strong writes, which need to see plain reads alone.
            Kind::StrongRead => {}
            Kind::StrongWrite => {
                self.strong_used = true;
                mark(&mut self.strong[range], tag);
            }
        }
        Ok(())
    }

    /// The last epoch that is over for `warp` as far as all others are concerned.
    #[inline]
    fn floor(&self, warp: usize) -> u16 {
        let others = self.ordered.len();
        let ordered = &self.ordered[warp][..others];
        ordered.iter().enumerate().filter(|&(v, _)| v != warp).map(|(_, &epoch)| epoch).min().unwrap_or(0)
    }

    /// Looks at each tag with the warp it names.
    #[cold]
    fn examine(&self, start: usize, size: usize, warp: usize, kind: Kind) -> Result<(), Box<Problem>> {
        let races = |tag: u16| {
            let (epoch, other) = (tag >> WARP_BITS, tag & SEVERAL);
            if other as usize == warp || epoch == 0 {
                return None;
            }
            let ordered =
                if other == SEVERAL { self.floor(warp) } else { self.ordered[warp][other as usize] };
            (epoch > ordered).then_some(other)
        };
        let (verb, writes) = match kind {
            Kind::Read | Kind::StrongRead => ("reads", false),
            Kind::Write | Kind::StrongWrite => ("writes", true),
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

    /// A barrier has completed: all that `arrived` (bits of warps) did comes before what `waited` will do.
    pub(crate) fn synchronise(&mut self, arrived: u32, waited: u32) {
        let warps = self.ordered.len();
        let all = if warps >= 32 { u32::MAX } else { (1 << warps) - 1 };
        if arrived == all && waited == all {
            for ordered in &mut self.ordered {
                *ordered = [self.epoch; LANES];
            }
        } else {
            // What the arriving warps knew is handed on with what they did.
            let mut known = [0; LANES];
            for (v, known) in known.iter_mut().enumerate().take(warps) {
                let seen = (0..warps).filter(|w| arrived >> w & 1 == 1).map(|w| self.ordered[w][v]);
                *known = if arrived >> v & 1 == 1 { self.epoch } else { seen.max().unwrap_or(0) };
            }
            for w in (0..warps).filter(|w| waited >> w & 1 == 1) {
                for (ordered, known) in self.ordered[w].iter_mut().zip(known) {
                    *ordered = (*ordered).max(known);
                }
            }
        }
        self.epoch += 1;
        if self.epoch == LAST_EPOCH {
            // Tags have run out: start again, blind to races across this point.
            for tags in [&mut self.writers, &mut self.readers, &mut self.strong] {
                tags.fill(0);
            }
            self.ordered.fill([0; LANES]);
            self.epoch = 1;
        }
    }
}

/// Leaves a reader's tag: another warp's of this epoch becomes "several".
#[inline]
fn mark(tags: &mut [u16], own: u16) {
    for tag in tags {
        let same_epoch = *tag >> WARP_BITS == own >> WARP_BITS;
        *tag = if same_epoch && *tag != own { own | SEVERAL } else { own };
    }
}

#[cold]
fn pending(start: usize, size: usize) -> Box<Problem> {
    Problem::new(
        FaultKind::PendingAsyncCopy,
        format!(
            "{size} bytes at offset {start} of shared memory belong to a cp.async that was not waited for"
        ),
    )
}
