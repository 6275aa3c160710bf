//! A thread's working memory, kept between calls: no allocation per token.

use bytemuck::{Pod, Zeroable};
use std::cell::RefCell;

/// A cache line, so that vector loads never straddle two.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u32; 16]);

/// What the memory is for. Each purpose has memory of its own, so that a kernel can use both at once on a thread.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    /// Rows of weights in the form that a tile takes them.
    Weights,
    /// Activations in the form that a tile takes them.
    Activations,
    /// Rows that were gathered for a product, before they take the form above.
    Gathered,
}

thread_local! {
    static LINES: [RefCell<Vec<Line>>; 3] =
        const { [RefCell::new(Vec::new()), RefCell::new(Vec::new()), RefCell::new(Vec::new())] };
}

/// Calls `f` with `n` lines of unspecified (but initialised) content.
pub(crate) fn with_lines<R>(purpose: Purpose, n: usize, f: impl FnOnce(&mut [Line]) -> R) -> R {
    LINES.with(|lines| match lines[purpose as usize].try_borrow_mut() {
        Ok(mut lines) => {
            if lines.len() < n {
                lines.resize(n, Line::zeroed());
            }
            f(&mut lines[..n])
        }
        // A kernel runs inside another on the same thread. That is rare, and memory of its own makes it correct.
        Err(_) => f(&mut vec![Line::zeroed(); n]),
    })
}
