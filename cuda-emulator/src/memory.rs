//! Global memory: allocations far apart in a 64-bit address space, shared by every thread that runs a block.
//!
//! Addresses are handed out upwards and never twice, with [`GUARD`] unused bytes after each allocation: an index
//! that runs off the end, or a pointer that was freed, lies in no allocation and is reported. A fresh allocation is filled
//! with 0xff and every byte of it counts as uninitialised until it is written.
//!
//! Bytes lie in relaxed 32-bit atomics, so that blocks on different host threads may race as they may on a GPU
//! without that being undefined behaviour here. A narrower store exchanges its word, a wider one is two stores;
//! 64-bit atomic operations hold the allocation's lock.

use std::collections::BTreeMap;
use std::sync::atomic::{
    AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The first address handed out.
const BASE: u64 = 0x0001_0000_0000;
/// Addresses are multiples of it, as `cuMemAlloc` promises.
const ALIGNMENT: u64 = 512;
/// Unused bytes after every allocation.
pub(crate) const GUARD: u64 = 1 << 20;
/// What memory holds before it is written.
pub(crate) const POISON: u8 = 0xff;

/// Why a request to [`GlobalMemory`] was refused. Nothing has been written when one is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// There is less memory left than was asked for.
    #[error("out of memory: asked for {requested} bytes, {available} of {capacity} are left")]
    OutOfMemory {
        /// Bytes asked for.
        requested: u64,
        /// Bytes left.
        available: u64,
        /// Bytes of the whole memory.
        capacity: u64,
    },
    /// An allocation of no bytes.
    #[error("an allocation needs at least one byte")]
    Empty,
    /// An access that does not lie within one allocation.
    #[error("{size} bytes at {address:#x} are outside every allocation{}", neighbour(.nearest))]
    OutOfBounds {
        /// The first byte of the access.
        address: u64,
        /// Its bytes.
        size: u64,
        /// Address and size of the closest allocation that starts at or before the access.
        nearest: Option<(u64, u64)>,
    },
    /// An access to an allocation that was freed.
    #[error(
        "{size} bytes at {address:#x} are in memory that was freed (an allocation of {allocated} bytes at {base:#x})"
    )]
    Freed {
        /// The first byte of the access.
        address: u64,
        /// Its bytes.
        size: u64,
        /// Where the allocation was.
        base: u64,
        /// The bytes it had.
        allocated: u64,
    },
    /// An address to free at which no allocation starts.
    #[error("no allocation starts at {address:#x}")]
    NotAllocated {
        /// The address.
        address: u64,
    },
    /// A fill whose byte count is not a multiple of its pattern.
    #[error("a fill of {size} bytes is not a whole number of patterns of {pattern} bytes")]
    Pattern {
        /// Bytes to fill.
        size: u64,
        /// Bytes of the pattern.
        pattern: usize,
    },
}

fn neighbour(nearest: &Option<(u64, u64)>) -> String {
    match nearest {
        Some((base, size)) => format!("; the one below it has {size} bytes at {base:#x}"),
        None => String::new(),
    }
}

/// The memory of a device.
///
/// All methods take `&self` and may be called from any thread. Racing accesses give some interleaving of 32-bit
/// words.
///
/// ```
/// use halfbyte_cuda_emulator::GlobalMemory;
///
/// let memory = GlobalMemory::new(1 << 20);
/// let x = memory.alloc(16)?;
/// memory.write(x, &[1, 2, 3])?;
/// let mut bytes = [0; 4];
/// memory.read(x, &mut bytes)?;
/// assert_eq!(bytes, [1, 2, 3, 0xff]);
/// assert_eq!(memory.first_uninitialised(x, 16)?, Some(3));
/// assert!(memory.read(x + 13, &mut bytes).is_err());
/// # Ok::<(), halfbyte_cuda_emulator::MemoryError>(())
/// ```
#[derive(Debug)]
pub struct GlobalMemory {
    capacity: u64,
    table: RwLock<Table>,
}

#[derive(Debug)]
struct Table {
    live: BTreeMap<u64, Arc<Allocation>>,
    /// Base and size of what was freed, for the message.
    freed: BTreeMap<u64, u64>,
    next: u64,
    used: u64,
}

