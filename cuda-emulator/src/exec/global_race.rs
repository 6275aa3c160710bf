//! Races on global memory: between the blocks of a launch, and between the warps of a block.
//!
//! Each word of an allocation that a launch touches remembers its last plain writer and its last plain reader: block,
//! warp, epoch of [`Order`], which of its bytes. A later plain access to one of those bytes races with it when one of
//! the two writes and nothing orders them. Orders are: barriers, within a block; and a hand-over, which is a fence (or
//! an operation that releases) of the first block after its access, and an atomic or volatile read by the second block
//! before its own. Whether the two used the same flag is not checked. Atomic, volatile and relaxed accesses take no
//! part themselves.
//!
//! What is reported is a race. Not all are: one writer and one reader are remembered, accesses that share a word but
//! not a byte displace one another, and host threads may overwrite each other's notes, which are plain loads and
//! stores of atomics.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

use super::order::Order;

/// Words of a page of notes, which is made when one of them is touched.
const PAGE: usize = 1024;
/// The most blocks whose accesses are told apart; launches of more are not checked.
const MAX_BLOCKS: u64 = 1 << 24;

/// The notes of one launch.
#[derive(Debug)]
pub(crate) struct GlobalRaces {
    /// By allocation.
    notes: Vec<Vec<OnceLock<Page>>>,
    /// How often each block has released, up to 255.
    releases: Vec<AtomicU8>,
}

#[derive(Debug)]
struct Page {
    words: Box<[Word]>,
    /// Of every four words, whether several blocks have read them all and none has written any: this holds for
    /// most of what kernels read, and such words need no further check.
    quiet: Box<[AtomicBool]>,
}

impl Page {
    fn new() -> Self {
        Self {
            words: std::iter::repeat_with(Word::default).take(PAGE).collect(),
            quiet: std::iter::repeat_with(AtomicBool::default).take(PAGE / 4).collect(),
        }
    }
}

#[derive(Debug, Default)]
struct Word {
    writer: AtomicU64,
    reader: AtomicU64,
}

/// The party that accesses memory: a block and a warp, at an epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Party<'a> {
    pub(crate) block: u64,
    pub(crate) warp: usize,
    pub(crate) order: &'a Order,
    /// Whether the block has read something that others may have released.
    pub(crate) acquired: bool,
}

/// An access that the current one races with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Conflict {
    pub(crate) wrote: bool,
    /// `None` for several.
    pub(crate) block: Option<u64>,
    /// `None` for several, or when another block's.
    pub(crate) warp: Option<u64>,
}

/// A note of an access, packed: bytes of the word (4 bits), warp (6), releases (8), epoch (22), block plus one (24).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Note(u64);

/// A warp's or a block's number when there are several.
const SEVERAL_WARPS: u64 = (1 << 6) - 1;
const SEVERAL_BLOCKS: u64 = (1 << 24) - 1;
const LAST_EPOCH: u64 = (1 << 22) - 1;
const LAST_RELEASE: u8 = u8::MAX;

impl Note {
    #[inline(always)]
    fn new(bytes: u64, warp: u64, releases: u8, epoch: u64, block: u64) -> Self {
        Self(bytes | warp << 4 | u64::from(releases) << 10 | epoch << 18 | block << 40)
    }
    #[inline(always)]
    fn bytes(self) -> u64 {
        self.0 & 15
    }
    fn warp(self) -> u64 {
        self.0 >> 4 & SEVERAL_WARPS
    }
    fn releases(self) -> u8 {
        (self.0 >> 10) as u8
    }
    fn epoch(self) -> u64 {
        self.0 >> 18 & LAST_EPOCH
    }
    #[inline(always)]
    fn block(self) -> u64 {
        self.0 >> 40
    }
    /// The note without its bytes.
    #[inline(always)]
    fn party(self) -> u64 {
        self.0 >> 4
    }
}

impl GlobalRaces {
    /// Nothing noted yet for allocations of `sizes` bytes; `None` for a grid that is too large.
    pub(crate) fn new(sizes: impl Iterator<Item = u64>, blocks: u64) -> Option<Self> {
        if blocks + 2 > MAX_BLOCKS {
            return None;
        }
        let pages = |size: u64| size.div_ceil(4 * PAGE as u64);
        Some(Self {
            notes: sizes.map(|size| (0..pages(size)).map(|_| OnceLock::new()).collect()).collect(),
            releases: (0..blocks).map(|_| AtomicU8::new(0)).collect(),
        })
    }

