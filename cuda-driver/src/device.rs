//! GPUs and what they can do.

use crate::error::{Error, check};
use crate::sys;
use std::ffi::{CStr, c_char};
use std::fmt;

/// A device's generation, `major.minor`: 8.0 is written `sm_80`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComputeCapability {
    /// The number before the dot.
    pub major: u32,
    /// The number after it.
    pub minor: u32,
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.major, self.minor)
    }
}

/// A property of a device, by the driver's number (`CUdevice_attribute`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Attribute(pub i32);

impl Attribute {
    /// Threads in a block, at most.
    pub const MAX_THREADS_PER_BLOCK: Attribute = Attribute(1);
    /// Bytes of shared memory in a block, at most, without opting in to more.
    pub const MAX_SHARED_MEMORY_PER_BLOCK: Attribute = Attribute(8);
    /// Threads in a warp.
    pub const WARP_SIZE: Attribute = Attribute(10);
    /// 32-bit registers in a block, at most.
    pub const MAX_REGISTERS_PER_BLOCK: Attribute = Attribute(12);
    /// The clock in kHz.
    pub const CLOCK_RATE: Attribute = Attribute(13);
    /// Multiprocessors.
    pub const MULTIPROCESSOR_COUNT: Attribute = Attribute(16);
    /// The memory's clock in kHz.
    pub const MEMORY_CLOCK_RATE: Attribute = Attribute(36);
    /// Width of the memory's bus in bits.
    pub const GLOBAL_MEMORY_BUS_WIDTH: Attribute = Attribute(37);
    /// Bytes of second-level cache.
    pub const L2_CACHE_SIZE: Attribute = Attribute(38);
    /// Threads that a multiprocessor holds, at most.
    pub const MAX_THREADS_PER_MULTIPROCESSOR: Attribute = Attribute(39);
    /// The compute capability's major number.
    pub const COMPUTE_CAPABILITY_MAJOR: Attribute = Attribute(75);
    /// The compute capability's minor number.
    pub const COMPUTE_CAPABILITY_MINOR: Attribute = Attribute(76);
    /// Bytes of shared memory of a multiprocessor.
    pub const MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: Attribute = Attribute(81);
    /// 32-bit registers of a multiprocessor.
    pub const MAX_REGISTERS_PER_MULTIPROCESSOR: Attribute = Attribute(82);
    /// Bytes of shared memory in a block, at most, for a function that opts in.
    pub const MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: Attribute = Attribute(97);
    /// Blocks that a multiprocessor holds, at most.
    pub const MAX_BLOCKS_PER_MULTIPROCESSOR: Attribute = Attribute(106);
    /// Bytes of shared memory that the system takes of each block's.
    pub const RESERVED_SHARED_MEMORY_PER_BLOCK: Attribute = Attribute(111);
}

/// A GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Device {
    raw: sys::CUdevice,
}

impl Device {
    pub(crate) fn get(ordinal: i32) -> Result<Device, Error> {
        let mut raw = 0;
        // SAFETY: `raw` is writable.
        check("cuDeviceGet", unsafe { sys::cuDeviceGet(&raw mut raw, ordinal) })?;
        Ok(Device { raw })
    }

    pub(crate) fn from_handle(raw: sys::CUdevice) -> Device {
        Device { raw }
    }

    /// The driver's handle.
    pub fn raw(&self) -> sys::CUdevice {
        self.raw
    }

    /// The model's name.
    ///
    /// # Errors
    /// [`Error::Call`] if the driver does not say.
    pub fn name(&self) -> Result<String, Error> {
        let mut text: [c_char; 256] = [0; 256];
        // SAFETY: `text` has 256 writable bytes, and the driver ends what it writes with a zero.
        check("cuDeviceGetName", unsafe { sys::cuDeviceGetName(text.as_mut_ptr(), 256, self.raw) })?;
        let bytes: &[u8] = bytemuck::cast_slice(&text);
        let name = CStr::from_bytes_until_nul(bytes).unwrap_or_default();
        Ok(name.to_string_lossy().into_owned())
    }

    /// A property.
    ///
    /// # Errors
    /// [`Error::Call`] if the driver does not know it.
    pub fn attribute(&self, attribute: Attribute) -> Result<i32, Error> {
        let mut value = 0;
        // SAFETY: `value` is writable.
        let result = unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute.0, self.raw) };
        check("cuDeviceGetAttribute", result)?;
        Ok(value)
    }

    /// The device's generation.
    ///
    /// # Errors
    /// [`Error::Call`] if the driver does not say.
    pub fn compute_capability(&self) -> Result<ComputeCapability, Error> {
        let major = self.attribute(Attribute::COMPUTE_CAPABILITY_MAJOR)?.unsigned_abs();
        let minor = self.attribute(Attribute::COMPUTE_CAPABILITY_MINOR)?.unsigned_abs();
        Ok(ComputeCapability { major, minor })
    }

    /// The device's memory in bytes.
    ///
    /// # Errors
    /// [`Error::Call`] if the driver does not say.
    pub fn total_memory(&self) -> Result<usize, Error> {
        let mut bytes = 0;
        // SAFETY: `bytes` is writable.
        check("cuDeviceTotalMem_v2", unsafe { sys::cuDeviceTotalMem_v2(&raw mut bytes, self.raw) })?;
        Ok(bytes)
    }
}