impl GlobalMemory {
    /// A memory of `capacity` bytes with nothing allocated. Host memory is taken as allocations are made.
    #[must_use]
    pub fn new(capacity: u64) -> Self {
        let table = Table { live: BTreeMap::new(), freed: BTreeMap::new(), next: BASE, used: 0 };
        Self { capacity, table: RwLock::new(table) }
    }

    /// Bytes of the whole memory.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes in live allocations.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.with_table(|table| table.used)
    }

    /// Allocates `size` bytes at a multiple of 512, holding 0xff and counted as uninitialised.
    ///
    /// # Errors
    /// [`MemoryError::Empty`] for no bytes, [`MemoryError::OutOfMemory`] when less is left.
    pub fn alloc(&self, size: u64) -> Result<u64, MemoryError> {
        self.insert(size, false)
    }

    pub(crate) fn insert(&self, size: u64, read_only: bool) -> Result<u64, MemoryError> {
        if size == 0 {
            return Err(MemoryError::Empty);
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let available = self.capacity - table.used;
        if size > available {
            return Err(MemoryError::OutOfMemory { requested: size, available, capacity: self.capacity });
        }
        let base = table.next;
        table.next = (base + size + GUARD).next_multiple_of(ALIGNMENT);
        table.used += size;
        table.live.insert(base, Arc::new(Allocation::new(base, size, read_only)));
        Ok(base)
    }

    /// Frees the allocation that starts at `address`. A launch in progress keeps what it already uses.
    ///
    /// # Errors
    /// [`MemoryError::NotAllocated`] when none starts there, [`MemoryError::Freed`] when it was freed before.
    pub fn free(&self, address: u64) -> Result<(), MemoryError> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let Some(allocation) = table.live.remove(&address) else {
            return Err(match table.freed.get(&address) {
                Some(&allocated) => MemoryError::Freed { address, size: 0, base: address, allocated },
                None => MemoryError::NotAllocated { address },
            });
        };
        table.used -= allocation.size;
        table.freed.insert(address, allocation.size);
        Ok(())
    }

    /// Copies bytes to the host. Uninitialised ones read as 0xff; [`Self::first_uninitialised`] finds them.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`] or [`MemoryError::Freed`] unless the range lies in one allocation.
    pub fn read(&self, address: u64, to: &mut [u8]) -> Result<(), MemoryError> {
        if to.is_empty() {
            return Ok(());
        }
        let allocation = self.find(address, to.len() as u64)?;
        allocation.read(address - allocation.base, to);
        Ok(())
    }

    /// Copies bytes from the host.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn write(&self, address: u64, from: &[u8]) -> Result<(), MemoryError> {
        if from.is_empty() {
            return Ok(());
        }
        let allocation = self.find(address, from.len() as u64)?;
        allocation.write(address - allocation.base, from);
        Ok(())
    }

    /// Repeats `pattern` over `size` bytes, as `cuMemsetD8`, `D16` and `D32` do with 1, 2 and 4 bytes.
    ///
    /// # Errors
    /// As [`Self::read`]; [`MemoryError::Pattern`] when the size is no multiple of the pattern's.
    pub fn fill(&self, address: u64, pattern: &[u8], size: u64) -> Result<(), MemoryError> {
        if size == 0 {
            return Ok(());
        }
        if pattern.is_empty() || !size.is_multiple_of(pattern.len() as u64) {
            return Err(MemoryError::Pattern { size, pattern: pattern.len() });
        }
        let allocation = self.find(address, size)?;
        let chunk = pattern.repeat(4096usize.div_ceil(pattern.len()));
        let mut done = 0;
        while done < size {
            let n = (size - done).min(chunk.len() as u64);
            allocation.write(address - allocation.base + done, &chunk[..n as usize]);
            done += n;
        }
        Ok(())
    }

    /// Copies `size` bytes within the memory; what was uninitialised stays so. Overlapping ranges are allowed.
    ///
    /// # Errors
    /// As [`Self::read`], for either range.
    pub fn copy(&self, to: u64, from: u64, size: u64) -> Result<(), MemoryError> {
        if size == 0 {
            return Ok(());
        }
        let source = self.find(from, size)?;
        let destination = self.find(to, size)?;
        let (from, to) = (from - source.base, to - destination.base);
        let mut bytes = vec![0; size as usize];
        source.read(from, &mut bytes);
        let initialised: Vec<bool> = (0..size).map(|i| source.initialised(from + i, 1)).collect();
        destination.write(to, &bytes);
        for (i, _) in initialised.iter().enumerate().filter(|(_, initialised)| !**initialised) {
            destination.forget(to + i as u64);
        }
        Ok(())
    }

    /// Offset from `address` of the first byte of the range that was not written.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn first_uninitialised(&self, address: u64, size: u64) -> Result<Option<u64>, MemoryError> {
        if size == 0 {
            return Ok(None);
        }
        let allocation = self.find(address, size)?;
        let start = address - allocation.base;
        Ok((0..size).find(|&i| !allocation.initialised(start + i, 1)))
    }

    /// Address and size of every live allocation, by address: what is left at the end leaked.
    #[must_use]
    pub fn allocations(&self) -> Vec<(u64, u64)> {
        self.with_table(|table| table.live.values().map(|a| (a.base, a.size)).collect())
    }

    /// Address and size of the live allocation that holds `address`.
    #[must_use]
    pub fn allocation_of(&self, address: u64) -> Option<(u64, u64)> {
        self.find(address, 1).ok().map(|a| (a.base, a.size))
    }

    /// The live allocations by address, as a launch uses them.
    pub(crate) fn snapshot(&self) -> Vec<Arc<Allocation>> {
        self.with_table(|table| table.live.values().cloned().collect())
    }

    /// Says why no allocation holds the access.
    pub(crate) fn explain(&self, address: u64, size: u64) -> MemoryError {
        self.with_table(|table| {
            if let Some((&base, &allocated)) = table.freed.range(..=address).next_back()
                && address - base < allocated
            {
                return MemoryError::Freed { address, size, base, allocated };
            }
            let nearest = table.live.range(..=address).next_back().map(|(&base, a)| (base, a.size));
            MemoryError::OutOfBounds { address, size, nearest }
        })
    }

    fn find(&self, address: u64, size: u64) -> Result<Arc<Allocation>, MemoryError> {
        let found = self.with_table(|table| table.live.range(..=address).next_back().map(|(_, a)| a.clone()));
        found.filter(|a| a.contains(address, size)).ok_or_else(|| self.explain(address, size))
    }

    fn with_table<T>(&self, f: impl FnOnce(&Table) -> T) -> T {
        f(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One allocation. Offsets are checked by the callers, against [`Allocation::contains`].
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) base: u64,
    pub(crate) size: u64,
    /// `.const` variables: a kernel may not write them.
    pub(crate) read_only: bool,
    words: Box<[AtomicU32]>,
    /// A bit a byte.
    written: Box<[AtomicU32]>,
    wide_atomics: Mutex<()>,
}

