//! The PTX shipped with this crate, one text per source file.
//!
//! `kernels/NAME.cu` compiled for the oldest architecture that has its instructions; a driver compiles the PTX for the
//! GPU at hand, so text for sm_80 serves every later one. `cargo xtask ptx` rebuilds the texts, and a test compares
//! their hashes with the sources'.

/// The PTX of one source file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ptx {
    /// The source's name without `.cu`; every entry point in it begins with this.
    pub name: &'static str,
    /// The text for compute capability 8.0 and later.
    pub sm_80: &'static str,
}

macro_rules! ptx {
    ($($(#[$doc:meta])* $constant:ident = $name:literal;)*) => {
        $(
            $(#[$doc])*
            pub const $constant: Ptx =
                Ptx { name: $name, sm_80: include_str!(concat!("../ptx/sm_80/", $name, ".ptx")) };
        )*
        /// Every text, in the order of the names.
        pub const ALL: &[Ptx] = &[$($constant),*];
    };
}

ptx! {
    /// The residual sum of bf16 vectors.
    ADD_BF16 = "add_bf16";
}

impl Ptx {
    /// The names of the entry points, in the order of the text.
    pub fn entries(&self) -> impl Iterator<Item = &'static str> {
        let declared = self.sm_80.split(".visible .entry ").skip(1);
        declared.map(|rest| rest.split('(').next().unwrap_or_default())
    }
}

/// The text that has an entry point, if one does.
///
/// ```
/// use halfbyte_cuda_kernels::ptx;
/// assert_eq!(ptx::of_entry("add_bf16"), Some(ptx::ADD_BF16));
/// assert_eq!(ptx::of_entry("add_bf17"), None);
/// ```
#[must_use]
pub fn of_entry(entry: &str) -> Option<Ptx> {
    ALL.iter().copied().find(|p| p.entries().any(|e| e == entry))
}
