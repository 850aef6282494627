//! Notices `fork`: a child shares the mapping with its parent and must not write into it.
//!
//! The locks of this crate that other threads hold for moments are taken before a fork and released on both sides, so
//! that a child can set telemetry up although those threads do not exist there. Locks on files live as long as any
//! copy of their descriptor, so a child closes its copies: else its parent would never be seen to be dead.

use std::cell::RefCell;
use std::ffi::c_int;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::enabled::process::PROCESS;
use crate::enabled::{clock, group};

/// The generation of a process that nobody forked.
pub(crate) const FIRST: u32 = 1;

static WATCH: Once = Once::new();
/// Descriptors of locked files: rings and overflow folders of two signals, with room for those of tests.
static LOCKED_FILES: [AtomicI32; 16] = [const { AtomicI32::new(NONE) }; 16];
const NONE: c_int = -1;

thread_local! {
    /// What the thread that forks holds meanwhile.
    static HELD: RefCell<Option<(clock::Held, group::Held)>> = const { RefCell::new(None) };
}

/// How many times this process's ancestors forked since they began to watch. What was made in another generation
/// belongs to another process.
#[inline]
pub(crate) fn generation() -> u32 {
    PROCESS.generation.load(Ordering::Relaxed)
}

/// Begins to watch.
pub(crate) fn watch() {
    WATCH.call_once(|| {
        // SAFETY: the handlers take and release locks of this crate, which nothing in it holds while it forks; the
        // child's only stores to atomics and closes descriptors besides, which is allowed between `fork` and its
        // return.
        unsafe {
            libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child));
        }
    });
}

/// Has the descriptor of a locked file closed in children; to be taken back by [`closes`].
pub(crate) fn let_go_in_child(descriptor: c_int) {
    let free = |place: &&AtomicI32| {
        place.compare_exchange(NONE, descriptor, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    // Without a place the file is taken for one of the living while a child lives.
    let _ = LOCKED_FILES.iter().find(free);
}

/// The descriptor is about to be closed by its owner.
pub(crate) fn closes(descriptor: c_int) {
    for place in &LOCKED_FILES {
        let _ = place.compare_exchange(descriptor, NONE, Ordering::AcqRel, Ordering::Relaxed);
    }
}

unsafe extern "C" fn before() {
    let held = (clock::hold(), group::hold());
    let _ = HELD.try_with(|place| place.replace(Some(held)));
}

unsafe extern "C" fn in_parent() {
    let _ = HELD.try_with(|place| place.take());
}

unsafe extern "C" fn in_child() {
    let _ = HELD.try_with(|place| place.take());
    PROCESS.generation.fetch_add(1, Ordering::Relaxed);
    for place in &LOCKED_FILES {
        let descriptor = place.swap(NONE, Ordering::AcqRel);
        if descriptor != NONE {
            // SAFETY: whoever owns it in this process is of the parent's generation and never closes it here.
            unsafe {
                libc::close(descriptor);
            }
        }
    }
    crate::enabled::handle::silence_after_fork();
}
