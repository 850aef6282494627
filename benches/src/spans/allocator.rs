//! The system's allocator, which counts while it is told to.
//!
//! While it is not, a call costs one relaxed load more, which only those peers pay that allocate.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static COUNTING: AtomicBool = AtomicBool::new(false);
static EVERYWHERE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static HERE: Cell<Count> = const { Cell::new(Count { calls: 0, bytes: 0 }) };
}

/// Allocations of one thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    pub calls: u64,
    pub bytes: u64,
}

pub struct Counting;

fn note(bytes: usize) {
    if COUNTING.load(Ordering::Relaxed) {
        EVERYWHERE.fetch_add(1, Ordering::Relaxed);
        let _ = HERE.try_with(|here| {
            let count = here.get();
            here.set(Count { calls: count.calls + 1, bytes: count.bytes + bytes as u64 });
        });
    }
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// What `run` allocates on this thread, and how often all threads together do meanwhile.
pub fn count(run: impl FnOnce()) -> (Count, u64) {
    let (here, everywhere) = (HERE.get(), EVERYWHERE.load(Ordering::Relaxed));
    COUNTING.store(true, Ordering::Relaxed);
    run();
    COUNTING.store(false, Ordering::Relaxed);
    let now = HERE.get();
    (
        Count { calls: now.calls - here.calls, bytes: now.bytes - here.bytes },
        EVERYWHERE.load(Ordering::Relaxed) - everywhere,
    )
}
