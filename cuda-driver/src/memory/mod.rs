//! Memory: on the device, and on the host where the device reaches it.
//!
//! # Which copies wait
//!
//! The driver may read or write ordinary host memory after an asynchronous copy has returned; when it does is not
//! promised. So a copy to or from a slice returns when it has happened, on the stream that it is given or on the
//! default stream, and the copies that return at once take a [`PinnedBuffer`], which knows what is in flight and
//! waits before
//! it lets the host see it.

mod buffer;
mod pinned;
mod slice;

pub use buffer::DeviceBuffer;
pub use pinned::PinnedBuffer;
pub use slice::{DeviceSlice, DeviceSliceMut};

use bytemuck::{Pod, Zeroable};

/// An address in a device's memory, as kernels take it.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Pod, Zeroable)]
pub struct DevicePointer(pub u64);

impl DevicePointer {
    /// No address.
    pub const NULL: DevicePointer = DevicePointer(0);

    /// The address `bytes` further on.
    #[must_use]
    pub fn byte_add(self, bytes: usize) -> DevicePointer {
        DevicePointer(self.0.wrapping_add(bytes as u64))
    }
}
