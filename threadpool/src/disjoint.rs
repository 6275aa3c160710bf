//! One slice that several threads write to, each its own part.

use std::marker::PhantomData;

/// A mutable slice that the items of a call share, each of which takes a part that no other item takes.
///
/// [`ThreadPool::par_chunks_mut`](crate::ThreadPool::par_chunks_mut) is the safe way to hand out parts that follow each
/// other. This type is for the other cases, such as the columns of a row-major matrix. It checks that a part lies
/// inside the slice; that no two live parts overlap is a promise of the caller.
///
/// ```
/// use halfbyte_threadpool::{DisjointMut, ThreadPool};
///
/// // Item `i` writes column `i` of a matrix of 3 rows and 4 columns.
/// let mut matrix = [0; 3 * 4];
/// let shared = DisjointMut::new(&mut matrix);
/// ThreadPool::new(2)?.par_for(4, 1, |i| {
///     for row in 0..3 {
///         // SAFETY: every item has another column, so no two parts overlap.
///         unsafe { shared.part(row * 4 + i, 1) }.fill(i);
///     }
/// });
/// assert_eq!(matrix, [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]);
/// # Ok::<(), halfbyte_threadpool::Error>(())
/// ```
pub struct DisjointMut<'a, T> {
    start: *mut T,
    len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: the value stands for a `&mut [T]`, which may move to another thread where `T` may.
unsafe impl<T: Send> Send for DisjointMut<'_, T> {}
// SAFETY: a shared value gives access to elements by `part` alone, whose callers promise that each element has one user
// at a time. An element may so be used on another thread, which `T: Send` allows; it is never shared between threads.
unsafe impl<T: Send> Sync for DisjointMut<'_, T> {}

impl<'a, T> DisjointMut<'a, T> {
    /// All of `data`, which stays mutably borrowed for as long as the result or a part of it is used.
    #[must_use]
    pub fn new(data: &'a mut [T]) -> Self {
        Self { start: data.as_mut_ptr(), len: data.len(), borrow: PhantomData }
    }

    /// The number of elements.
    #[must_use]
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements `start..start + len`.
    ///
    /// # Panics
    ///
    /// If they do not lie inside the slice.
    ///
    /// # Safety
    ///
    /// While the result is used, no other part that shares an element with it is used.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::mut_from_ref, reason = "the caller promises that parts do not overlap")]
    pub unsafe fn part(&self, start: usize, len: usize) -> &'a mut [T] {
        if start > self.len || len > self.len - start {
            outside(start, len, self.len);
        }
        // SAFETY: `start <= self.len`, as just checked, and `new` took a slice of `self.len` elements.
        let first = unsafe { self.start.add(start) };
        // SAFETY: bounds: `start + len <= self.len`, as just checked. Validity: `'a` borrows the slice mutably, so all
        // access to it goes through this value. Exclusivity: the caller promises that no part in use shares an element.
        unsafe { std::slice::from_raw_parts_mut(first, len) }
    }
}

/// The panic of [`DisjointMut::part`], apart so that callers' loops stay small.
#[cold]
#[inline(never)]
fn outside(start: usize, len: usize, total: usize) -> ! {
    panic!("part of {len} elements from {start} on, of a slice of {total}")
}

// By hand, since a derived one would ask for `T: Copy`.
impl<T> Clone for DisjointMut<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DisjointMut<'_, T> {}

impl<T> std::fmt::Debug for DisjointMut<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DisjointMut").field("len", &self.len).finish_non_exhaustive()
    }
}
