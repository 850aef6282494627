//! The allocator of every process of this binary.

use libmimalloc_sys::{mi_option_get, mi_option_set, mi_option_t, mi_option_use_numa_nodes};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(unsafe_code, reason = "the allocator's options are reached through its C interface")]
    fn the_option_is_the_one_that_is_meant() {
        keep_freed_memory();
        // SAFETY: reads a number.
        let delay = unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(delay, KEPT_MILLIS, "its usual value is not that of a delay any more");
    }
}
