//! Where a generic address leads: three windows of 4 GiB above everything that [`GlobalMemory`] hands out.
//!
//! [`GlobalMemory`]: crate::GlobalMemory

/// Shared memory of the block.
pub(crate) const SHARED: u64 = 0x7f00_0000_0000;
/// Local memory of the thread.
pub(crate) const LOCAL: u64 = 0x7f01_0000_0000;
/// The kernel's parameters.
pub(crate) const PARAM: u64 = 0x7f02_0000_0000;
