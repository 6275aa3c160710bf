//! One piece of memory for many matrices, on huge pages where the system gives them.
//!
//! A token reads every weight once, in order. With pages of 4 KiB the processor's prefetcher stops at the end of
//! each, and each costs a translation; `docs/performance.md` has what pages of 2 MiB gain.

use crate::scratch::Line;
use bytemuck::Zeroable;
use core::fmt;
use core::mem::MaybeUninit;
use halfbyte_threadpool::ThreadPool;

/// Bytes of a huge page where there are such.
const HUGE: usize = 2 << 20;

/// Cache lines, written once.
pub(super) struct Memory {
    lines: Box<[MaybeUninit<Line>]>,
    /// Where those in use begin: at the start of a huge page, if they fill one.
    start: usize,
    /// How many are in use, all of them initialised.
    used: usize,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("used", &self.used).finish_non_exhaustive()
    }
}

impl Memory {
    /// Room for `n` lines, none of them in use.
    pub(super) fn with_capacity(n: usize) -> Self {
        let huge = n * size_of::<Line>() >= HUGE;
        // Less than a huge page more, which is never touched and so takes no memory.
        let slack = if huge { HUGE / size_of::<Line>() } else { 0 };
        let lines = Box::new_uninit_slice(n + slack);
        let start = if huge { lines.as_ptr().align_offset(HUGE).min(slack) } else { 0 };
        let memory = Self { lines, start, used: 0 };
        memory.advise_huge_pages(n);
        memory
    }

    /// Advises the system to use huge pages for the `n` lines, before their first use decides which pages they get.
    #[cfg(target_os = "linux")]
    fn advise_huge_pages(&self, n: usize) {
        let bytes = n * size_of::<Line>() / HUGE * HUGE;
        if bytes > 0 {
            let start = self.lines[self.start..].as_ptr().cast_mut();
            // SAFETY: the range lies in `lines`, and the advice changes no content.
            unsafe { libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE) };
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn advise_huge_pages(&self, _: usize) {}

    /// Takes `n` more lines into use and calls `fill` with every piece of `length` of them (the last may be shorter)
    /// and its number, on the threads of `pool`; what it does not write is zero. Says where they begin.
    ///
    /// # Panics
    /// If there is no room for them.
    pub(super) fn append(
        &mut self,
        pool: &ThreadPool,
        n: usize,
        length: usize,
        fill: impl Fn(usize, &mut [Line]) + Sync,
    ) -> usize {
        let at = self.used;
        if n == 0 {
            return at;
        }
        let new = &mut self.lines[self.start + at..][..n];
        pool.par_chunks_mut(new, length, |i, piece| {
            for line in piece.iter_mut() {
                line.write(Line::zeroed());
            }
            // SAFETY: every line has just been written, and `piece` is borrowed for as long.
            let lines = unsafe { core::slice::from_raw_parts_mut(piece.as_mut_ptr().cast(), piece.len()) };
            fill(i, lines);
        });
        self.used += n;
        at
    }

    /// `n` lines from line `at` on.
    ///
    /// # Panics
    /// If they are not all in use.
    #[inline(always)]
    pub(super) fn lines(&self, at: usize, n: usize) -> &[Line] {
        let lines = &self.lines[self.start..][..self.used][at..][..n];
        // SAFETY: lines in use have been written by `append`, and are borrowed for as long.
        unsafe { core::slice::from_raw_parts(lines.as_ptr().cast(), n) }
    }
}
