//! The keys and values of one layer.
//!
//! ```text
//! keys     [kv head][16 positions][a panel, as `rows` says]
//! values   [kv head][position][a row]
//! ```
//!
//! The positions of a head follow each other, so attention reads memory in order. Rows are padded so that kernels can
//! read whole vectors; the padding is zero for the life of the cache and adds nothing to a dot product. Kernels also read
//! the lanes of a panel that hold no position, or one that was truncated, and ignore what they find there.

use crate::error::{Error, check_len, check_positive};
use crate::rows::{Append, KvType, Order, Rows};
use core::fmt;
use halfbyte_cpu_kernels::Isa;
use halfbyte_cpu_kernels::simd::LANES;

/// The keys and values of one layer, for the positions `0..len()`.
///
/// All memory is reserved at once, as zeros, so the operating system commits a page only when the first position
/// on it is written: a cache for 131,072 positions takes as much physical memory as the positions written so far.
///
/// ```
/// use halfbyte_attention::{KvCache, KvType};
/// use halfbyte_cpu_kernels::Isa;
///
/// let mut cache = KvCache::new(KvType::F16, 2, 4, 100)?;
/// cache.append(Isa::scalar(), &[1.0; 3 * 8], &[0.5; 3 * 8], 3)?;
/// assert_eq!((cache.len(), cache.capacity()), (3, 100));
/// cache.truncate(1);
/// assert_eq!(cache.len(), 1);
/// assert!(cache.append(Isa::scalar(), &[1.0; 8], &[0.5; 7], 1).is_err());
/// # Ok::<(), halfbyte_attention::Error>(())
/// ```
pub struct KvCache {
    kind: KvType,
    n_kv_heads: usize,
    head_dim: usize,
    capacity: usize,
    len: usize,
    keys: Aligned,
    values: Aligned,
}

/// Zeroed bytes that start on a cache line.
///
/// The allocation itself is not aligned to a line: allocators return lazily committed zeros for small alignments only,
/// and clear the memory themselves for larger ones.
struct Aligned {
    memory: Box<[u8]>,
    start: usize,
    len: usize,
}

impl Aligned {
    const LINE: usize = 64;

    /// `None` if there is no memory for it.
    fn zeroed(len: usize) -> Option<Self> {
        let memory: Box<[u8]> =
            bytemuck::allocation::try_zeroed_slice_box(len.checked_add(Self::LINE)?).ok()?;
        let beyond = memory.as_ptr().addr() % Self::LINE;
        Some(Self { memory, start: (Self::LINE - beyond) % Self::LINE, len })
    }

    fn as_slice(&self) -> &[u8] {
        &self.memory[self.start..][..self.len]
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len]
    }
}

impl KvCache {
    /// An empty cache for `capacity` positions of `n_kv_heads` keys and values of `head_dim` numbers.
    ///
    /// # Errors
    /// [`Error::Zero`] if a size is 0, [`Error::TooLarge`] if there is no memory for it.
    pub fn new(kind: KvType, n_kv_heads: usize, head_dim: usize, capacity: usize) -> Result<Self, Error> {
        check_positive("n_kv_heads", n_kv_heads)?;
        check_positive("head_dim", head_dim)?;
        check_positive("capacity", capacity)?;
        // Checks that `row_bytes` below cannot overflow: a row has at most four bytes a number, padded, and a scale.
        let bytes = head_dim
            .checked_next_multiple_of(2 * LANES)
            .and_then(|padded| padded.checked_mul(2 * size_of::<f32>()))
            .and_then(|_| {
                let all = kind.row_bytes(head_dim).checked_mul(n_kv_heads)?;
                Some((
                    all.checked_mul(capacity.checked_next_multiple_of(LANES)?)?,
                    all.checked_mul(capacity)?,
                ))
            });
        let planes =
            bytes.and_then(|(keys, values)| Some((Aligned::zeroed(keys)?, Aligned::zeroed(values)?)));
        let (keys, values) =
            planes.ok_or(Error::TooLarge { capacity, n_kv_heads, head_dim, kv_type: kind.name() })?;
        Ok(Self { kind, n_kv_heads, head_dim, capacity, len: 0, keys, values })
    }

    /// Adds `rows` positions. `k` and `v` are `rows` rows of `n_kv_heads * head_dim` numbers, a row being a
    /// position, head after head. NaN and infinity are stored as they are; rounding is [`KvType`]'s, the same on
    /// every `isa`.
    ///
    /// # Errors
    /// [`Error::Full`] if they exceed the capacity, [`Error::Length`] if `k` or `v` has another size; the cache
    /// is unchanged then.
    pub fn append(&mut self, isa: Isa, k: &[f32], v: &[f32], rows: usize) -> Result<(), Error> {
        if rows > self.capacity - self.len {
            return Err(Error::Full { capacity: self.capacity, len: self.len, rows });
        }
        let expected = rows * self.n_kv_heads * self.head_dim;
        check_len("k", expected, k.len())?;
        check_len("v", expected, v.len())?;
        let Self { kind, n_kv_heads: n_heads, head_dim, len, .. } = *self;
        let planes = [(Order::Panels, k, &mut self.keys), (Order::Rows, v, &mut self.values)];
        for (order, from, to) in planes {
            let (capacity, to) = (order.reserved(self.capacity), to.as_mut_slice());
            Append { kind, order, from, to, n_heads, head_dim, capacity, len }.run_on(isa);
        }
        self.len += rows;
        Ok(())
    }