impl Allocation {
    fn new(base: u64, size: u64, read_only: bool) -> Self {
        let words = size.div_ceil(4) as usize;
        Self {
            base,
            size,
            read_only,
            words: (0..words).map(|_| AtomicU32::new(u32::from_ne_bytes([POISON; 4]))).collect(),
            written: (0..words.div_ceil(8)).map(|_| AtomicU32::new(0)).collect(),
            wide_atomics: Mutex::new(()),
        }
    }

    /// Whether `size` bytes at `address` all lie in it.
    #[inline]
    pub(crate) fn contains(&self, address: u64, size: u64) -> bool {
        address >= self.base && address - self.base < self.size && size <= self.size - (address - self.base)
    }

    /// The little-endian value of 1, 2, 4 or 8 bytes at an aligned offset.
    #[inline]
    pub(crate) fn load(&self, offset: u64, size: u32) -> u64 {
        let word = (offset / 4) as usize;
        let low = self.words[word].load(Relaxed);
        match size {
            1 => u64::from(low >> (offset % 4 * 8) & 0xff),
            2 => u64::from(low >> (offset % 4 * 8) & 0xffff),
            4 => u64::from(low),
            _ => u64::from(low) | u64::from(self.words[word + 1].load(Relaxed)) << 32,
        }
    }

