//! The keys and values of a layer on the device, and their layout.
//!
//! ```text
//! keys     [kv_head][position][head_dim]   bf16, or e4m3 codes with
//! scales   [kv_head][position]             f32: element = code * scale
//! ```
//!
//! values the same, in buffers of their own. A row's scale is its largest magnitude over 448, e4m3's largest number; a
//! row of zeros has scale 0 and codes 0. A row that holds NaN or an infinity has scale NaN: the codes 0x7f and 0xff,
//! NaN in e4m3, are never written, and the attention kernels read them as 480 and -480. Positions that were not written
//! are never read.

use crate::Error;
use half::bf16;
use halfbyte_cuda_driver::{Context, DeviceBuffer, Stream};
use std::fmt;
use std::str::FromStr;

/// The numbers of a device's KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KvFormat {
    /// bf16.
    Bf16,
    /// e4m3, with an f32 scale for each row of a head: half the memory.
    Fp8,
}

impl fmt::Display for KvFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
        })
    }
}

impl FromStr for KvFormat {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        match name {
            "bf16" => Ok(Self::Bf16),
            "fp8" => Ok(Self::Fp8),
            _ => Err(Error::UnknownKvFormat { got: name.into() }),
        }
    }
}

/// The shape of a layer's cache.
///
/// ```
/// use halfbyte_cuda_kernels::attention::{KvFormat, KvLayout};
/// // SmolLM2-135M: three key/value heads of 64.
/// let layout = KvLayout::new(KvFormat::Fp8, 3, 64, 1000)?;
/// assert_eq!(layout.capacity(), 1024);
/// assert_eq!((layout.elements(), layout.scales()), (3 * 1024 * 64, 3 * 1024));
/// assert_eq!(layout.row(2, 5), 2 * 1024 + 5);
/// assert!(KvLayout::new(KvFormat::Fp8, 3, 80, 1000).is_err());
/// # Ok::<(), halfbyte_cuda_kernels::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvLayout {
    format: KvFormat,
    n_kv_heads: usize,
    head_dim: usize,
    capacity: usize,
}

impl KvLayout {
    /// Keys of a tile: no tile of the attention kernels goes beyond a capacity that is a multiple of it.
    const TILE: usize = 64;

    /// The layout of `n_kv_heads` heads of `head_dim` numbers, for at least `capacity` positions: a multiple of 64.
    ///
    /// # Errors
    /// [`Error::HeadDim`] unless `head_dim` is 64, 128 or 256; [`Error::TooLarge`] for more than 65,535 heads or 2^31
    /// rows in all; [`Error::Mismatch`] for no heads.
    pub fn new(format: KvFormat, n_kv_heads: usize, head_dim: usize, capacity: usize) -> Result<Self, Error> {
        crate::check::attention_head_dim(head_dim)?;
        crate::check::at_most("the key/value heads of a cache", 65_535, n_kv_heads)?;
        if n_kv_heads == 0 {
            return Err(Error::Mismatch { what: "key/value heads", expected: 1, got: 0 });
        }
        const ROWS: usize = 1 << 31;
        crate::check::at_most(
            "the positions of a cache",
            ROWS / n_kv_heads / Self::TILE * Self::TILE,
            capacity,
        )?;
        Ok(Self { format, n_kv_heads, head_dim, capacity: capacity.next_multiple_of(Self::TILE) })
    }

    /// The numbers.
    #[must_use]
    pub const fn format(&self) -> KvFormat {
        self.format
    }

    /// Key/value heads.
    #[must_use]
    pub const fn n_kv_heads(&self) -> usize {
        self.n_kv_heads
    }

    /// Numbers of a head.
    #[must_use]
    pub const fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// Positions for which there is room.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Numbers of all keys, and of all values.
    #[must_use]
    pub const fn elements(&self) -> usize {
        self.n_kv_heads * self.capacity * self.head_dim
    }

    /// Scales of all keys, and of all values: a row's one in fp8, none in bf16.
    #[must_use]
    pub const fn scales(&self) -> usize {
        match self.format {
            KvFormat::Bf16 => 0,
            KvFormat::Fp8 => self.n_kv_heads * self.capacity,
        }
    }

    /// The row of a head's position: its numbers begin at `head_dim` times this, its scale is at this.
    #[must_use]
    pub const fn row(&self, kv_head: usize, position: usize) -> usize {
        kv_head * self.capacity + position
    }
}

/// The buffers of a cache, as long as its layout says.
#[derive(Debug)]
pub enum KvStorage {
    /// [`KvFormat::Bf16`].
    Bf16 {
        /// Keys.
        keys: DeviceBuffer<bf16>,
        /// Values.
        values: DeviceBuffer<bf16>,
    },
    /// [`KvFormat::Fp8`].
    Fp8 {
        /// Codes of the keys.
        keys: DeviceBuffer<u8>,
        /// Codes of the values.
        values: DeviceBuffer<u8>,
        /// Scales of the keys' rows.
        key_scales: DeviceBuffer<f32>,
        /// Scales of the values' rows.
        value_scales: DeviceBuffer<f32>,
    },
}

