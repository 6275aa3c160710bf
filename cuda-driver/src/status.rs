//! The driver's error numbers with their names.

use crate::sys::CUresult;
use std::ffi::CStr;
use std::fmt;

/// What a driver function returned: 0, or an error number of the driver's.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub CUresult);

macro_rules! statuses {
    ($($number:literal $name:ident $description:literal)*) => {
        impl Status {
            $(
                #[doc = concat!($description, ".")]
                pub const $name: Status = Status($number);
            )*

            fn entry(self) -> Option<(&'static CStr, &'static CStr)> {
                match self.0 {
                    0 => Some((c"CUDA_SUCCESS", c"no error")),
                    $($number => Some((
                        c_text(concat!("CUDA_ERROR_", stringify!($name), "\0")),
                        c_text(concat!($description, "\0")),
                    )),)*
                    _ => None,
                }
            }
        }
    };
}

/// A literal that ends in its only zero byte.
const fn c_text(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    }
}

statuses! {
    1 INVALID_VALUE "an argument is out of range"
    2 OUT_OF_MEMORY "not enough memory"
    3 NOT_INITIALIZED "cuInit has not been called, or failed"
    4 DEINITIALIZED "the driver is shutting down"
    34 STUB_LIBRARY "there is no CUDA driver here, or it lacks this function"
    100 NO_DEVICE "no CUDA device was found"
    101 INVALID_DEVICE "no device has this number"
    102 DEVICE_NOT_LICENSED "the device needs a licence"
    200 INVALID_IMAGE "the module is no valid PTX or cubin"
    201 INVALID_CONTEXT "no context is current, or it is not valid"
    209 NO_BINARY_FOR_GPU "the module has no code for this device"
    214 ECC_UNCORRECTABLE "an uncorrectable memory error"
    215 UNSUPPORTED_LIMIT "the device has no such limit"
    217 PEER_ACCESS_UNSUPPORTED "the devices cannot access each other"
    218 INVALID_PTX "the PTX did not compile"
    220 NVLINK_UNCORRECTABLE "an uncorrectable NVLink error"
    221 JIT_COMPILER_NOT_FOUND "the driver's PTX compiler library is missing"
    222 UNSUPPORTED_PTX_VERSION "the PTX is newer than the driver: it needs a newer driver"
    223 JIT_COMPILATION_DISABLED "compiling PTX is switched off"
    300 INVALID_SOURCE "the source of the module is not valid"
    301 FILE_NOT_FOUND "no such file"
    302 SHARED_OBJECT_SYMBOL_NOT_FOUND "a symbol of a shared library is missing"
    303 SHARED_OBJECT_INIT_FAILED "a shared library did not initialise"
    304 OPERATING_SYSTEM "an operating system call failed"
    400 INVALID_HANDLE "the handle is not valid"
    401 ILLEGAL_STATE "the object is in the wrong state"
    500 NOT_FOUND "no symbol of this name"
    600 NOT_READY "earlier work has not finished"
    700 ILLEGAL_ADDRESS "a kernel touched memory that is not its own; the context is lost"
    701 LAUNCH_OUT_OF_RESOURCES "the launch needs more threads, registers or shared memory than there is"
    702 LAUNCH_TIMEOUT "the kernel ran too long; the context is lost"
    708 PRIMARY_CONTEXT_ACTIVE "the primary context is already active"
    709 CONTEXT_IS_DESTROYED "the context has been destroyed"
    710 ASSERT "an assertion failed in a kernel; the context is lost"
    712 HOST_MEMORY_ALREADY_REGISTERED "the host memory is already registered"
    713 HOST_MEMORY_NOT_REGISTERED "the host memory is not registered"
    714 HARDWARE_STACK_ERROR "a kernel's stack is corrupt; the context is lost"
    715 ILLEGAL_INSTRUCTION "a kernel met an illegal instruction; the context is lost"
    716 MISALIGNED_ADDRESS "a kernel used a misaligned address; the context is lost"
    717 INVALID_ADDRESS_SPACE "a kernel used an address of the wrong space; the context is lost"
    718 INVALID_PC "a kernel jumped to an invalid address; the context is lost"
    719 LAUNCH_FAILED "a kernel failed; the context is lost"
    720 COOPERATIVE_LAUNCH_TOO_LARGE "more blocks than can run at once"
    800 NOT_PERMITTED "the operation is not permitted"
    801 NOT_SUPPORTED "the operation is not supported"
    802 SYSTEM_NOT_READY "the system is not ready to run CUDA"
    803 SYSTEM_DRIVER_MISMATCH "the kernel module's version is not the driver library's"
    804 COMPAT_NOT_SUPPORTED_ON_DEVICE "the compatibility package does not support this device"
    909 TIMEOUT "a wait ran out of time"
    999 UNKNOWN "an unknown internal error"
}

impl Status {
    /// No error.
    pub const SUCCESS: Status = Status(0);

    /// The driver's name of the error, `CUDA_ERROR_UNKNOWN` for a number that is not in its documentation up to
    /// CUDA 12.
    pub fn name(self) -> &'static CStr {
        self.entry().map_or(c"CUDA_ERROR_UNKNOWN", |e| e.0)
    }

    /// What it means, in a few words.
    pub fn description(self) -> &'static CStr {
        self.entry().map_or(c"an error number that this crate does not know", |e| e.1)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, description) = (self.name().to_string_lossy(), self.description().to_string_lossy());
        write!(f, "{name} ({}): {description}", self.0)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name().to_string_lossy(), self.0)
    }
}
