//! The unsafe calls of this crate: mapping a model file into memory, and giving its pages back.

use std::fs::File;
use std::io;

use memmap2::Mmap;

/// Maps the whole of `file` read-only.
///
/// The mapping is only as constant as the file: a process that overwrites the
/// file in place changes the weights under the reader, and one that truncates
/// it makes the next access past the new end fail with SIGBUS. No portable call
/// prevents either. Replacing a model by rename, as [`super::GgufWriter`] does,
/// is always safe, because the mapping keeps the old file alive. Nothing in
/// this module relies on the bytes staying as they were for memory safety: all
/// names, metadata and sizes are copied out and checked once, and weight types
/// accept any bit pattern.
#[allow(unsafe_code, reason = "memory mapping cannot be checked by the compiler; the argument is above")]
pub(super) fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: the contract of `Mmap::map` is that the file is not modified
    // while mapped. That is the documented condition of `Gguf::open`, and the
    // paragraph above says why breaking it yields wrong numbers or a killed
    // process and not a wrong length or an invalid value.
    unsafe { Mmap::map(file) }
}

/// Lets the system take back the pages of `map`; reading them brings them back from the file.
#[allow(
    unsafe_code,
    reason = "the kind of advice that loses data in writable mappings; this one is not writable"
)]
pub(super) fn release(map: &Mmap) {
    #[cfg(unix)]
    {
        // SAFETY: the mapping is shared and read-only: dropped pages are read from the file again, which has the same
        // bytes as before under the condition of `map`.
        let advised = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
        // Advice: nothing depends on it.
        let _ = advised;
    }
    #[cfg(not(unix))]
    let _ = map;
}
