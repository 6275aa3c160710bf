//! The instruction set, detected once at run time.

#[cfg(target_arch = "aarch64")]
use crate::arch::neon::Neon;
use crate::arch::scalar::Scalar;
#[cfg(target_arch = "x86_64")]
use crate::arch::{avx2::Avx2, avx512::Avx512Vnni};
use crate::error::Error;
use crate::simd::{Kernel, Simd};
use core::fmt;
use std::sync::OnceLock;

/// The one environment variable that this crate reads: the name of the ISA that [`Isa::best`] gives.
pub const ISA_VARIABLE: &str = "HALFBYTE_ISA";

/// An instruction set that this machine can execute.
///
/// Made only by detection (CPUID and what the operating system saves), so a value is the proof. All of them give
/// the same bits; they differ in speed alone.
///
/// ```
/// use halfbyte_cpu_kernels::Isa;
/// assert!(Isa::available().contains(&Isa::scalar()));
/// assert_eq!(Isa::by_name("scalar").unwrap(), Isa::scalar());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Isa(Path);

/// In order of preference, the slowest first. A variant carries its token: only detection makes one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Path {
    Scalar(Scalar),
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2<false>),
    #[cfg(target_arch = "x86_64")]
    AvxVnni(Avx2<true>),
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni(Avx512Vnni),
}

/// What finds out whether this machine can run a path.
type Detect = fn() -> Option<Path>;

/// The names of the paths in this build, the slowest first, each with its detection.
const PATHS: &[(&str, Detect)] = &[
    ("scalar", || Some(Path::Scalar(Scalar))),
    #[cfg(target_arch = "aarch64")]
    ("neon-dotprod", || Neon::detect().map(Path::Neon)),
    #[cfg(target_arch = "x86_64")]
    ("avx2", || Avx2::<false>::detect().map(Path::Avx2)),
    #[cfg(target_arch = "x86_64")]
    ("avx-vnni", || Avx2::<true>::detect().map(Path::AvxVnni)),
    #[cfg(target_arch = "x86_64")]
    ("avx512-vnni", || Avx512Vnni::detect().map(Path::Avx512Vnni)),
];

impl Isa {
    /// Every path that this machine can run, the slowest first; never empty.
    pub fn available() -> Vec<Self> {
        PATHS.iter().filter_map(|(_, detect)| detect()).map(Self).collect()
    }

    /// The names of every path that this build contains, whether the machine can run it or not.
    pub fn known() -> Vec<&'static str> {
        PATHS.iter().map(|&(name, _)| name).collect()
    }

    /// The portable path.
    pub const fn scalar() -> Self {
        Self(Path::Scalar(Scalar))
    }

    /// The fastest path of this machine, or the one that `HALFBYTE_ISA` names; found once per process.
    ///
    /// # Errors
    /// [`Error::UnknownIsa`] or [`Error::IsaNotAvailable`] if the variable names no path, or one that this
    /// machine can't run.
    pub fn best() -> Result<Self, Error> {
        static BEST: OnceLock<Isa> = OnceLock::new();
        if let Some(&isa) = BEST.get() {
            return Ok(isa);
        }
        let isa = match Self::requested() {
            Some(name) => Self::by_name(&name)?,
            None => Self::fastest(),
        };
        Ok(*BEST.get_or_init(|| isa))
    }

    /// The name that the variable `HALFBYTE_ISA` holds; `None` if it is unset or empty.
    pub fn requested() -> Option<String> {
        let name = std::env::var_os(ISA_VARIABLE).filter(|name| !name.is_empty());
        name.map(|name| name.to_string_lossy().into_owned())
    }

    /// The fastest path of this machine, whatever the environment says.
    pub fn fastest() -> Self {
        Self::available().into_iter().next_back().unwrap_or(Self::scalar())
    }

    /// The path of this name.
    ///
    /// # Errors
    /// [`Error::UnknownIsa`] if there is no such path in this build, [`Error::IsaNotAvailable`] if this machine
    /// can't run it; both list what there is.
    pub fn by_name(name: &str) -> Result<Self, Error> {
        let (_, detect) = PATHS
            .iter()
            .find(|&&(known, _)| known == name)
            .ok_or_else(|| Error::UnknownIsa { name: name.to_owned(), known: Self::known().join(", ") })?;
        detect().map(Self).ok_or_else(|| {
            let available = Self::available().iter().map(|i| i.name()).collect::<Vec<_>>().join(", ");
            Error::IsaNotAvailable { name: name.to_owned(), available }
        })
    }

    /// The name, as `HALFBYTE_ISA` takes it.
    pub const fn name(self) -> &'static str {
        match self.0 {
            Path::Scalar(_) => "scalar",
            #[cfg(target_arch = "aarch64")]
            Path::Neon(_) => "neon-dotprod",
            #[cfg(target_arch = "x86_64")]
            Path::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Path::AvxVnni(_) => "avx-vnni",
            #[cfg(target_arch = "x86_64")]
            Path::Avx512Vnni(_) => "avx512-vnni",
        }
    }

    /// Runs `kernel` compiled for this path.
    pub fn dispatch<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Path::Scalar(token) => token.vectorize(kernel),
            #[cfg(target_arch = "aarch64")]
            Path::Neon(token) => token.vectorize(kernel),
            #[cfg(target_arch = "x86_64")]
            Path::Avx2(token) => token.vectorize(kernel),
            #[cfg(target_arch = "x86_64")]
            Path::AvxVnni(token) if K::INTEGER_DOTS => token.vectorize(kernel),
            #[cfg(target_arch = "x86_64")]
            Path::AvxVnni(token) => token.without_vnni().vectorize(kernel),
            #[cfg(target_arch = "x86_64")]
            Path::Avx512Vnni(token) => token.vectorize(kernel),
        }
    }
}

