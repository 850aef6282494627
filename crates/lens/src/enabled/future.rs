//! Futures that are polled inside their span.

use std::borrow::Cow;
use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use pin_project_lite::pin_project;

use super::context::Context;
use super::current::{self, Depth};
use super::group::Group;
use super::guard::record_panic;
use super::outcome::{Outcome, RecordError as _};
use super::span::Span;
use crate::semconv;

/// Runs a future inside a span or context, entered anew on every poll.
pub trait InSpan: Future + Sized {
    /// Makes the span current while the future is polled and ends it when the future is done.
    ///
    /// If the future is dropped before, the span ends then, with [`semconv::CANCELLED`]. What it gives is passed on
    /// unseen; [`try_in_span`](Self::try_in_span) and `managed_span!(… => async …)` record an `Err`.
    fn in_span(self, span: Span) -> SpanFuture<Self> {
        let context = span.entered_context();
        SpanFuture { future: self, traced: Traced { span: Some(span), context } }
    }

    /// As [`in_span`](Self::in_span) for a future that gives a `Result`: an `Err` is recorded (type and `Display`)
    /// and sets the status ERROR.
    fn try_in_span<T, E>(self, span: Span) -> ResultFuture<Self, T, E>
    where
        Self: Future<Output = Result<T, E>>,
        E: Display,
    {
        let context = span.entered_context();
        let traced = Traced { span: Some(span), context };
        FunctionFuture { future: self, traced, record: Some(record_error::<T, E>) }
    }

    /// Makes the context current while the future is polled.
    fn in_context(self, context: Context) -> InContext<Self> {
        InContext { future: self, context: Some(context) }
    }
}

/// What [`InSpan::try_in_span`] gives.
pub type ResultFuture<F, T, E> = FunctionFuture<F, fn(&mut Span, &Result<T, E>)>;

impl<F: Future> InSpan for F {}

fn record_error<T, E: Display>(span: &mut Span, result: &Result<T, E>) {
    (&&Outcome(result)).lens_record(span);
}

/// Ends the span as cancelled, unless it was taken out before.
#[derive(Debug)]
struct Traced {
    span: Option<Span>,
    context: Option<Context>,
}

impl Drop for Traced {
    #[inline]
    fn drop(&mut self) {
        if let Some(span) = &mut self.span
            && span.is_recording()
        {
            cancel(span);
        }
    }
}

#[cold]
#[inline(never)]
fn cancel(span: &mut Span) {
    if !record_panic(span) {
        span.set(semconv::CANCELLED, true);
    }
}

/// One poll: the context is lent to the thread, so that entering costs no reference count, and a panic ends the span
/// with an `exception`.
struct Entered<'a> {
    traced: &'a mut Traced,
    depth: Depth,
}

impl<'a> Entered<'a> {
    #[inline]
    fn enter(traced: &'a mut Traced) -> Self {
        let depth = traced.context.take().map_or(Depth::NONE, current::enter);
        Self { traced, depth }
    }
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.depth != Depth::NONE {
            self.traced.context = current::leave(self.depth);
        }
        if std::thread::panicking()
            && let Some(mut span) = self.traced.span.take()
        {
            record_panic(&mut span);
        }
    }
}

/// One poll in a context of its own.
struct Lent<'a> {
    context: &'a mut Option<Context>,
    depth: Depth,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if self.depth != Depth::NONE {
            *self.context = current::leave(self.depth);
        }
    }
}

pin_project! {
    /// A future in a span; see [`InSpan::in_span`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct SpanFuture<F> {
        #[pin]
        future: F,
        traced: Traced,
    }
}

impl<F: Future> Future for SpanFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<F::Output> {
        let this = self.project();
        let entered = Entered::enter(this.traced);
        let poll = this.future.poll(task);
        drop(entered);
        if poll.is_ready() {
            this.traced.span.take();
        }
        poll
    }
}

pin_project! {
    /// A future in a context; see [`InSpan::in_context`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct InContext<F> {
        #[pin]
        future: F,
        context: Option<Context>,
    }
}

impl<F: Future> Future for InContext<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<F::Output> {
        let this = self.project();
        let depth = this.context.take().map_or(Depth::NONE, current::enter);
        let lent = Lent { context: this.context, depth };
        let poll = this.future.poll(task);
        drop(lent);
        poll
    }
}

pin_project! {
    /// What an asynchronous `#[trace_fn]` awaits: the group is asked at the first poll.
    #[doc(hidden)]
    #[derive(Debug)]
    pub struct FunctionFuture<F, R> {
        #[pin]
        future: F,
        traced: Traced,
        record: Option<R>,
    }
}

impl<F: Future, R: FnOnce(&mut Span, &F::Output)> Future for FunctionFuture<F, R> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<F::Output> {
        let this = self.project();
        let entered = Entered::enter(this.traced);
        let poll = this.future.poll(task);
        drop(entered);
        if let Poll::Ready(output) = &poll
            && let Some(mut span) = this.traced.span.take()
            && let Some(record) = this.record.take()
        {
            record(&mut span, output);
        }
        poll
    }
}

/// What `managed_span!(… => async …)` awaits: the span is open already.
#[doc(hidden)]
pub fn trace_block<F: Future, R: FnOnce(&mut Span, &F::Output)>(
    span: Span,
    future: F,
    record: R,
) -> FunctionFuture<F, R> {
    let context = span.entered_context();
    FunctionFuture { future, traced: Traced { span: Some(span), context }, record: Some(record) }
}

#[doc(hidden)]
pub fn trace_future<F: Future, R: FnOnce(&mut Span, &F::Output)>(
    group: &'static Group,
    name: impl Into<Cow<'static, str>>,
    future: F,
    record: R,
) -> FunctionFuture<F, R> {
    let span = group.is_enabled().then(|| Span::start(group, name));
    let context = span.as_ref().and_then(Span::entered_context);
    FunctionFuture { future, traced: Traced { span, context }, record: Some(record) }
}
