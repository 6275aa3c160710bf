//! What the emulator lacks: a function for every name that notes the call and returns `CUDA_ERROR_NOT_SUPPORTED`.

use crate::driver::machine::Machine;
use halfbyte_cuda_driver::sys::CUresult;
use halfbyte_cuda_driver::{Status, with_symbols};

fn note(name: &'static str) -> CUresult {
    if let Ok(machine) = Machine::of_thread() {
        *machine.state().unsupported.entry(name).or_default() += 1;
    }
    Status::NOT_SUPPORTED.0
}

macro_rules! all {
    (answered { $($a:ident,)* } forwarded { $($f:ident,)* } ours { $($o:ident,)* }) => {
        all! { $($a)* $($f)* $($o)* }
    };
    ($($name:ident)*) => {
        #[allow(non_snake_case, reason = "the driver's own names")]
        mod functions {
            // They ignore their arguments, which the C calling conventions of x86-64 and aarch64 leave to the caller.
            $(pub(super) extern "system" fn $name() -> super::CUresult { super::note(stringify!($name)) })*
        }
        /// One for each name that `cuda-driver` knows.
        pub(super) static TABLE: &[(&str, extern "system" fn() -> CUresult)] =
            &[$((stringify!($name), functions::$name),)*];
    };
}

with_symbols!(all);
