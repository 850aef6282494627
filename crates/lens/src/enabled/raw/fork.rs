//! Notices `fork`: a child shares the mapping with its parent and must not write into it.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

static GENERATION: AtomicU64 = AtomicU64::new(1);
static WATCH: Once = Once::new();

/// How many times this process's ancestors forked since they began to watch. What was made in another generation
/// belongs to another process.
#[inline]
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Begins to watch; `in_child` runs in every child before `fork` returns there, and may only store to atomics.
pub(crate) fn watch() {
    WATCH.call_once(|| {
        #[cfg(unix)]
        // SAFETY: the handler only stores to atomics, which is allowed between `fork` and its return.
        unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
        }
    });
}

#[cfg(unix)]
unsafe extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    crate::enabled::handle::silence_after_fork();
}
