//! Handles: numbers that name a machine and one of its things, so that any of the driver's functions finds both.

use halfbyte_cuda_driver::Status;
use std::ptr::without_provenance_mut;

/// What a handle is of. In the lowest bits, so that a handle of another kind is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Context = 1,
    Module = 2,
    Function = 3,
    Stream = 4,
    Event = 5,
}

const KIND_BITS: u32 = 3;
const SERIAL_BITS: u32 = 33;

/// A handle's parts: 28 bits for the machine, 33 for the thing, 3 for the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle {
    pub(super) machine: u64,
    pub(super) serial: u64,
}

impl Handle {
    pub(super) fn to_raw<T>(self, kind: Kind) -> *mut T {
        let number = (self.machine << SERIAL_BITS | self.serial) << KIND_BITS | kind as u64;
        without_provenance_mut(number as usize)
    }

    /// The parts, if the handle can be one of `kind`.
    pub(super) fn from_raw<T>(raw: *mut T, kind: Kind) -> Result<Handle, Status> {
        let number = raw.addr() as u64;
        if number & ((1 << KIND_BITS) - 1) != kind as u64 {
            return Err(Status::INVALID_HANDLE);
        }
        let number = number >> KIND_BITS;
        Ok(Handle { machine: number >> SERIAL_BITS, serial: number & ((1 << SERIAL_BITS) - 1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_keeps_its_parts_and_its_kind() {
        let handle = Handle { machine: (1 << 28) - 1, serial: (1 << 33) - 1 };
        let raw: *mut u8 = handle.to_raw(Kind::Event);
        assert_eq!(Handle::from_raw(raw, Kind::Event), Ok(handle));
        assert_eq!(Handle::from_raw(raw, Kind::Stream), Err(Status::INVALID_HANDLE));
        assert_eq!(Handle::from_raw(std::ptr::null_mut::<u8>(), Kind::Event), Err(Status::INVALID_HANDLE));
    }
}
