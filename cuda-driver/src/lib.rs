#![doc = include_str!("../README.md")]

#[cfg(all(
    feature = "cust",
    not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))
))]
compile_error!("feature `cust` of halfbyte-cuda-driver is for Linux on x86-64 and aarch64");

mod context;
mod device;
mod driver;
mod error;
mod event;
#[cfg(feature = "cust")]
mod exports;
mod function;
#[cfg(feature = "cust")]
mod interop;
mod launch;
mod load;
mod memory;
mod module;
mod slots;
mod status;
mod stream;
mod symbols;
pub mod sys;

pub use context::{Context, MemoryInfo};
pub use device::{Attribute, ComputeCapability, Device};
pub use driver::{Driver, DriverVersion};
pub use error::Error;
pub use event::{Event, Timing};
pub use function::{Function, FunctionAttribute, Parameter};
pub use launch::{Argument, LaunchConfig};
pub use load::{install, loaded};
pub use memory::{DeviceBuffer, DevicePointer, DeviceSlice, DeviceSliceMut, PinnedBuffer};
pub use module::Module;
pub use status::Status;
pub use stream::{Stream, StreamKind};

#[cfg(feature = "cust")]
pub use stream::BorrowedStream;