    /// `N` bytes, a power of two up to 32, at an offset that is a multiple of `N`.
    #[inline(always)]
    pub(crate) fn bytes<const N: usize>(&self, offset: u64) -> [u8; N] {
        let word = (offset / 4) as usize;
        let mut bytes = [0; N];
        if N < 4 {
            let value = self.words[word].load(Relaxed) >> (offset % 4 * 8);
            bytes.copy_from_slice(&value.to_le_bytes()[..N]);
        } else {
            let words = &self.words[word..word + N / 4];
            for (bytes, word) in bytes.chunks_exact_mut(4).zip(words) {
                bytes.copy_from_slice(&word.load(Relaxed).to_le_bytes());
            }
        }
        bytes
    }

    /// Stores such bytes and marks them written.
    #[inline(always)]
    pub(crate) fn set_bytes<const N: usize>(&self, offset: u64, bytes: &[u8; N]) {
        let word = (offset / 4) as usize;
        if N < 4 {
            let mut wide = [0; 4];
            wide[..N].copy_from_slice(bytes);
            let shift = (offset % 4 * 8) as u32;
            let mask = (if N == 1 { 0xff } else { 0xffff }) << shift;
            self.exchange_word(word, |old| old & !mask | u32::from_le_bytes(wide) << shift);
        } else {
            let words = &self.words[word..word + N / 4];
            for (bytes, word) in bytes.as_chunks().0.iter().zip(words) {
                word.store(u32::from_le_bytes(*bytes), Relaxed);
            }
        }
        self.mark(offset, N as u32);
    }

    /// Atomically replaces 2, 4 or 8 bytes by `f` of them; returns the old value.
    pub(crate) fn update(&self, offset: u64, size: u32, mut f: impl FnMut(u64) -> u64) -> u64 {
        let word = (offset / 4) as usize;
        let old = match size {
            8 => {
                let _held = self.wide_atomics.lock().unwrap_or_else(PoisonError::into_inner);
                let old = self.load(offset, 8);
                let new = f(old);
                self.words[word].store(new as u32, Release);
                self.words[word + 1].store((new >> 32) as u32, Release);
                old
            }
            4 => u64::from(self.exchange_word(word, |old| f(u64::from(old)) as u32)),
            _ => {
                let shift = (offset % 4 * 8) as u32;
                let old = self.exchange_word(word, |old| {
                    let new = f(u64::from(old >> shift & 0xffff)) as u32 & 0xffff;
                    old & !(0xffff << shift) | new << shift
                });
                u64::from(old >> shift & 0xffff)
            }
        };
        self.mark(offset, size);
        old
    }

    /// `ld.volatile`, `ld.relaxed`, `ld.acquire`: never torn, and ordered before what follows.
    pub(crate) fn load_strong(&self, offset: u64, size: u32) -> u64 {
        if size == 8 {
            let _held = self.wide_atomics.lock().unwrap_or_else(PoisonError::into_inner);
            return self.load(offset, 8);
        }
        let word = self.words[(offset / 4) as usize].load(Acquire);
        u64::from(word >> (offset % 4 * 8)) & (u64::MAX >> (64 - 8 * size))
    }

    /// `st.volatile`, `st.relaxed`, `st.release`: never torn, and ordered after what precedes.
    pub(crate) fn store_strong(&self, offset: u64, size: u32, value: u64) {
        if size == 1 {
            let shift = (offset % 4 * 8) as u32;
            self.exchange_word((offset / 4) as usize, |old| {
                old & !(0xff << shift) | (value as u32 & 0xff) << shift
            });
            self.mark(offset, 1);
        } else {
            self.update(offset, size, |_| value);
        }
    }

    fn exchange_word(&self, word: usize, mut f: impl FnMut(u32) -> u32) -> u32 {
        let cell = &self.words[word];
        let mut old = cell.load(Relaxed);
        // Acquire and release: pairs with the same exchange on another thread, for kernels that hand data over
        // through an atomic.
        while let Err(now) = cell.compare_exchange_weak(old, f(old), AcqRel, Relaxed) {
            old = now;
        }
        old
    }

