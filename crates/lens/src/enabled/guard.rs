//! The guard form: a span that is current for a scope of synchronous code.

use std::ops::{Deref, DerefMut};

use super::context::ContextGuard;
use super::group::Group;
use super::span::Span;

/// What a span left by a panic has as `exception.type`.
const PANIC: &str = "panic";
const PANIC_MESSAGE: &str = "the scope was left by a panic";

/// A span that is current until the guard is dropped; not `Send`.
#[derive(Debug)]
#[must_use = "the span ends when the guard is dropped"]
pub struct SpanGuard {
    span: Span,
    context: Option<ContextGuard>,
    was_panicking: bool,
}

impl SpanGuard {
    /// Makes a span current.
    pub fn enter(span: Span) -> Self {
        let context = span.entered_context().map(super::context::Context::attach);
        Self { span, context, was_panicking: std::thread::panicking() }
    }

    /// A guard that does nothing.
    #[inline]
    pub const fn disabled() -> Self {
        Self { span: Span::disabled(), context: None, was_panicking: false }
    }
}

impl Deref for SpanGuard {
    type Target = Span;

    fn deref(&self) -> &Span {
        &self.span
    }
}

impl DerefMut for SpanGuard {
    fn deref_mut(&mut self) -> &mut Span {
        &mut self.span
    }
}

impl Drop for SpanGuard {
    #[inline]
    fn drop(&mut self) {
        self.context.take();
        if self.span.is_recording() && !self.was_panicking {
            record_panic(&mut self.span);
        }
    }
}

/// Records the panic that is unwinding this thread, if one is.
pub(super) fn record_panic(span: &mut Span) -> bool {
    let panicking = std::thread::panicking();
    if panicking {
        span.record_exception(PANIC, PANIC_MESSAGE);
    }
    panicking
}

/// What `#[trace_fn]` opens.
#[doc(hidden)]
#[inline]
pub fn function_guard(group: &'static Group, name: &'static str) -> SpanGuard {
    if group.is_enabled() {
        SpanGuard::enter(Span::start(group, name))
    } else {
        SpanGuard::disabled()
    }
}

/// Calls a function's body; the bound makes its closure one that is called once, so it may give away what it holds.
#[doc(hidden)]
#[inline(always)]
pub fn call<R>(body: impl FnOnce() -> R) -> R {
    body()
}
