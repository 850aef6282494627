//! The allocator of every process of this binary.

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys::{
    _mi_option_last, mi_malloc, mi_option_get, mi_option_set, mi_option_t,
    mi_option_use_numa_nodes, mi_realloc, mi_zalloc,
};
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// mimalloc, asked for an alignment only where it has to be: its way for aligned memory looks at each block's address,
/// and over 1 KiB at more than that.
struct Allocator;

/// Blocks of any size lie at multiples of this.
const EVERY_BLOCK_ALIGN: usize = size_of::<usize>();

#[expect(unsafe_code, reason = "an allocator is unsafe to implement")]
// SAFETY: every block is of mimalloc, which takes any of its blocks back by any of its functions; blocks of `mi_malloc`
// and its like are aligned to a word.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= EVERY_BLOCK_ALIGN {
            // SAFETY: asks for memory; any size is allowed.
            unsafe { mi_malloc(layout.size()).cast() }
        } else {
            // SAFETY: the caller's promises are those of this function.
            unsafe { MiMalloc.alloc(layout) }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= EVERY_BLOCK_ALIGN {
            // SAFETY: as in `alloc`.
            unsafe { mi_zalloc(layout.size()).cast() }
        } else {
            // SAFETY: the caller's promises are those of this function.
            unsafe { MiMalloc.alloc_zeroed(layout) }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are those of this function.
        unsafe { MiMalloc.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= EVERY_BLOCK_ALIGN {
            // SAFETY: the block is mimalloc's, as the caller promises.
            unsafe { mi_realloc(block.cast(), size).cast() }
        } else {
            // SAFETY: the caller's promises are those of this function.
            unsafe { MiMalloc.realloc(block, layout, size) }
        }
    }
}

/// `mi_option_purge_delay`, which the bindings leave out: the option before this one. Milliseconds.
const PURGE_DELAY: mi_option_t = mi_option_use_numa_nodes - 1;
/// What it is unless `MIMALLOC_PURGE_DELAY` says otherwise.
const USUAL_MILLIS: std::ffi::c_long = 1_000;
/// What it is in a process whose memory comes and goes with every flush.
const KEPT_MILLIS: std::ffi::c_long = 10_000;

/// Keeps freed memory longer before the system gets it back, so that pages that are taken again and again are not
/// cleared each time. Another delay than the usual one was chosen with `MIMALLOC_PURGE_DELAY`, and stays.
#[expect(unsafe_code, reason = "the allocator's options are reached through its C interface")]
pub fn keep_freed_memory() {
    // SAFETY: reads and writes a number that the allocator reads atomically; no memory is passed.
    unsafe {
        if mi_option_get(PURGE_DELAY) == USUAL_MILLIS {
            mi_option_set(PURGE_DELAY, KEPT_MILLIS);
        }
    }
}

/// `mi_option_allow_thp`, which the bindings leave out: the fourth before the end.
const HUGE_PAGES: mi_option_t = _mi_option_last - 4;
/// What it is unless `MIMALLOC_ALLOW_THP` says otherwise.
const USUALLY_ALLOWED: std::ffi::c_long = 1;

/// Has memory in small pages. What comes as a huge one is cleared whole when its first byte is written: in a virtual
/// machine, whose host looks for that memory only then, this was a seventh of what it costs to take spans in, and a tenth
/// of the memory was never used. Another choice than the usual one was made with `MIMALLOC_ALLOW_THP`, and stays.
#[expect(unsafe_code, reason = "the allocator's options are reached through its C interface")]
pub fn take_small_pages() {
    // SAFETY: reads a number.
    if unsafe { mi_option_get(HUGE_PAGES) } == USUALLY_ALLOWED {
        // A system that has no huge pages is as well.
        #[cfg(target_os = "linux")]
        let _ = rustix::thread::disable_transparent_huge_pages(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(unsafe_code, reason = "the allocator's options are reached through its C interface")]
    fn the_options_are_those_that_are_meant() {
        keep_freed_memory();
        // SAFETY: reads numbers.
        let [delay, huge_pages, last] =
            unsafe { [PURGE_DELAY, HUGE_PAGES, _mi_option_last - 1].map(|nth| mi_option_get(nth)) };
        assert_eq!(delay, KEPT_MILLIS, "its usual value is not that of a delay any more");
        assert_eq!((huge_pages, last), (USUALLY_ALLOWED, 0), "the options are others");
    }
}
