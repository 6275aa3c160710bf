//! A thread's working memory for packed panels and decoded rows, kept between calls: no allocation per token.

use bytemuck::{Pod, Zeroable};
use std::cell::RefCell;

/// A cache line, so that vector loads never straddle two.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u32; 16]);

thread_local! {
    static LINES: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// Calls `f` with `n` lines of unspecified (but initialised) content.
pub(crate) fn with_lines<R>(n: usize, f: impl FnOnce(&mut [Line]) -> R) -> R {
    LINES.with(|lines| match lines.try_borrow_mut() {
        Ok(mut lines) => {
            if lines.len() < n {
                lines.resize(n, Line::zeroed());
            }
            f(&mut lines[..n])
        }
        // A kernel inside a kernel on the same thread: rare, and correct with memory of its own.
        Err(_) => f(&mut vec![Line::zeroed(); n]),
    })
}
