//! Compiled code on a device.

use crate::context::Context;
use crate::error::{Error, check};
use crate::function::Function;
use crate::memory::DevicePointer;
use crate::status::Status;
use crate::sys::{self, CUmodule};
use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

/// Bytes for the messages of the driver's compiler.
const LOG_BYTES: usize = 16 << 10;
/// `CU_JIT_ERROR_LOG_BUFFER` and `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`.
const LOG_OPTIONS: [c_int; 2] = [5, 6];

/// A module: PTX that the driver has compiled for the device. Clones share it; it is unloaded when the last clone
/// and the last of its functions are dropped.
#[derive(Debug, Clone)]
pub struct Module {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    raw: CUmodule,
    context: Context,
}

// SAFETY: the handle is a number to the driver, whose functions may be called from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above; nothing here changes after it is made.
unsafe impl Sync for Inner {}

impl Module {
    /// Compiles and loads PTX.
    ///
    /// # Errors
    /// [`Error::Module`] with what the driver's compiler wrote; its status is [`Status::UNSUPPORTED_PTX_VERSION`]
    /// for PTX
    /// that is newer than the driver, [`Status::NO_BINARY_FOR_GPU`] or [`Status::INVALID_PTX`] for PTX that is
    /// newer than the device.
    /// [`Error::ZeroByte`] if the text holds one.
    pub fn from_ptx(context: &Context, ptx: &str) -> Result<Module, Error> {
        let text = c_text("PTX", ptx)?;
        context.bind()?;
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = LOG_OPTIONS;
        // The driver takes numbers in place of pointers: the size of the log by value.
        let size = std::ptr::without_provenance_mut::<c_void>(LOG_BYTES);
        let mut values = [log.as_mut_ptr().cast::<c_void>(), size];
        let mut raw = null_mut();
        // SAFETY: the text ends in a zero; two options with a value each; the log has the size given and outlives the
        // call; `raw` is writable.
        let result = unsafe {
            sys::cuModuleLoadDataEx(
                &raw mut raw,
                text.as_ptr().cast(),
                2,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        match check("cuModuleLoadDataEx", result) {
            Ok(()) => Ok(Module { inner: Arc::new(Inner { raw, context: context.clone() }) }),
            Err(Error::Call { status, .. }) => {
                let end = log.iter().position(|&b| b == 0).unwrap_or(log.len());
                let log = String::from_utf8_lossy(&log[..end]).trim_end().to_owned();
                Err(Error::Module { status, log })
            }
            Err(other) => Err(other),
        }
    }

    /// The kernel called `name`.
    ///
    /// # Errors
    /// [`Error::Call`] with [`Status::NOT_FOUND`] if there is none.
    pub fn function(&self, name: &str) -> Result<Function, Error> {
        Function::new(self, name)
    }

    /// The global variable called `name`: its address and its size in bytes.
    ///
    /// # Errors
    /// [`Error::Call`] with [`Status::NOT_FOUND`] if there is none.
    pub fn global(&self, name: &str) -> Result<(DevicePointer, usize), Error> {
        let name = c_text("a global's name", name)?;
        self.inner.context.bind()?;
        let (mut address, mut bytes) = (0, 0);
        // SAFETY: both are writable, the name ends in a zero, the module is alive.
        let result = unsafe {
            sys::cuModuleGetGlobal_v2(&raw mut address, &raw mut bytes, self.inner.raw, name.as_ptr())
        };
        check("cuModuleGetGlobal_v2", result)?;
        Ok((DevicePointer(address), bytes))
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUmodule {
        self.inner.raw
    }

    /// The context that it was loaded in.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: the last use of the handle. A failure leaves nothing to do.
            let _: Status = Status(unsafe { sys::cuModuleUnload(self.raw) });
        }
    }
}

/// `text` as C takes it.
pub(crate) fn c_text(what: &'static str, text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|e| Error::ZeroByte { what, at: e.nul_position() })
}
