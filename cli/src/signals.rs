//! Signals: a first one stops the work that is under way, and those that would end the program silently are reported.
//!
//! Ctrl-C (SIGINT), SIGTERM and SIGHUP stop the work in order: a reply ends and its summary is shown, a conversion leaves its
//! output as it was. A second signal ends the program at once. In both cases temporary files are removed.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use halfbyte_gguf::AtomicFile;

/// A signal that asks the program to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGINT, which Ctrl-C sends.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal is gone.
    HangUp,
}

impl Signal {
    /// Its number, which is the same on all systems.
    const fn number(self) -> u8 {
        match self {
            Self::Interrupt => 2,
            Self::Terminate => 15,
            Self::HangUp => 1,
        }
    }

    const fn from_number(number: u8) -> Option<Self> {
        match number {
            2 => Some(Self::Interrupt),
            15 => Some(Self::Terminate),
            1 => Some(Self::HangUp),
            _ => None,
        }
    }

    /// The exit code of a program that this signal has ended, as shells report it: 128 and the signal's number.
    pub(crate) const fn exit_code(self) -> u8 {
        128 + self.number()
    }

    /// Ends the program at once.
    pub(crate) fn exit(self) -> ! {
        AtomicFile::remove_unfinished();
        std::process::exit(self.exit_code().into())
    }
}

// Flags alone: no other memory is published with them, so Relaxed is enough.
static WORKING: AtomicBool = AtomicBool::new(false);
/// The number of the signal that asked the current work to stop; 0 is none.
static STOPPED_BY: AtomicU8 = AtomicU8::new(0);
/// The number of the signal that the program ends with when its work is done; 0 is none.
static ENDED_BY: AtomicU8 = AtomicU8::new(0);

/// Work that a signal stops, for as long as this value lives.
pub(crate) struct Work;

impl Work {
    pub(crate) fn new() -> Self {
        STOPPED_BY.store(0, Ordering::Relaxed);
        WORKING.store(true, Ordering::Relaxed);
        Self
    }

    /// The signal that has arrived since this was made.
    pub(crate) fn stopped_by(&self) -> Option<Signal> {
        Signal::from_number(STOPPED_BY.load(Ordering::Relaxed))
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped_by().is_some()
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        WORKING.store(false, Ordering::Relaxed);
    }
}

/// Makes the program's exit code that of `signal`, once its work has ended.
pub(crate) fn end_by(signal: Signal) {
    ENDED_BY.store(signal.number(), Ordering::Relaxed);
}

/// The signal given to [`end_by`].
pub(crate) fn ended_by() -> Option<Signal> {
    Signal::from_number(ENDED_BY.load(Ordering::Relaxed))
}

/// From now on, a signal stops the [`Work`] that is under way, and a second one ends the program. Without work, a
/// signal ends the program; an `interactive` one goes on after SIGINT, because its line editor reads Ctrl-C as a key.
/// A later call only changes `interactive`.
pub(crate) fn stop_work(interactive: bool) -> Result<()> {
    on_signal(move |signal| {
        if WORKING.load(Ordering::Relaxed) {
            if STOPPED_BY.swap(signal.number(), Ordering::Relaxed) != 0 {
                signal.exit();
            }
        } else if !(interactive && signal == Signal::Interrupt) {
            signal.exit();
        }
    })
}

type Handler = Box<dyn FnMut(Signal) + Send>;

/// What a signal does, once something is set.
static HANDLER: Mutex<Option<Handler>> = Mutex::new(None);

/// Sets what a signal does from now on, in place of what it did: weights may be quantized before the work that they are
/// for begins. The handler runs on a thread of its own and may do anything.
pub(crate) fn on_signal(handler: impl FnMut(Signal) + Send + 'static) -> Result<()> {
    let lock = || HANDLER.lock().unwrap_or_else(PoisonError::into_inner);
    if lock().replace(Box::new(handler)).is_some() {
        return Ok(());
    }
    listen(move |signal| {
        if let Some(handler) = lock().as_mut() {
            handler(signal);
        }
    })
    .context("cannot handle signals")
}

/// Calls `handler` on a thread of its own for every signal.
#[cfg(unix)]
fn listen(handler: impl Fn(Signal) + Send + 'static) -> std::io::Result<()> {
    let mut numbers = vec![libc::SIGINT, libc::SIGTERM];
    // Under `nohup` the signal is ignored, and has to stay so.
    if !is_ignored(libc::SIGHUP) {
        numbers.push(libc::SIGHUP);
    }
    let mut signals = signal_hook::iterator::Signals::new(numbers)?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let numbers = signals.forever().filter_map(|number| u8::try_from(number).ok());
        numbers.filter_map(Signal::from_number).for_each(handler);
    })?;
    Ok(())
}

#[cfg(not(unix))]
fn listen(handler: impl Fn(Signal) + Send + 'static) -> Result<()> {
    Ok(ctrlc::set_handler(move || handler(Signal::Interrupt))?)
}

#[cfg(unix)]
#[allow(unsafe_code, reason = "the standard library has no call for it")]
fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null pointer changes nothing, and the other points to memory for the answer.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all-zero bytes are a valid `sigaction`, also where the call has failed.
    let action = unsafe { action.assume_init() };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// From now on, reading a mapped file beyond an end that it did not have when it was mapped ends the process with a
/// message and exit code 1, where the system would kill it without a message; and writing a file beyond a limit of its size
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
