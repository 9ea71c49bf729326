//! A slice that several threads write disjoint elements of.

use std::marker::PhantomData;

/// Borrowed output whose elements are handed out to tasks.
pub(crate) struct SharedOut<'a, T> {
    start: *mut T,
    len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: the pointer comes from a `&mut [T]` that lives for 'a; users promise that tasks take disjoint elements.
unsafe impl<T: Send> Send for SharedOut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SharedOut<'_, T> {}

impl<'a, T> SharedOut<'a, T> {
    pub(crate) fn new(out: &'a mut [T]) -> Self {
        SharedOut { start: out.as_mut_ptr(), len: out.len(), borrow: PhantomData }
    }

    /// Elements `at .. at + len`.
    ///
    /// # Safety
    /// Nothing else may use these elements while the result lives.
    #[allow(clippy::mut_from_ref)] // disjointness is the caller's promise
    pub(crate) unsafe fn part(&self, at: usize, len: usize) -> &mut [T] {
        assert!(at <= self.len && len <= self.len - at);
        // SAFETY: in bounds by the assertion; not aliased by the caller's promise and the exclusive borrow.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at), len) }
    }

    /// Elements `at .. at + len`.
    ///
    /// # Safety
    /// Nobody writes these elements while the result lives.
    pub(crate) unsafe fn read(&self, at: usize, len: usize) -> &[T] {
        assert!(at <= self.len && len <= self.len - at);
        // SAFETY: in bounds by the assertion; nobody writes by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start.add(at), len) }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}
