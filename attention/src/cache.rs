//! The keys and values of one layer.
//!
//! ```text
//! keys, values: [kv head][position][head_dim, zeros up to a multiple of 16]
//! ```
//!
//! The positions of a head lie one after the other, so that attention streams through memory; the padding lets
//! kernels read whole vectors and stays zero for the life of the cache, so it adds nothing to a dot product.

use crate::element::Element;
use crate::error::{Error, check_len, check_positive};
use core::fmt;
use core::mem::size_of;
use half::f16;
use halfbyte_cpu_kernels::Isa;
use halfbyte_cpu_kernels::simd::{Kernel, LANES, Simd};

/// How a cache stores its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KvType {
    /// f32: exact, 4 bytes.
    F32,
    /// IEEE half precision, 2 bytes: rounded to nearest even; magnitudes from 65520 on become infinite, those
    /// below 2^-14 lose digits and those up to 2^-25 become zero.
    F16,
}

impl KvType {
    /// Bytes of one stored number.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => size_of::<f32>(),
            Self::F16 => size_of::<f16>(),
        }
    }
}

/// The keys and values of one layer, for the positions `0..len()`.
///
/// All memory is reserved at once and zero, so the operating system commits a page only when the first position
/// on it is written: a cache of 131,072 positions costs what is used of it.
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
    n_kv_heads: usize,
    head_dim: usize,
    capacity: usize,
    len: usize,
    store: Store,
}

/// The numbers, by type.
pub(crate) enum Store {
    F32(Planes<f32>),
    F16(Planes<f16>),
}

/// Keys and values, each laid out as the module says.
pub(crate) struct Planes<E> {
    pub(crate) keys: Aligned<E>,
    pub(crate) values: Aligned<E>,
}

impl<E: Element> Planes<E> {
    fn zeroed(len: usize) -> Option<Self> {
        Some(Self { keys: Aligned::zeroed(len)?, values: Aligned::zeroed(len)? })
    }
}

/// A zeroed array that starts on a cache line.
///
/// The allocation itself has only the alignment of `E`: allocators hand out lazily committed zeros for small
/// alignments alone, and clear the memory by hand for larger ones.
pub(crate) struct Aligned<E> {
    memory: Box<[E]>,
    start: usize,
    len: usize,
}

impl<E: Element> Aligned<E> {
    const LINE: usize = 64;

    /// `None` if there is no memory for it.
    fn zeroed(len: usize) -> Option<Self> {
        let spare = Self::LINE / size_of::<E>();
        let memory = bytemuck::allocation::try_zeroed_slice_box::<E>(len.checked_add(spare)?).ok()?;
        let beyond = memory.as_ptr().addr() % Self::LINE;
        let start = (Self::LINE - beyond) % Self::LINE / size_of::<E>();
        Some(Self { memory, start, len })
    }

    pub(crate) fn as_slice(&self) -> &[E] {
        &self.memory[self.start..][..self.len]
    }

    fn as_mut_slice(&mut self) -> &mut [E] {
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
        let store = head_dim
            .checked_next_multiple_of(LANES)
            .and_then(|stride| stride.checked_mul(n_kv_heads)?.checked_mul(capacity))
            .and_then(|len| match kind {
                KvType::F32 => Planes::zeroed(len).map(Store::F32),
                KvType::F16 => Planes::zeroed(len).map(Store::F16),
            })
            .ok_or(Error::TooLarge { capacity, n_kv_heads, head_dim, bytes_per_element: kind.bytes() })?;
        Ok(Self { n_kv_heads, head_dim, capacity, len: 0, store })
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
        let Self { n_kv_heads, head_dim, capacity, len, .. } = *self;
        match &mut self.store {
            Store::F32(planes) => {
                for (from, to) in [(k, &mut planes.keys), (v, &mut planes.values)] {
                    let to = to.as_mut_slice();
                    isa.dispatch(Append { from, to, n_kv_heads, head_dim, capacity, len });
                }
            }
            Store::F16(planes) => {
                for (from, to) in [(k, &mut planes.keys), (v, &mut planes.values)] {
                    let to = to.as_mut_slice();
                    isa.dispatch(Append { from, to, n_kv_heads, head_dim, capacity, len });
                }
            }
        }
        self.len += rows;
        Ok(())
    }

    /// Forgets the positions from `len` on; does nothing if there are none.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Forgets all positions. The memory stays reserved, and committed where it was written.
    pub fn clear(&mut self) {
        self.len = 0;
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

    /// Positions that it can hold.
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
        match self.store {
            Store::F32(_) => KvType::F32,
            Store::F16(_) => KvType::F16,
        }
    }

    /// Bytes reserved for keys and values, padding included: what the cache takes up when it is full.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        2 * self.capacity * self.n_kv_heads * self.stride() * self.kv_type().bytes()
    }

    /// Elements from one position to the next.
    pub(crate) const fn stride(&self) -> usize {
        self.head_dim.next_multiple_of(LANES)
    }

    pub(crate) const fn store(&self) -> &Store {
        &self.store
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

/// Writes the rows of `from` at position `len` on.
struct Append<'a, E> {
    from: &'a [f32],
    to: &'a mut [E],
    n_kv_heads: usize,
    head_dim: usize,
    capacity: usize,
    len: usize,
}

impl<E: Element> Kernel for Append<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let stride = self.head_dim.next_multiple_of(LANES);
        for (i, head) in self.from.chunks_exact(self.head_dim).enumerate() {
            let (row, kv_head) = (i / self.n_kv_heads, i % self.n_kv_heads);
            let at = (kv_head * self.capacity + self.len + row) * stride;
            let to = &mut self.to[at..][..stride];
            for (x, y) in head.chunks(LANES).zip(to.chunks_exact_mut(LANES)) {
                let x = if x.len() == LANES { s.load_slice(x) } else { s.load_partial(x) };
                // SAFETY: `y` has 16 elements.
                unsafe { E::store(s, y.as_mut_ptr(), x) };
            }
        }
    }
}
