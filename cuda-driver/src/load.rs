//! Where the slots' addresses come from: the driver's library, or functions of this process.

use crate::error::Error;
use crate::slots;
use libloading::Library;
use std::mem::forget;
use std::sync::{Mutex, PoisonError};

/// The driver's library as its own packages install it, on systems that have one.
pub(crate) const LIBRARY: Option<&str> = if cfg!(target_os = "linux") {
    Some("libcuda.so.1")
} else if cfg!(windows) {
    Some("nvcuda.dll")
} else {
    None
};

/// The source that filled the slots.
#[derive(Debug)]
struct Source {
    name: &'static str,
    /// What [`install`] was given, to tell a repetition from a second installation; empty for the library.
    addresses: Vec<(&'static str, usize)>,
}

/// Set once. The lock is held while slots are filled, so no thread sees a half-filled table through it.
static SOURCE: Mutex<Option<Source>> = Mutex::new(None);

/// Fills the slots from the driver's library, unless they are filled. A failure changes nothing and may be retried.
pub(crate) fn ensure() -> Result<(), Error> {
    let mut source = SOURCE.lock().unwrap_or_else(PoisonError::into_inner);
    if source.is_some() {
        return Ok(());
    }
    let name = LIBRARY.ok_or(Error::UnsupportedSystem { system: std::env::consts::OS })?;
    // SAFETY: the driver's library runs its initialisers here, as in every CUDA program; they have no preconditions.
    let library = unsafe { Library::new(name) }
        .map_err(|e| Error::LibraryNotFound { library: name, reason: innermost(&e) })?;
    for (symbol, slot) in slots::TABLE {
        // SAFETY: only the address is taken; its type is given where it is called, by `sys`.
        if let Ok(address) = unsafe { library.get::<*mut ()>(*symbol) } {
            slot.fill(*address);
        }
    }
    // Never unloaded: the slots point into it, and the driver keeps threads of its own.
    forget(library);
    *source = Some(Source { name, addresses: Vec::new() });
    Ok(())
}

/// Fills slots with functions of this process: an emulator, or a fake for a test.
///
/// `name` is what errors call it. The macro [`driver_functions!`](crate::driver_functions) makes the list and checks
/// every signature. Functions that are not in the list stay absent: calls to them return
/// [`Status::STUB_LIBRARY`](crate::Status::STUB_LIBRARY).
///
/// # Errors
/// [`Error::AlreadyLoaded`] if a driver is in use, or other functions are installed: the first installation stays for
/// the life of the process. The same list again is no error. [`Error::UnknownFunction`] if a name is none of the
/// driver's. Nothing is installed then.
///
/// # Safety
/// Each address must be a function with the signature that [`sys`](crate::sys) gives its name, and sound to call
/// under the driver's own rules for the life of the process.
pub unsafe fn install(name: &'static str, functions: &[(&'static str, *const ())]) -> Result<(), Error> {
    let mut source = SOURCE.lock().unwrap_or_else(PoisonError::into_inner);
    let addresses: Vec<_> = functions.iter().map(|&(n, f)| (n, f as usize)).collect();
    if let Some(source) = source.as_ref() {
        if source.name == name && source.addresses == addresses {
            return Ok(());
        }
        return Err(Error::AlreadyLoaded { loaded: source.name, refused: name });
    }
    if let Some((unknown, _)) = functions.iter().find(|(n, _)| slots::find(n).is_none()) {
        return Err(Error::UnknownFunction { function: unknown });
    }
    for (symbol, address) in functions {
        if let Some(slot) = slots::find(symbol) {
            slot.fill(address.cast_mut());
        }
    }
    *source = Some(Source { name, addresses });
    Ok(())
}

/// What the driver's functions come from: the library's file name, or the name given to [`install`]; `None` while
/// nothing is loaded.
pub fn loaded() -> Option<&'static str> {
    SOURCE.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|s| s.name)
}

/// The loader's own words, which `libloading` keeps as the source of its error.
fn innermost(error: &libloading::Error) -> String {
    let mut error: &dyn std::error::Error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
