//! The instruction sets: one file each, primitives only.

/// Methods of `Simd` that are one instruction, or one a register: `name(arguments) -> result = intrinsic`, which `$on` applies
/// to the registers of a vector. `$on` is the file's macro with the argument that makes it safe.
#[cfg(target_arch = "x86_64")]
macro_rules! lanewise {
    ($on:ident; $($name:ident($($arg:ident: $ty:ident),*) -> $out:ident = $f:ident;)*) => {
        $(#[inline(always)]
        fn $name(self, $($arg: Self::$ty),*) -> Self::$out {
            $on!($f, $($arg),*)
        })*
    };
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod scalar;

/// Prefetches the cache line at `p` into the second-level cache.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch(p: *const u8) {
    use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    // SAFETY: a hint, without effect on an address that can't be read; every x86-64 CPU has the instruction.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
}
