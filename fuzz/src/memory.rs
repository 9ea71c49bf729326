//! A machine with one gigabyte: what asks for more gets nothing. Code that checks first returns an error, other code
//! aborts, which is a finding.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

const LIMIT_BYTES: usize = 1 << 30;

struct Limited {
    used: AtomicUsize,
}

#[global_allocator]
static MEMORY: Limited = Limited { used: AtomicUsize::new(0) };

impl Limited {
    /// Counts `bytes` unless they are too many.
    fn take(&self, bytes: usize) -> bool {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed);
        let fits = used.saturating_add(bytes) <= LIMIT_BYTES;
        if !fits {
            self.give(bytes);
        }
        fits
    }

    fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to `System` with the caller's own arguments; refusing by a null pointer is allowed.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !self.take(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are those that `System` asks for.
        let memory = unsafe { System.alloc(layout) };
        if memory.is_null() {
            self.give(layout.size());
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        self.give(layout.size());
        // SAFETY: as above; all memory came from `System`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !self.take(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: as above.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if memory.is_null() {
            self.give(layout.size());
        }
        memory
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Old and new memory may exist side by side for a moment.
        if !self.take(size) {
            return std::ptr::null_mut();
        }
        // SAFETY: as above.
        let moved = unsafe { System.realloc(memory, layout, size) };
        self.give(if moved.is_null() { size } else { layout.size() });
        moved
    }
}
