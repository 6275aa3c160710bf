//! The errors of this crate, and the check of a driver call's result.

use crate::driver::DriverVersion;
use crate::slots;
use crate::status::Status;
use crate::sys::CUresult;

/// Errors of this crate: what was needed, and what was found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver's library is not installed, or the system's loader refuses it.
    #[error(
        "no CUDA driver: {library} could not be loaded ({reason}); it comes with NVIDIA's display driver"
    )]
    LibraryNotFound {
        /// The library's file name.
        library: &'static str,
        /// What the system's loader said.
        reason: String,
    },

    /// There is no CUDA driver for this operating system.
    #[error("no CUDA driver: NVIDIA has none for {system}, only for Linux and Windows")]
    UnsupportedSystem {
        /// The operating system.
        system: &'static str,
    },

    /// The driver is older than what the caller needs.
    #[error("the CUDA driver is too old: it supports CUDA {found}, {needed} is needed")]
    DriverTooOld {
        /// The version that the driver reports.
        found: DriverVersion,
        /// The version asked for.
        needed: DriverVersion,
    },

    /// The driver has no function of this name, as older ones do not have the newer functions.
    #[error("the CUDA driver has no function {function}{}", found.map_or(String::new(), |v| format!("; it supports CUDA {v}")))]
    MissingFunction {
        /// The function's name.
        function: &'static str,
        /// The version that the driver reports, if it does.
        found: Option<DriverVersion>,
    },

    /// The driver is there but did not start.
    #[error("the CUDA driver did not start: {status}")]
    Init {
        /// What `cuInit` returned.
        status: Status,
    },

    /// The driver is there and found no GPU.
    #[error("the CUDA driver found no GPU: 1 is needed, 0 were found")]
    NoDevice,

    /// A device number past the last.
    #[error("there is no CUDA device {ordinal}: {count} were found")]
    NoSuchDevice {
        /// The number asked for, from 0.
        ordinal: usize,
        /// How many devices there are.
        count: usize,
    },

    /// A driver or other functions are in use already.
    #[error("{refused} cannot be installed as CUDA driver: {loaded} is in use already")]
    AlreadyLoaded {
        /// What is in use.
        loaded: &'static str,
        /// What was to be installed.
        refused: &'static str,
    },

    /// A name in an installation that is no driver function's.
    #[error("{function} is no function of the CUDA driver")]
    UnknownFunction {
        /// The name.
        function: &'static str,
    },

    /// A driver function failed. After some failures (see [`Status`]) the context is lost, and with it all that is
    /// in it.
    #[error("{function}: {status}")]
    Call {
        /// The function.
        function: &'static str,
        /// What it returned.
        status: Status,
    },

    /// A module did not load.
    #[error("the module did not load: {status}{}{log}", if log.is_empty() { "" } else { "\n" })]
    Module {
        /// What the driver returned.
        status: Status,
        /// What the driver's compiler wrote, if anything.
        log: String,
    },

    /// A name or PTX text with a zero byte in it, which C cannot take.
    #[error("{what} cannot hold a zero byte, found one at {at}")]
    ZeroByte {
        /// What it was for.
        what: &'static str,
        /// The byte's position.
        at: usize,
    },

    /// Two lengths that have to be equal are not.
    #[error("{what}: expected {expected} elements, got {got}")]
    Length {
        /// The operation.
        what: &'static str,
        /// The length of the memory copied to or from.
        expected: usize,
        /// The length given.
        got: usize,
    },

    /// A range that does not lie in the buffer.
    #[error("range {start}..{end} of a device buffer of {len} elements")]
    Range {
        /// The range's start.
        start: usize,
        /// The range's end.
        end: usize,
        /// The buffer's length.
        len: usize,
    },

    /// A buffer of more bytes than an address can count.
    #[error("a buffer of {len} elements of {size} bytes is too large for any memory")]
    TooLarge {
        /// The number of elements.
        len: usize,
        /// The size of an element in bytes.
        size: usize,
    },

    /// Objects of different contexts in one operation.
    #[error("{what} belongs to another context")]
    OtherContext {
        /// The object that is out of place.
        what: &'static str,
    },

    /// A grid or block that no device can run, or more threads than the kernel was built for.
    #[error("launch of {kernel}: {what} is 1 to {limit}, got {got}")]
    LaunchShape {
        /// The kernel's name.
        kernel: String,
        /// Which extent.
        what: &'static str,
        /// Its largest value.
        limit: u64,
        /// Its value.
        got: u64,
    },

    /// More dynamic shared memory than the kernel may have.
    #[error("{kernel} may have {limit} bytes of dynamic shared memory, {got} were asked for")]
    SharedMemory {
        /// The kernel's name.
        kernel: String,
        /// The limit: at a launch the one set on the function, when it is set the device's.
        limit: usize,
        /// The bytes asked for.
        got: usize,
    },

    /// Not the number of arguments that the kernel takes.
    #[error("{kernel} takes {expected} arguments, got {got}")]
    ArgumentCount {
        /// The kernel's name.
        kernel: String,
        /// How many it takes.
        expected: usize,
        /// How many were given.
        got: usize,
    },

    /// An argument of another size than the kernel's parameter.
    #[error("argument {index} of {kernel} has {expected} bytes, got {got}")]
    ArgumentSize {
        /// The kernel's name.
        kernel: String,
        /// The argument's position, from 0.
        index: usize,
        /// The parameter's size in bytes.
        expected: usize,
        /// The argument's size in bytes.
        got: usize,
    },
}

/// `Ok` if a call of the driver's `function` returned 0.
pub(crate) fn check(function: &'static str, result: CUresult) -> Result<(), Error> {
    let status = Status(result);
    if status == Status::SUCCESS {
        return Ok(());
    }
    let absent = slots::find(function).is_none_or(|slot| !slot.is_filled());
    if status == Status::STUB_LIBRARY && absent {
        return Err(Error::MissingFunction { function, found: DriverVersion::found() });
    }
    Err(Error::Call { function, status })
}
