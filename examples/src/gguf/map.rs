//! The unsafe calls of this crate: mapping a model file into memory, giving its pages back, and ending with a message
//! when a mapped file is cut short.

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
pub(crate) fn map(file: &File) -> io::Result<Mmap> {
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
pub(crate) fn release(map: &Mmap) {
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

/// From now on, reading a mapped file beyond an end that it did not have when it was mapped ends the process with a
/// message and exit code 1, where the system would kill it without a word; and writing a file beyond a limit of its size
/// is an error like any other. For programs, not for libraries: it is about the whole process.
#[cfg(unix)]
#[allow(unsafe_code, reason = "signals cannot be handled otherwise")]
pub fn explain_cut_files() {
    const MESSAGE: &[u8] =
        b"error: a model file was cut short, or could not be read any more, while it was in use \
        (a model in use can be replaced by a new file, but not be written to)\n";

    extern "C" fn cut(_: libc::c_int) {
        // SAFETY: async-signal-safe, on bytes that live forever.
        unsafe { libc::write(libc::STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len()) };
        // SAFETY: async-signal-safe; nothing of this process runs afterwards.
        unsafe { libc::_exit(1) };
    }

    let handler: extern "C" fn(libc::c_int) = cut;
    // SAFETY: the handler calls nothing but async-signal-safe functions and does not return.
    unsafe { libc::signal(libc::SIGBUS, handler as libc::sighandler_t) };
    // SAFETY: ignoring a signal runs no code; the write that caused it fails with EFBIG.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Nothing to be done here: mapped files can't be cut.
#[cfg(not(unix))]
pub fn explain_cut_files() {}