    /// Notes that a block has released what it did.
    pub(crate) fn release(&self, block: u64) {
        let count = &self.releases[block as usize];
        count.store(count.load(Relaxed).saturating_add(1), Relaxed);
    }

    /// Checks a plain access of `size` aligned bytes, at most 32, and notes it.
    #[inline(always)]
    pub(crate) fn access(
        &self,
        allocation: usize,
        offset: u64,
        size: usize,
        party: Party<'_>,
        writes: bool,
    ) -> Result<(), Conflict> {
        let word = (offset / 4) as usize;
        let page = self.notes[allocation][word / PAGE].get_or_init(Page::new);
        let fours = &page.quiet[word % PAGE / 4..][..size.div_ceil(16)];
        if !writes && fours.iter().all(|quiet| quiet.load(Relaxed)) {
            return Ok(());
        }
        let bytes = if size >= 4 { 15 } else { ((1 << size) - 1) << (offset % 4) };
        let releases = self.releases[party.block as usize].load(Relaxed);
        let epoch = u64::from(party.order.epoch()).min(LAST_EPOCH);
        let own = Note::new(bytes, party.warp as u64, releases, epoch, party.block + 1);
        let mut quiet = size >= 16;
        for word in &page.words[word % PAGE..][..size.div_ceil(4)] {
            let writer = Note(word.writer.load(Relaxed));
            if writer.bytes() & bytes != 0 && writer.party() != own.party() {
                self.judge(writer, own, party, true)?;
            }
            let reader = Note(word.reader.load(Relaxed));
            if writes {
                if reader.bytes() & bytes != 0 && reader.party() != own.party() {
                    self.judge(reader, own, party, false)?;
                }
                let same = writer.party() == own.party();
                word.writer.store(if same { writer.0 | bytes } else { own.0 }, Relaxed);
            } else if reader.block() != SEVERAL_BLOCKS && reader.0 != own.0 {
                word.reader.store(joined(reader, own).0, Relaxed);
            }
            quiet &= writer.0 == 0 && reader.block() == SEVERAL_BLOCKS && reader.bytes() == 15;
        }
        fours.iter().for_each(|four| four.store(quiet && !writes, Relaxed));
        Ok(())
    }

    /// Whether an earlier access races with the present one.
    #[inline(never)]
    fn judge(&self, earlier: Note, own: Note, party: Party<'_>, wrote: bool) -> Result<(), Conflict> {
        let same_block = earlier.block() == own.block();
        if same_block {
            let over = match earlier.warp() {
                warp if warp == own.warp() => return Ok(()),
                SEVERAL_WARPS => party.order.floor(party.warp),
                warp => party.order.before(party.warp, warp as usize),
            };
            // Epochs that are too many to tell apart race with nothing.
            if earlier.epoch() <= over.into() || earlier.epoch() == LAST_EPOCH {
                return Ok(());
            }
        }
        let several = earlier.block() == SEVERAL_BLOCKS;
        let released = || {
            let now = self.releases[(earlier.block() - 1) as usize].load(Relaxed);
            now > earlier.releases() || earlier.releases() == LAST_RELEASE
        };
        if party.acquired && (several || released()) {
            return Ok(());
        }
        Err(Conflict {
            wrote,
            block: (!several).then(|| earlier.block() - 1),
            warp: (same_block && earlier.warp() != SEVERAL_WARPS).then(|| earlier.warp()),
        })
    }
}

/// The note that stands for an earlier reader and this one: of bytes that both read if they are different parties, so
/// that it is true of each of its bytes.
#[inline(always)]
fn joined(earlier: Note, own: Note) -> Note {
    if earlier.party() == own.party() {
        return Note(earlier.0 | own.bytes());
    }
    let both = earlier.bytes() & own.bytes();
    if both == 0 {
        return own;
    }
    if earlier.block() != own.block() {
        return Note::new(both, SEVERAL_WARPS, 0, 0, SEVERAL_BLOCKS);
    }
    if earlier.epoch() == own.epoch() && earlier.warp() != own.warp() {
        return Note::new(both, SEVERAL_WARPS, own.releases(), own.epoch(), own.block());
    }
    own
}
