//! Spans around what a server does for a request.

use std::future::Future;
use std::pin::Pin;
use std::task::{self, Poll, ready};

use gym_telemetry::semconv;
use lens::{Context, Span};
use pin_project_lite::pin_project;

use crate::http::HttpError;

/// A span that says so when the work it covers was dropped before its end.
struct Open {
    span: Span,
    done: bool,
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.done && self.span.is_recording() {
            self.span.set(semconv::CANCELLED, true);
        }
    }
}

/// Runs `future` below `span`, which then says how it ended. `finish` may add attributes.
pub(crate) fn traced<T, F, N>(span: Span, future: F, finish: N) -> Traced<F, N>
where
    F: Future<Output = Result<T, HttpError>>,
    N: FnOnce(&mut Span, &Result<T, HttpError>),
{
    let context = span.context().is_valid().then(|| Context::current().with_span(&span));
    Traced { future, context, open: Some(Open { span, done: false }), finish: Some(finish) }
}

/// The same in `base` instead of the current context.
pub(crate) fn traced_in<T, F, N>(base: &Context, span: Span, future: F, finish: N) -> Traced<F, N>
where
    F: Future<Output = Result<T, HttpError>>,
    N: FnOnce(&mut Span, &Result<T, HttpError>),
{
    let context = Some(base.with_span(&span));
    Traced { future, context, open: Some(Open { span, done: false }), finish: Some(finish) }
}

pin_project! {
    /// What [`traced`] awaits. A type of its own, because an `async fn` would hold the future
    /// twice: as its argument and as what it awaits.
    #[must_use = "futures do nothing unless polled"]
    pub(crate) struct Traced<F, N> {
        #[pin]
        future: F,
        context: Option<Context>,
        open: Option<Open>,
        finish: Option<N>,
    }
}

impl<T, F, N> Future for Traced<F, N>
where
    F: Future<Output = Result<T, HttpError>>,
    N: FnOnce(&mut Span, &Result<T, HttpError>),
{
    type Output = Result<T, HttpError>;

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let entered = this.context.clone().map(Context::attach);
        let result = ready!(this.future.poll(cx));
        drop(entered);
        if let Some(mut open) = this.open.take() {
            open.done = true;
            if open.span.is_recording() {
                if let Err(error) = &result {
                    // Display of a failed inner call does not quote the body: it may hold content.
                    let error_type = error.error_type();
                    open.span.record_exception(&error_type, &error.to_string());
                    open.span.set(semconv::ERROR_TYPE, error_type);
                }
                if let Some(finish) = this.finish.take() {
                    finish(&mut open.span, &result);
                }
            }
        }
        Poll::Ready(result)
    }
}
