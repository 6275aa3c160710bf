//! Signals that would end the program without a word.

/// From now on, reading a mapped file beyond an end that it did not have when it was mapped ends the process with a
/// message and exit code 1, where the system would kill it without a word; and writing a file beyond a limit of its size
/// is an error like any other. For programs, not for libraries: it is about the whole process.
#[cfg(unix)]
#[allow(unsafe_code, reason = "signals cannot be handled otherwise")]
pub(crate) fn explain_cut_files() {
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
pub(crate) fn explain_cut_files() {}
