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
    /// What else is said when it is dropped.
    when_dropped: Option<(&'static str, &'static str)>,
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.done && self.span.is_recording() {
            self.span.set(semconv::CANCELLED, true);
            if let Some((key, value)) = self.when_dropped {
                self.span.set(key, value);
            }
        }
    }
}

/// One poll: a panic is the span's end, and is caught by somebody before this future is dropped.
struct Polled<'a>(&'a mut Option<Open>);

impl Drop for Polled<'_> {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(mut open) = self.0.take()
        {
            open.done = open.span.record_panic();
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
    Traced {
        future,
        context,
        open: Some(Open { span, done: false, when_dropped: None }),
        finish: Some(finish),
    }
}

/// The same in `base` instead of the current context.
pub(crate) fn traced_in<T, F, N>(base: &Context, span: Span, future: F, finish: N) -> Traced<F, N>
where
    F: Future<Output = Result<T, HttpError>>,
    N: FnOnce(&mut Span, &Result<T, HttpError>),
{
    let context = Some(base.with_span(&span));
    Traced {
        future,
        context,
        open: Some(Open { span, done: false, when_dropped: None }),
        finish: Some(finish),
    }
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

impl<F, N> Traced<F, N> {
    /// Sets an attribute when the work is dropped before its end.
    pub(crate) fn says_when_dropped(mut self, key: &'static str, value: &'static str) -> Self {
        if let Some(open) = &mut self.open {
            open.when_dropped = Some((key, value));
        }
        self
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
        let result = {
            let _entered = this.context.clone().map(Context::attach);
            let _polled = Polled(&mut *this.open);
            ready!(this.future.poll(cx))
        };
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

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;
    use std::task::Waker;

    use gym_telemetry::groups;

    use super::*;

    #[test]
    fn a_panic_is_an_exception_and_only_what_was_dropped_is_cancelled() {
        groups::register();
        let ((), spans) = lens_testing::collect(|| {
            let start = |name| Span::start(&groups::VERIFY, name);
            let mut cx = task::Context::from_waker(Waker::noop());
            // As the server does: the panic is caught before the future is dropped.
            let panics = std::future::poll_fn(|_| -> Poll<Result<(), HttpError>> {
                std::panic::resume_unwind(Box::new("on purpose"))
            });
            let mut handler = Box::pin(traced(start("panics"), panics, |_, _| {}));
            let poll = std::panic::catch_unwind(AssertUnwindSafe(|| {
                let _ = handler.as_mut().poll(&mut cx);
            }));
            assert!(poll.is_err() && !Context::current().span_context().is_valid());
            drop(handler);
            let never = std::future::pending::<Result<(), HttpError>>();
            let mut handler = Box::pin(traced(start("dropped"), never, |_, _| {}));
            assert!(handler.as_mut().poll(&mut cx).is_pending());
            drop(handler);
        });
        let [panicked, dropped] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!((panicked.name.as_str(), dropped.name.as_str()), ("panics", "dropped"));
        assert_eq!(panicked.events[0].name, "exception");
        assert!(!panicked.attributes.contains_key(semconv::CANCELLED));
        assert!(dropped.events.is_empty());
        assert_eq!(dropped.attributes[semconv::CANCELLED], true);
    }
}
