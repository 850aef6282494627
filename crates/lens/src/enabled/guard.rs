//! The guard form: a span that is current for a scope of synchronous code.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::current::{self, Depth};
use super::group::Group;
use super::span::Span;
use crate::SpanKind;

/// What a span left by a panic has as `exception.type`.
const PANIC: &str = "panic";
const PANIC_MESSAGE: &str = "the scope was left by a panic";

/// A span that is current until the guard is dropped; not `Send`.
#[derive(Debug)]
#[must_use = "the span ends when the guard is dropped"]
pub struct SpanGuard {
    span: Span,
    depth: Depth,
    was_panicking: bool,
    not_send: PhantomData<*const ()>,
}

impl SpanGuard {
    /// Starts a span below the current context and makes it current; does nothing when the group is off.
    #[inline(always)]
    pub fn open(group: &'static Group, name: impl Into<Cow<'static, str>>) -> Self {
        if group.is_enabled() { Self::open_enabled(group, name.into()) } else { Self::disabled() }
    }

    #[inline(never)]
    fn open_enabled(group: &'static Group, name: Cow<'static, str>) -> Self {
        let mut span = Span::disabled();
        let depth = current::enter_below(|parent| {
            span = Span::begin(group, name, SpanKind::Internal, parent, None);
            span.entered_context()
        });
        Self { span, depth, was_panicking: std::thread::panicking(), not_send: PhantomData }
    }

    /// Makes a span current.
    #[inline]
    pub fn enter(span: Span) -> Self {
        let depth = span.entered_context().map_or(Depth::NONE, current::enter);
        Self { span, depth, was_panicking: std::thread::panicking(), not_send: PhantomData }
    }

    /// A guard that does nothing.
    #[inline(always)]
    pub const fn disabled() -> Self {
        Self {
            span: Span::disabled(),
            depth: Depth::NONE,
            was_panicking: false,
            not_send: PhantomData,
        }
    }

    /// Ends what the guard began; kept out of the sites.
    #[inline(never)]
    fn leave(&mut self) {
        current::leave_for_good(self.depth);
        if !self.was_panicking && std::thread::panicking() {
            record_panic(&mut self.span);
        }
        self.span.end_here();
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
    #[inline(always)]
    fn drop(&mut self) {
        if self.depth != Depth::NONE || self.span.exists() {
            self.leave();
        }
    }
}

/// Records the panic that is unwinding this thread, if one is.
#[inline]
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
    SpanGuard::open(group, name)
}

/// Calls a function's body; the bound makes its closure one that is called once, so it may give away what it holds.
#[doc(hidden)]
#[inline(always)]
pub fn call<R>(body: impl FnOnce() -> R) -> R {
    body()
}
