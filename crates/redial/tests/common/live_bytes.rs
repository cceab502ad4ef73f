//! An allocator that counts the bytes that are alive, for the tests that say that nothing is left.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

/// The system's allocator, which counts the bytes that are alive.
struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: everything is handed to the system's allocator unchanged; counting touches no memory of
// its users.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The bytes that are alive.
pub(crate) fn live() -> isize {
    LIVE.load(Ordering::Relaxed)
}
