//! A slice that several threads write disjoint elements of.

use std::marker::PhantomData;

/// Borrowed output whose elements are handed out to tasks.
pub(crate) struct SharedOut<'a> {
    start: *mut f32,
    len: usize,
    borrow: PhantomData<&'a mut [f32]>,
}

// SAFETY: the pointer comes from a `&mut [f32]` that lives for 'a; `write` demands that tasks write disjoint elements.
unsafe impl Send for SharedOut<'_> {}
// SAFETY: as above; there is no way to read through it.
unsafe impl Sync for SharedOut<'_> {}

impl<'a> SharedOut<'a> {
    pub(crate) fn new(out: &'a mut [f32]) -> Self {
        SharedOut { start: out.as_mut_ptr(), len: out.len(), borrow: PhantomData }
    }

    /// Copies `values` to elements `at..`.
    ///
    /// # Safety
    /// No other task may write these elements during the borrow.
    pub(crate) unsafe fn write(&self, at: usize, values: &[f32]) {
        assert!(at <= self.len && values.len() <= self.len - at);
        // SAFETY: in bounds by the assertion; not aliased by the caller's promise and the exclusive borrow.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), self.start.add(at), values.len()) }
    }
}