    /// Whether all `size <= 32` bytes were written; they must not cross a multiple of 32.
    #[inline]
    pub(crate) fn initialised(&self, offset: u64, size: u32) -> bool {
        let bits = (u32::MAX >> (32 - size)) << (offset % 32);
        self.written[(offset / 32) as usize].load(Relaxed) & bits == bits
    }

    #[inline]
    fn mark(&self, offset: u64, size: u32) {
        let bits = (u32::MAX >> (32 - size)) << (offset % 32);
        let cell = &self.written[(offset / 32) as usize];
        if cell.load(Relaxed) & bits != bits {
            cell.fetch_or(bits, Relaxed);
        }
    }

    fn forget(&self, offset: u64) {
        self.written[(offset / 32) as usize].fetch_and(!(1 << (offset % 32)), Relaxed);
    }

    fn read(&self, offset: u64, to: &mut [u8]) {
        for_words(offset, to.len(), |word, skip, range| {
            let bytes = self.words[word].load(Relaxed).to_le_bytes();
            let n = range.len();
            to[range].copy_from_slice(&bytes[skip..skip + n]);
        });
    }

    fn write(&self, offset: u64, from: &[u8]) {
        for_words(offset, from.len(), |word, skip, range| {
            let n = range.len();
            if n == 4 {
                let bytes =
                    [from[range.start], from[range.start + 1], from[range.start + 2], from[range.start + 3]];
                self.words[word].store(u32::from_le_bytes(bytes), Relaxed);
            } else {
                self.exchange_word(word, |old| {
                    let mut bytes = old.to_le_bytes();
                    bytes[skip..skip + n].copy_from_slice(&from[range.clone()]);
                    u32::from_le_bytes(bytes)
                });
            }
            self.mark(offset + range.start as u64, n as u32);
        });
    }
}