/// Keys and values of a layer on a device.
///
/// It does not know how many positions are in use: the caller counts them, and passes the number to the attention kernels.
#[derive(Debug)]
pub struct DeviceKvCache {
    layout: KvLayout,
    storage: KvStorage,
}

impl DeviceKvCache {
    /// A cache whose numbers are not written yet.
    ///
    /// # Errors
    /// [`Error::Driver`], when the memory is not there.
    pub fn new(context: &Context, layout: KvLayout) -> Result<Self, Error> {
        let (elements, scales) = (layout.elements(), layout.scales());
        let storage = match layout.format {
            KvFormat::Bf16 => KvStorage::Bf16 {
                keys: DeviceBuffer::uninit(context, elements)?,
                values: DeviceBuffer::uninit(context, elements)?,
            },
            KvFormat::Fp8 => KvStorage::Fp8 {
                keys: DeviceBuffer::uninit(context, elements)?,
                values: DeviceBuffer::uninit(context, elements)?,
                key_scales: DeviceBuffer::uninit(context, scales)?,
                value_scales: DeviceBuffer::uninit(context, scales)?,
            },
        };
        Ok(Self { layout, storage })
    }

    /// A cache of the same layout with the same contents, queued on `stream`.
    ///
    /// # Errors
    /// [`Error::Driver`], most likely for want of memory.
    pub fn duplicate(&self, stream: &Stream) -> Result<Self, Error> {
        let context = match &self.storage {
            KvStorage::Bf16 { keys, .. } => keys.context(),
            KvStorage::Fp8 { keys, .. } => keys.context(),
        };
        let mut copy = Self::new(context, self.layout)?;
        copy.copy_from(self, stream)?;
        Ok(copy)
    }

    /// Copies the contents of `other`, queued on `stream`.
    ///
    /// # Errors
    /// [`Error::Mismatch`] for another layout; [`Error::Driver`].
    pub fn copy_from(&mut self, other: &Self, stream: &Stream) -> Result<(), Error> {
        crate::check::same("elements of a cache", self.layout.elements(), other.layout.elements())?;
        match (&mut self.storage, &other.storage) {
            (KvStorage::Bf16 { keys, values }, KvStorage::Bf16 { keys: k, values: v }) => {
                keys.as_mut_slice().copy_from_device_async(&k.as_slice(), stream)?;
                values.as_mut_slice().copy_from_device_async(&v.as_slice(), stream)?;
            }
            (
                KvStorage::Fp8 { keys, values, key_scales, value_scales },
                KvStorage::Fp8 { keys: k, values: v, key_scales: ks, value_scales: vs },
            ) => {
                keys.as_mut_slice().copy_from_device_async(&k.as_slice(), stream)?;
                values.as_mut_slice().copy_from_device_async(&v.as_slice(), stream)?;
                key_scales.as_mut_slice().copy_from_device_async(&ks.as_slice(), stream)?;
                value_scales.as_mut_slice().copy_from_device_async(&vs.as_slice(), stream)?;
            }
            (KvStorage::Bf16 { .. }, _) => crate::check::same("bits of a number in the cache", 16, 8)?,
            (KvStorage::Fp8 { .. }, _) => crate::check::same("bits of a number in the cache", 8, 16)?,
        }
        Ok(())
    }

    /// A cache of these buffers.
    ///
    /// # Errors
    /// [`Error::Length`] where a buffer is not as long as the layout says, [`Error::Mismatch`] for those of another
    /// format.
    pub fn from_storage(layout: KvLayout, storage: KvStorage) -> Result<Self, Error> {
        let (elements, scales) = (layout.elements(), layout.scales());
        let (k, v, ks, vs, bits) = match &storage {
            KvStorage::Bf16 { keys, values } => (keys.len(), values.len(), 0, 0, 16),
            KvStorage::Fp8 { keys, values, key_scales, value_scales } => {
                (keys.len(), values.len(), key_scales.len(), value_scales.len(), 8)
            }
        };
        let expected = match layout.format {
            KvFormat::Bf16 => 16,
            KvFormat::Fp8 => 8,
        };
        crate::check::same("bits of a number in the cache", expected, bits)?;
        crate::check::length("the keys of a cache", elements, k)?;
        crate::check::length("the values of a cache", elements, v)?;
        crate::check::length("the scales of a cache's keys", scales, ks)?;
        crate::check::length("the scales of a cache's values", scales, vs)?;
        Ok(Self { layout, storage })
    }

    /// The shape.
    #[must_use]
    pub const fn layout(&self) -> &KvLayout {
        &self.layout
    }

    /// The buffers.
    #[must_use]
    pub const fn storage(&self) -> &KvStorage {
        &self.storage
    }
}
