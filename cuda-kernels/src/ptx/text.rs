//! Reads from a PTX text what a launch has to know.
//!
//! `cargo xtask contract` includes this file by its path: it reads the texts on disk, not those that were compiled in.

/// What a launch of an entry point has to give, as the PTX text says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Threads of a block; no other number works.
    pub threads: u32,
    /// Bytes of dynamic shared memory a block. Beyond 48 KiB the function's attribute has to be raised first.
    pub shared_bytes: u32,
}

/// The text after each `.visible .entry`, which begins with the entry point's name.
fn bodies(ptx: &str) -> impl Iterator<Item = &str> {
    ptx.split(".visible .entry ").skip(1)
}

/// The names of the entry points, in the order of the text.
pub(crate) fn entries(ptx: &str) -> impl Iterator<Item = &str> {
    bodies(ptx).map(|body| body.split('(').next().unwrap_or_default())
}

/// The block of one entry point, if the text has it and gives its threads.
pub(crate) fn block(ptx: &str, entry: &str) -> Option<Block> {
    let body = bodies(ptx).find(|body| body.strip_prefix(entry).is_some_and(|rest| rest.starts_with('(')))?;
    let number_after = |label: &str| -> Option<u32> {
        let rest = &body[body.find(label)? + label.len()..];
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    Some(Block {
        threads: number_after(".maxntid ")?,
        // A kernel that uses dynamic shared memory writes this line into its text.
        shared_bytes: number_after("// dynamic shared memory: ").unwrap_or(0),
    })
}
