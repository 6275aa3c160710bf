//! The C symbols that `cust_raw` links, as jumps through the slots.
//!
//! A function whose slot is empty returns [`Status::STUB_LIBRARY`](crate::Status::STUB_LIBRARY). A jump touches no
//! argument and no
//! stack, so one form serves every signature. Four functions are more than a jump, because a program may call them
//! before it has a driver: `cuInit` and `cuDriverGetVersion` load the library, and the names of errors have an answer
//! of this crate's own (`cust` prints its errors with them and would panic without).

use crate::status::Status;
use crate::symbols::with_symbols;
use crate::sys::{self, CUresult};
use std::ffi::{c_char, c_int, c_uint};

macro_rules! forward {
    (answered { $($answered:ident,)* } forwarded { $($name:ident,)* } ours { $($ours:ident,)* }) => {$(
        /// The driver's function of this name, through its slot.
        ///
        /// # Safety
        /// The driver's: this is a jump to it.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[allow(non_snake_case, reason = "the driver's own name")]
        pub(super) unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                "mov rax, qword ptr [rip + {slot}]",
                "test rax, rax",
                "jz 2f",
                "jmp rax",
                "2: mov eax, {stub}",
                "ret",
                slot = sym crate::slots::slot::$name,
                stub = const Status::STUB_LIBRARY.0,
            );
            // x16 is the register that calls between libraries may clobber.
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
                "adrp x16, {slot}",
                "ldr x16, [x16, :lo12:{slot}]",
                "cbz x16, 2f",
                "br x16",
                "2: mov w0, {stub}",
                "ret",
                slot = sym crate::slots::slot::$name,
                stub = const Status::STUB_LIBRARY.0,
            );
        }
    )*};
}

/// The jumps, in a module of their own so that their names do not collide with this crate's.
mod jumps {
    use super::{Status, with_symbols};
    with_symbols!(forward);
}

/// `cuInit`, loading the driver first.
///
/// # Safety
/// None to keep: `flags` is checked by the driver.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the driver's own name")]
unsafe extern "C" fn cuInit(flags: c_uint) -> CUresult {
    // Without a library the slot stays empty and the call says so; the reason is in `Driver::load`'s error.
    let _ = crate::load::ensure();
    // SAFETY: `cuInit` takes any flags.
    unsafe { sys::cuInit(flags) }
}

/// `cuDriverGetVersion`, loading the driver first.
///
/// # Safety
/// `version` must be writable.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the driver's own name")]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> CUresult {
    let _ = crate::load::ensure();
    // SAFETY: the caller's promise.
    unsafe { sys::cuDriverGetVersion(version) }
}

/// `cuGetErrorName`, or a fixed answer where no driver is loaded.
///
/// # Safety
/// `text` must be writable.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the driver's own name")]
unsafe extern "C" fn cuGetErrorName(error: CUresult, text: *mut *const c_char) -> CUresult {
    // SAFETY: the caller's promise.
    let answer = unsafe { sys::cuGetErrorName(error, text) };
    if answer != Status::STUB_LIBRARY.0 {
        return answer;
    }
    // `cust` does not know STUB_LIBRARY and asks for another number instead. Without a driver there is only one
    // true answer.
    // SAFETY: the caller's promise.
    unsafe { text.write(Status::STUB_LIBRARY.name().as_ptr()) };
    Status::SUCCESS.0
}

/// `cuGetErrorString`, or a fixed answer where no driver is loaded.
///
/// # Safety
/// `text` must be writable.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the driver's own name")]
unsafe extern "C" fn cuGetErrorString(error: CUresult, text: *mut *const c_char) -> CUresult {
    // SAFETY: the caller's promise.
    let answer = unsafe { sys::cuGetErrorString(error, text) };
    if answer != Status::STUB_LIBRARY.0 {
        return answer;
    }
    // `cust` does not know STUB_LIBRARY and asks for another number instead. Without a driver there is only one
    // true answer.
    // SAFETY: the caller's promise.
    unsafe { text.write(Status::STUB_LIBRARY.description().as_ptr()) };
    Status::SUCCESS.0
}
