//! A device's context, to which memory, modules, streams and events belong.

use crate::device::Device;
use crate::error::{Error, check};
use crate::sys::{self, CUcontext};
use std::ptr::null_mut;
use std::sync::Arc;

/// A device's state in this process. Clones share it, and everything made in it keeps it alive, so that things may be
/// dropped in any order and on any thread.
///
/// The driver's functions work on a thread's *current* context. Every operation of this crate makes its own context
/// current first, and leaves it so.
#[derive(Debug, Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    raw: CUcontext,
    device: Device,
    /// Whether this value holds a reference to the device's primary context, which it has to release.
    retained: bool,
}

// SAFETY: the handle is a number to the driver, whose functions may be called from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above; nothing here changes after it is made.
unsafe impl Sync for Inner {}

/// A device's memory at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes not in use.
    pub free: usize,
    /// Bytes in all.
    pub total: usize,
}

impl Context {
    /// The device's primary context, the one that the CUDA runtime, `cust` and other libraries in the process share.
    ///
    /// # Errors
    /// [`Error::Call`], for instance if the device's memory is full.
    pub fn primary(device: Device) -> Result<Context, Error> {
        let mut raw = null_mut();
        // SAFETY: `raw` is writable.
        let result = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut raw, device.raw()) };
        check("cuDevicePrimaryCtxRetain", result)?;
        let context = Context { inner: Arc::new(Inner { raw, device, retained: true }) };
        context.bind()?;
        Ok(context)
    }

    /// The context that is current on this thread, made by someone else.
    ///
    /// # Errors
    /// [`Error::Call`] with [`Status::INVALID_CONTEXT`](crate::Status::INVALID_CONTEXT) if none is.
    ///
    /// # Safety
    /// Its owner must not destroy it before the last clone, and everything made in it, is dropped.
    pub unsafe fn current() -> Result<Context, Error> {
        let mut device = 0;
        // SAFETY: `device` is writable.
        check("cuCtxGetDevice", unsafe { sys::cuCtxGetDevice(&raw mut device) })?;
        let mut raw = null_mut();
        // SAFETY: `raw` is writable.
        check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&raw mut raw) })?;
        let device = Device::from_handle(device);
        Ok(Context { inner: Arc::new(Inner { raw, device, retained: false }) })
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUcontext {
        self.inner.raw
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.inner.device
    }

    /// Makes it this thread's current context, for calls that do not come from this crate.
    ///
    /// # Errors
    /// [`Error::Call`] if the context is gone.
    pub fn bind(&self) -> Result<(), Error> {
        // SAFETY: the handle is alive: `self` keeps it, or the promise made to `current`.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.inner.raw) })
    }

    /// Waits for everything queued in the context, on all streams.
    ///
    /// # Errors
    /// [`Error::Call`], also for an earlier launch that failed.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.bind()?;
        // SAFETY: a context is current.
        check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }

    /// The device's memory now.
    ///
    /// # Errors
    /// [`Error::Call`] if the driver does not say.
    pub fn memory(&self) -> Result<MemoryInfo, Error> {
        self.bind()?;
        let mut info = MemoryInfo { free: 0, total: 0 };
        // SAFETY: both are writable.
        let result = unsafe { sys::cuMemGetInfo_v2(&raw mut info.free, &raw mut info.total) };
        check("cuMemGetInfo_v2", result)?;
        Ok(info)
    }

    /// Fails, naming `what`, unless `other` is this context.
    pub(crate) fn same(&self, other: &Context, what: &'static str) -> Result<(), Error> {
        if self.raw() == other.raw() { Ok(()) } else { Err(Error::OtherContext { what }) }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.retained {
            // SAFETY: gives back the count taken in `primary`. A failure leaves nothing to do.
            let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device.raw()) };
        }
    }
}
