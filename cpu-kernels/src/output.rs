//! Writing one matrix from several threads.

use core::marker::PhantomData;

/// The output `y` of a GEMM, `tokens` x `rows` row-major, shared by threads that write disjoint columns.
#[derive(Clone, Copy)]
pub(crate) struct Output<'a> {
    start: *mut f32,
    tokens: usize,
    rows: usize,
    lifetime: PhantomData<&'a mut [f32]>,
}

// SAFETY: the only way to write is `at`, whose callers promise disjoint elements.
unsafe impl Send for Output<'_> {}
// SAFETY: as for Send.
unsafe impl Sync for Output<'_> {}

impl<'a> Output<'a> {
    /// All of `y`, which must be `tokens * rows` long.
    pub(crate) fn new(y: &'a mut [f32], tokens: usize, rows: usize) -> Self {
        assert_eq!(y.len(), tokens * rows);
        Self { start: y.as_mut_ptr(), tokens, rows, lifetime: PhantomData }
    }

    /// Outputs of a token.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// `n` consecutive outputs of token `token`, from `row` on.
    ///
    /// # Safety
    /// `token` is below the number of tokens and `row + n` at most the number of rows. No other reference to any
    /// of these elements exists while the result lives: each thread works on rows of its own.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "the disjointness is the caller's promise")]
    pub(crate) unsafe fn at(&self, token: usize, row: usize, n: usize) -> &'a mut [f32] {
        debug_assert!(token < self.tokens && row + n <= self.rows);
        // SAFETY: inside the slice that `new` took, by the caller's promise.
        let start = unsafe { self.start.add(token * self.rows + row) };
        // SAFETY: `n` elements lie there inside that slice, exclusively ours by the caller's promise.
        unsafe { core::slice::from_raw_parts_mut(start, n) }
    }
}