/// Calls `f(word, first byte in the word, range of the slice)` for each word that `len` bytes at `offset` touch.
fn for_words(offset: u64, len: usize, mut f: impl FnMut(usize, usize, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < len {
        let at = offset as usize + done;
        let skip = at % 4;
        let n = (4 - skip).min(len - done);
        f(at / 4, skip, done..done + n);
        done += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_memory_is_poisoned_and_uninitialised() {
        let memory = GlobalMemory::new(1 << 16);
        let at = memory.alloc(100).unwrap();
        let mut bytes = [0; 100];
        memory.read(at, &mut bytes).unwrap();
        assert_eq!(bytes, [0xff; 100]);
        assert_eq!(memory.first_uninitialised(at, 100), Ok(Some(0)));
        memory.write(at + 3, &[7; 50]).unwrap();
        assert_eq!(memory.first_uninitialised(at + 3, 50), Ok(None));
        assert_eq!(memory.first_uninitialised(at + 3, 51), Ok(Some(50)));
        memory.read(at, &mut bytes).unwrap();
        for (i, byte) in bytes.iter().enumerate() {
            assert_eq!(*byte, if (3..53).contains(&i) { 7 } else { 0xff }, "byte {i}");
        }
    }

    #[test]
    fn neighbours_are_out_of_reach() {
        let memory = GlobalMemory::new(1 << 16);
        let a = memory.alloc(100).unwrap();
        let b = memory.alloc(1).unwrap();
        assert!(a.is_multiple_of(512) && b.is_multiple_of(512) && b - a > GUARD);
        for address in [a - 1, a + 97, a + 100, b + 1, u64::MAX - 1] {
            let error = memory.write(address, &[0; 4]).unwrap_err();
            assert!(matches!(error, MemoryError::OutOfBounds { .. }), "{address:#x}: {error}");
        }
        assert_eq!(memory.allocations(), [(a, 100), (b, 1)]);
        assert_eq!(memory.allocation_of(a + 99), Some((a, 100)));
        assert_eq!(memory.allocation_of(a + 100), None);
    }

    #[test]
    fn freed_memory_is_named_and_its_bytes_come_back() {
        let memory = GlobalMemory::new(1000);
        let a = memory.alloc(600).unwrap();
        let full = MemoryError::OutOfMemory { requested: 600, available: 400, capacity: 1000 };
        assert_eq!(memory.alloc(600), Err(full));
        assert_eq!(memory.alloc(0), Err(MemoryError::Empty));
        memory.free(a).unwrap();
        assert_eq!(memory.used(), 0);
        let freed = MemoryError::Freed { address: a + 8, size: 4, base: a, allocated: 600 };
        assert_eq!(memory.read(a + 8, &mut [0; 4]), Err(freed));
        assert!(matches!(memory.free(a), Err(MemoryError::Freed { .. })));
        assert_eq!(memory.free(a + 1), Err(MemoryError::NotAllocated { address: a + 1 }));
        assert_ne!(memory.alloc(600).unwrap(), a);
    }

    #[test]
    fn copies_and_fills_keep_to_their_bytes() {
        let memory = GlobalMemory::new(1 << 16);
        let (a, b) = (memory.alloc(40).unwrap(), memory.alloc(40).unwrap());
        memory.fill(a + 2, &[1, 2], 8).unwrap();
        assert_eq!(memory.fill(a, &[1, 2], 7), Err(MemoryError::Pattern { size: 7, pattern: 2 }));
        memory.fill(b, &[9], 40).unwrap();
        memory.copy(b + 5, a, 12).unwrap();
        let mut bytes = [0; 40];
        memory.read(b, &mut bytes).unwrap();
        assert_eq!(bytes[..5], [9; 5]);
        assert_eq!(bytes[5..17], [0xff, 0xff, 1, 2, 1, 2, 1, 2, 1, 2, 0xff, 0xff]);
        assert_eq!(bytes[17..], [9; 23]);
        assert_eq!(memory.first_uninitialised(b, 40), Ok(Some(5)));
        assert_eq!(memory.first_uninitialised(b + 7, 8), Ok(None));
        memory.copy(b + 1, b, 8).unwrap();
        memory.read(b, &mut bytes).unwrap();
        assert_eq!(bytes[..10], [9, 9, 9, 9, 9, 9, 0xff, 0xff, 1, 1]);
    }

    #[test]
    fn device_accesses_of_every_width_are_little_endian() {
        let memory = GlobalMemory::new(1 << 16);
        let base = memory.alloc(64).unwrap();
        let allocation = memory.find(base, 64).unwrap();
        allocation.set_bytes(8, &0x0102_0304_0506_0708u64.to_le_bytes());
        for (offset, size, value) in [(8, 1, 8), (9, 1, 7), (10, 2, 0x0506), (12, 4, 0x0102_0304)] {
            assert_eq!(allocation.load(offset, size), value);
            assert_eq!(allocation.load_strong(offset, size), value);
        }
        allocation.set_bytes(9, &[0xaa]);
        assert_eq!(allocation.bytes(8), 0x0102_0304_0506_aa08u64.to_le_bytes());
        assert_eq!(allocation.bytes(10), [6, 5]);
        allocation.store_strong(14, 2, 0xbbcc);
        assert_eq!(allocation.load(8, 8), 0xbbcc_0304_0506_aa08);
        assert!(
            allocation.initialised(8, 8) && !allocation.initialised(7, 2) && !allocation.initialised(16, 1)
        );
        assert_eq!(allocation.update(14, 2, |x| x + 1), 0xbbcc);
        assert_eq!(allocation.update(8, 8, |x| x + 1), 0xbbcd_0304_0506_aa08);
        assert_eq!(allocation.load_strong(8, 8), 0xbbcd_0304_0506_aa09);
    }

    #[test]
    fn atomics_lose_nothing_between_threads() {
        let memory = GlobalMemory::new(1 << 16);
        let base = memory.alloc(16).unwrap();
        memory.fill(base, &[0], 16).unwrap();
        let allocation = memory.find(base, 16).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        allocation.update(0, 4, |x| x + 1);
                        allocation.update(6, 2, |x| x + 1);
                        allocation.update(8, 8, |x| x + (1 << 31));
                    }
                });
            }
        });
        assert_eq!(allocation.load(0, 8), 4000 | 4000 << 48);
        assert_eq!(allocation.load(8, 8), 4000 << 31);
    }
}