/// Who made this machine's CPU, for kernels whose fastest form differs between CPUs of the same instruction set.
///
/// ```
/// use halfbyte_cpu_kernels::CpuVendor;
/// assert_eq!(CpuVendor::of_this_machine(), CpuVendor::of_this_machine());
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CpuVendor {
    /// CPUID says `GenuineIntel`.
    Intel,
    /// CPUID says `AuthenticAMD`.
    Amd,
    /// Any other CPU, and all that are not x86-64.
    Other,
}

impl CpuVendor {
    /// The vendor, asked of the CPU once per process.
    pub fn of_this_machine() -> Self {
        static VENDOR: OnceLock<CpuVendor> = OnceLock::new();
        *VENDOR.get_or_init(Self::detect)
    }

    #[cfg(target_arch = "x86_64")]
    fn detect() -> Self {
        #[allow(
            unused_unsafe,
            reason = "newer compilers declare the function safe, that of `rust-version` unsafe"
        )]
        // SAFETY: every x86-64 CPU has the CPUID instruction.
        let leaf = unsafe { core::arch::x86_64::__cpuid(0) };
        let mut name = [0; 12];
        for (part, word) in name.as_chunks_mut::<4>().0.iter_mut().zip([leaf.ebx, leaf.edx, leaf.ecx]) {
            *part = word.to_le_bytes();
        }
        Self::named(name)
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn detect() -> Self {
        Self::Other
    }

    /// The vendor that CPUID names so.
    #[cfg(target_arch = "x86_64")]
    fn named(name: [u8; 12]) -> Self {
        match &name {
            b"GenuineIntel" => Self::Intel,
            b"AuthenticAMD" => Self::Amd,
            _ => Self::Other,
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::CpuVendor;

    #[test]
    fn vendors_go_by_what_cpuid_says() {
        assert_eq!(CpuVendor::named(*b"GenuineIntel"), CpuVendor::Intel);
        assert_eq!(CpuVendor::named(*b"AuthenticAMD"), CpuVendor::Amd);
        assert_eq!(CpuVendor::named(*b"intelGenuine"), CpuVendor::Other);
    }

    /// Linux prints the same twelve letters, from the same instruction.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_vendor_is_the_one_that_linux_prints() {
        let Ok(cpuinfo) = std::fs::read_to_string("/proc/cpuinfo") else {
            println!("no /proc/cpuinfo here: skipped");
            return;
        };
        let line = cpuinfo.lines().find_map(|line| line.strip_prefix("vendor_id"));
        let name = line.and_then(|line| line.trim_start_matches(['\t', ' ', ':']).as_bytes().try_into().ok());
        assert_eq!(CpuVendor::of_this_machine(), name.map_or(CpuVendor::Other, CpuVendor::named), "{line:?}");
    }
}
