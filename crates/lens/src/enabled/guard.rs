//! The guard form: a span that is current for a scope of synchronous code.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::context::Context;
use super::current::{self, Depth};
use super::group::Group;
use super::span::Span;
use super::thread;
use crate::SpanKind;

/// What a span left by a panic has as `exception.type`.
const PANIC: &str = "panic";
const PANIC_MESSAGE: &str = "the scope was left by a panic";

/// A span that is current until the guard is dropped; not `Send`.
#[derive(Debug)]
#[must_use = "the span ends when the guard is dropped"]
pub struct SpanGuard {
    span: Span,
    /// With the span two words, which a site whose group is off keeps in registers.
    entered: Entered,
    not_send: PhantomData<*const ()>,
}

/// What a guard entered, and whether the thread was panicking then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entered(u32);

impl Entered {
    /// Nothing was begun.
    const NONE: Self = Self(u32::MAX);

    #[inline(always)]
    fn new(depth: Depth) -> Self {
        Self(depth.number() << 1 | u32::from(std::thread::panicking()))
    }

    #[inline(always)]
    fn depth(self) -> Depth {
        Depth::from_number(self.0 >> 1)
    }

    #[inline(always)]
    fn was_panicking(self) -> bool {
        self.0 & 1 == 1
    }
}

impl SpanGuard {
    /// Starts a span below the current context and makes it current; does nothing when the group is off.
    #[inline(always)]
    pub fn open(group: &'static Group, name: impl Into<Cow<'static, str>>) -> Self {
        if group.is_enabled() { Self::open_enabled(group, &name.into()) } else { Self::disabled() }
    }

    #[inline(never)]
    fn open_enabled(group: &'static Group, name: &str) -> Self {
        thread::with(|thread| {
            let Some(mut contexts) = current::with_room(thread) else {
                return Self::open_nowhere(group, name);
            };
            let parent = contexts.current().unwrap_or(&Context::EMPTY);
            let shared = parent.shared().cloned();
            let (span, context) =
                Span::begin(thread, group, name, SpanKind::Internal, parent, None);
            let depth = contexts.enter(context, shared);
            Self { span, entered: Entered::new(depth), not_send: PhantomData }
        })
    }

    /// A thread at its end is in no context.
    #[cold]
    #[inline(never)]
    fn open_nowhere(group: &'static Group, name: &str) -> Self {
        let span = Span::start(group, name.to_owned());
        Self { span, entered: Entered::new(Depth::NONE), not_send: PhantomData }
    }

    /// Makes a span current.
    #[inline]
    pub fn enter(span: Span) -> Self {
        let Some(context) = span.entered_context() else { return Self::disabled() };
        let depth = current::enter(context);
        Self { span, entered: Entered::new(depth), not_send: PhantomData }
    }

    /// A guard that does nothing.
    #[inline(always)]
    pub const fn disabled() -> Self {
        Self { span: Span::disabled(), entered: Entered::NONE, not_send: PhantomData }
    }
}

/// Ends what a guard began; kept out of the sites.
#[inline(never)]
fn leave(span: Span, entered: Entered) {
    thread::with(|thread| {
        current::leave_for_good(thread, entered.depth());
        if std::thread::panicking() {
            return end_in_panic(span, entered.was_panicking());
        }
        span.end_here(thread);
    });
}

#[cold]
#[inline(never)]
fn end_in_panic(mut span: Span, was_panicking: bool) {
    if !was_panicking {
        record_panic(&mut span);
    }
    span.end();
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
        // Whoever put a span into a guard that began nothing has it ended as any other.
        if self.entered != Entered::NONE {
            leave(std::mem::take(&mut self.span), self.entered);
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

impl Span {
    /// Records the panic that is unwinding this thread, for who polls futures itself; false when none is.
    pub fn record_panic(&mut self) -> bool {
        record_panic(self)
    }
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
