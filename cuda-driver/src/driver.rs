//! Loading the driver, checking its version, and starting it.

use crate::device::Device;
use crate::error::{Error, check};
use crate::load;
use crate::status::Status;
use crate::sys;
use std::fmt;

/// A version of CUDA that a driver supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriverVersion {
    /// The number before the dot.
    pub major: u32,
    /// The number after it.
    pub minor: u32,
}

impl DriverVersion {
    /// The version that [`Driver::load`] requires: the oldest one whose functions this crate was written against.
    pub const MINIMUM: DriverVersion = DriverVersion::new(12, 0);

    /// Version `major.minor`.
    pub const fn new(major: u32, minor: u32) -> DriverVersion {
        DriverVersion { major, minor }
    }

    /// From the driver's own form, 1000 times the major and 10 times the minor number.
    fn from_driver(raw: i32) -> DriverVersion {
        let raw = raw.max(0).unsigned_abs();
        DriverVersion::new(raw / 1000, raw % 1000 / 10)
    }

    /// What the loaded driver reports, if it does.
    pub(crate) fn found() -> Option<DriverVersion> {
        let mut raw = 0;
        // SAFETY: `raw` is writable.
        let status = unsafe { sys::cuDriverGetVersion(&raw mut raw) };
        (status == 0).then(|| DriverVersion::from_driver(raw))
    }
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A CUDA driver that has been loaded and started. Holding one is the proof.
#[derive(Debug, Clone, Copy)]
pub struct Driver {
    version: DriverVersion,
}

impl Driver {
    /// Loads and starts the driver, if it supports CUDA [`DriverVersion::MINIMUM`].
    ///
    /// The library is opened once a process; a failure may be retried.
    ///
    /// # Errors
    /// [`Error::LibraryNotFound`], [`Error::UnsupportedSystem`], [`Error::DriverTooOld`], [`Error::NoDevice`] or
    /// [`Error::Init`].
    pub fn load() -> Result<Driver, Error> {
        Driver::at_least(DriverVersion::MINIMUM)
    }

    /// [`load`](Driver::load) for a program that needs another version, for instance one whose PTX is of a version
    /// that only newer drivers read.
    ///
    /// # Errors
    /// As [`load`](Driver::load).
    pub fn at_least(needed: DriverVersion) -> Result<Driver, Error> {
        load::ensure()?;
        let mut raw = 0;
        // SAFETY: `raw` is writable.
        check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&raw mut raw) })?;
        let version = DriverVersion::from_driver(raw);
        if version < needed {
            return Err(Error::DriverTooOld { found: version, needed });
        }
        // SAFETY: `cuInit` takes any flags; 0 is the only one defined.
        match check("cuInit", unsafe { sys::cuInit(0) }) {
            Ok(()) => Ok(Driver { version }),
            Err(Error::Call { status: Status::NO_DEVICE, .. }) => Err(Error::NoDevice),
            Err(Error::Call { status, .. }) => Err(Error::Init { status }),
            Err(other) => Err(other),
        }
    }

    /// The newest version of CUDA that the driver supports.
    pub fn version(&self) -> DriverVersion {
        self.version
    }

    /// How many GPUs there are.
    ///
    /// # Errors
    /// [`Error::Call`] if the driver does not say.
    pub fn device_count(&self) -> Result<usize, Error> {
        let mut count = 0;
        // SAFETY: `count` is writable.
        check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut count) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// GPU number `ordinal`, from 0.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is none at all, [`Error::NoSuchDevice`] if there are fewer.
    pub fn device(&self, ordinal: usize) -> Result<Device, Error> {
        let count = self.device_count()?;
        match i32::try_from(ordinal) {
            _ if count == 0 => Err(Error::NoDevice),
            Ok(number) if ordinal < count => Device::get(number),
            _ => Err(Error::NoSuchDevice { ordinal, count }),
        }
    }
}
