//! Spans around what a server does for a request.

use std::future::Future;

use gym_telemetry::semconv;
use lens::{Context, InSpan as _, Span};

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
pub(crate) async fn traced<T>(
    span: Span,
    future: impl Future<Output = Result<T, HttpError>>,
    finish: impl FnOnce(&mut Span, &Result<T, HttpError>),
) -> Result<T, HttpError> {
    if !span.context().is_valid() {
        return future.await;
    }
    let context = Context::current().with_span(&span);
    let mut open = Open { span, done: false };
    let result = future.in_context(context).await;
    open.done = true;
    if open.span.is_recording() {
        if let Err(error) = &result {
            // Display of a failed inner call does not quote the body: it may hold content.
            let error_type = error.error_type();
            open.span.record_exception(&error_type, &error.to_string());
            open.span.set(semconv::ERROR_TYPE, error_type);
        }
        finish(&mut open.span, &result);
    }
    result
}
