//! Output rows that several threads write to, each its own heads.

use core::marker::PhantomData;

/// The output slice of a call, shared among its tiles.
pub(crate) struct Output<'a> {
    start: *mut f32,
    len: usize,
    borrow: PhantomData<&'a mut [f32]>,
}

// SAFETY: it gives out parts of a slice of f32 that it borrows exclusively; `head` leaves it to its callers that
// the parts are disjoint.
unsafe impl Sync for Output<'_> {}

impl<'a> Output<'a> {
    pub(crate) fn new(out: &'a mut [f32]) -> Self {
        Self { start: out.as_mut_ptr(), len: out.len(), borrow: PhantomData }
    }

    /// The elements `at .. at + len`.
    ///
    /// # Safety
    /// No other borrow of any of them is alive.
    ///
    /// # Panics
    /// If they do not lie inside the output.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "that the parts are disjoint is the caller's promise")]
    pub(crate) unsafe fn head(&self, at: usize, len: usize) -> &mut [f32] {
        assert!(at <= self.len && len <= self.len - at);
        // SAFETY: checked above to lie inside.
        let start = unsafe { self.start.add(at) };
        // SAFETY: `len` elements there lie inside the slice, which is borrowed for as long as `self`; the caller
        // promises that nobody else uses them.
        unsafe { core::slice::from_raw_parts_mut(start, len) }
    }
}