    /// Removes the positions from `len` on; does nothing if the cache has at most `len`.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Removes all positions. The memory stays reserved, and committed where it was written.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// A copy of what is held.
    #[must_use]
    pub fn save(&self) -> SavedKv {
        let heads = |order: Order, plane: &Aligned| {
            let row_bytes = self.kind.row_bytes(self.head_dim);
            let (head, used) =
                (order.reserved(self.capacity) * row_bytes, order.reserved(self.len) * row_bytes);
            let heads = plane.as_slice().chunks_exact(head).map(|head| &head[..used]);
            heads.collect::<Vec<_>>().concat()
        };
        let Self { kind, n_kv_heads, head_dim, len, .. } = *self;
        let (keys, values) = (heads(Order::Panels, &self.keys), heads(Order::Rows, &self.values));
        SavedKv { kind, n_kv_heads, head_dim, len, keys, values }
    }

    /// Puts a copy in the place of what is held. The caches may have different capacities.
    ///
    /// # Errors
    /// [`Error::Saved`] if the copy is of another type or of other heads, [`Error::Full`] if it has more positions than
    /// the capacity; the cache is unchanged then.
    pub fn restore(&mut self, saved: &SavedKv) -> Result<(), Error> {
        let expected = (self.n_kv_heads, self.head_dim, self.kind.name());
        let got = (saved.n_kv_heads, saved.head_dim, saved.kind.name());
        if expected != got {
            return Err(Error::Saved { expected, got });
        }
        if saved.len > self.capacity {
            return Err(Error::Full { capacity: self.capacity, len: 0, rows: saved.len });
        }
        self.len = saved.len;
        let row_bytes = self.kind.row_bytes(self.head_dim);
        let planes =
            [(Order::Panels, &mut self.keys, &saved.keys), (Order::Rows, &mut self.values, &saved.values)];
        for (order, plane, from) in planes {
            let head = order.reserved(self.capacity) * row_bytes;
            let used = order.reserved(saved.len) * row_bytes;
            if used > 0 {
                let heads = plane.as_mut_slice().chunks_exact_mut(head).zip(from.chunks_exact(used));
                heads.for_each(|(head, from)| head[..used].copy_from_slice(from));
            }
        }
        Ok(())
    }

    /// Positions held.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether no position is held.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Positions that the cache can hold.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Key/value heads.
    #[must_use]
    pub const fn n_kv_heads(&self) -> usize {
        self.n_kv_heads
    }

    /// Elements of a head.
    #[must_use]
    pub const fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// How the numbers are stored.
    #[must_use]
    pub const fn kv_type(&self) -> KvType {
        self.kind
    }

    /// Bytes reserved for keys and values, padding included: what the cache takes up when it is full.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        let positions = Order::Panels.reserved(self.capacity) + Order::Rows.reserved(self.capacity);
        positions * self.n_kv_heads * self.kind.row_bytes(self.head_dim)
    }

    /// The keys and the values of head `kv_head`, for all positions up to the capacity, written or not.
    pub(crate) fn head(&self, kv_head: usize) -> [Rows<'_>; 2] {
        let row_bytes = self.kind.row_bytes(self.head_dim);
        [(Order::Panels, &self.keys), (Order::Rows, &self.values)].map(|(order, plane)| {
            let head = order.reserved(self.capacity) * row_bytes;
            Rows { kind: self.kind, order, bytes: &plane.as_slice()[kv_head * head..][..head], row_bytes }
        })
    }
}

/// A copy of a [`KvCache`], with memory for the positions that were held and no more.
#[derive(Clone, PartialEq, Eq)]
pub struct SavedKv {
    kind: KvType,
    n_kv_heads: usize,
    head_dim: usize,
    len: usize,
    keys: Vec<u8>,
    values: Vec<u8>,
}

impl SavedKv {
    /// Positions held.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether no position is held.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of keys and values.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.keys.len() + self.values.len()
    }
}

impl fmt::Debug for SavedKv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, n_kv_heads, head_dim, len, .. } = self;
        let mut f = f.debug_struct("SavedKv");
        f.field("kv_type", kind).field("n_kv_heads", n_kv_heads).field("head_dim", head_dim);
        f.field("len", len).finish_non_exhaustive()
    }
}

impl fmt::Debug for KvCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvCache")
            .field("kv_type", &self.kv_type())
            .field("n_kv_heads", &self.n_kv_heads)
            .field("head_dim", &self.head_dim)
            .field("len", &self.len)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
