//! Checks that launchers share: an error before anything is queued.

use crate::Error;
use halfbyte_cuda_driver::{Context, DevicePointer};

pub(crate) fn length(what: &'static str, expected: usize, got: usize) -> Result<(), Error> {
    if got == expected { Ok(()) } else { Err(Error::Length { what, expected, got }) }
}

pub(crate) fn at_most(what: &'static str, limit: usize, got: usize) -> Result<(), Error> {
    if got <= limit { Ok(()) } else { Err(Error::TooLarge { what, limit, got }) }
}

pub(crate) fn multiple_of(kernel: &'static str, multiple: usize, got: usize) -> Result<(), Error> {
    if got > 0 && got.is_multiple_of(multiple) {
        Ok(())
    } else {
        Err(Error::Inputs { kernel, multiple, got })
    }
}

pub(crate) fn same(what: &'static str, expected: usize, got: usize) -> Result<(), Error> {
    if got == expected { Ok(()) } else { Err(Error::Mismatch { what, expected, got }) }
}

/// A buffer is of the kernels' context, and begins where a load of `expected` bytes may.
pub(crate) fn place(
    what: &'static str,
    kernels: &Context,
    buffer: &Context,
    pointer: DevicePointer,
    expected: usize,
) -> Result<(), Error> {
    if kernels.raw() != buffer.raw() {
        return Err(Error::OtherContext { what });
    }
    let got = (pointer.0 % expected as u64) as usize;
    if got == 0 { Ok(()) } else { Err(Error::Alignment { what, expected, got }) }
}

/// Positions `start` to `start + rows` are below `end`.
pub(crate) fn positions(what: &'static str, end: usize, rows: usize, start: usize) -> Result<(), Error> {
    if start.checked_add(rows).is_some_and(|last| last <= end) {
        return Ok(());
    }
    Err(Error::Position { what, end, start, rows })
}

/// The attention kernels were compiled for these sizes of a head.
pub(crate) fn attention_head_dim(head_dim: usize) -> Result<(), Error> {
    match head_dim {
        64 | 128 | 256 => Ok(()),
        got => Err(Error::HeadDim { expected: "64, 128 or 256", got }),
    }
}
