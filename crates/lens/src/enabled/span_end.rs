//! What a program wants to do where its spans end.
//!
//! One hook for the process, so that a span that ends without one pays a relaxed load and nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use super::process::PROCESS;
use super::raw::published::Published;
use super::recording::Recording;
use super::span::Span;

type Hook = fn(&mut Span);

static HOOK: Published<Hook> = Published::nothing();

/// Calls `hook` for every recorded span before it ends, on the thread that ends it; `None` calls nothing any more.
///
/// The hook may set attributes and must be quick: it runs at every end of a span. It must not end spans itself. One
/// that panics is as good as none.
pub fn on_span_end(hook: Option<fn(&mut Span)>) {
    match hook {
        Some(hook) => HOOK.set(Box::leak(Box::new(hook))),
        None => HOOK.clear(),
    }
    PROCESS.has_hook.store(hook.is_some(), Ordering::Relaxed);
}

#[inline(always)]
pub(super) fn is_hooked() -> bool {
    PROCESS.has_hook.load(Ordering::Relaxed)
}

/// Lends the span to the hook; nothing comes back when the hook kept it for itself.
#[cold]
#[inline(never)]
pub(super) fn call(recording: Box<Recording>) -> Option<Box<Recording>> {
    let mut span = Span::of(recording);
    if let Some(hook) = HOOK.get() {
        let _ = catch_unwind(AssertUnwindSafe(|| hook(&mut span)));
    }
    span.into_recording()
}
