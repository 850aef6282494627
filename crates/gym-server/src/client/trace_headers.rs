//! The trace context of a request, kept apart from its other headers: it is written straight into the request.

use http::{HeaderMap, HeaderName, HeaderValue};
use lens::Context;

use crate::http::{BAGGAGE, Call, TRACEPARENT, TRACESTATE};

/// What a request says about its trace.
pub(super) struct TraceHeaders {
    context: Option<Context>,
    with_baggage: bool,
}

impl TraceHeaders {
    /// Says nothing.
    pub(super) const fn none() -> Self {
        Self { context: None, with_baggage: false }
    }

    pub(super) fn of(context: Context, with_baggage: bool) -> Self {
        Self { context: Some(context), with_baggage }
    }

    /// Hands over every header that there is.
    fn each(&self, mut take: impl FnMut(HeaderName, &[u8])) {
        let Some(context) = &self.context else { return };
        if let Some(text) = context.traceparent() {
            take(TRACEPARENT, &text);
        }
        if let Some(text) = context.tracestate() {
            take(TRACESTATE, text.as_bytes());
        }
        if let Some(text) = context.baggage_text().filter(|_| self.with_baggage) {
            take(BAGGAGE, text.as_bytes());
        }
    }

    /// Makes the headers of a request fit these.
    ///
    /// Without a context of our own the headers of the request being served are passed on as
    /// they came: a service whose telemetry is off does not break its callers' traces.
    pub(super) fn settle(
        &mut self,
        headers: &mut Vec<(HeaderName, HeaderValue)>,
        served: Option<&Call>,
    ) {
        if self.context.is_none() {
            return;
        }
        let (mut is_ours, mut says_something) = (false, false);
        self.each(|name, _| {
            says_something = true;
            is_ours |= name == TRACEPARENT;
            headers.retain(|(known, _)| *known != name);
        });
        if !says_something {
            // Nobody needs to look again.
            self.context = None;
        }
        let served = served.filter(|_| !is_ours && !gym_telemetry::is_active());
        let Some(served) = served else { return };
        served.each_trace_header(self.with_baggage, |name, value| {
            // What was set for this request alone stays.
            if name != BAGGAGE || headers.iter().all(|(known, _)| *known != name) {
                super::outgoing::set(headers, name, value);
            }
        });
    }

    /// Writes them into the head of a request.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        self.each(|name, value| {
            out.extend_from_slice(name.as_str().as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        });
    }

    /// Adds them to the head of a request that takes no socket.
    pub(super) fn insert_into(&self, headers: &mut HeaderMap) {
        self.each(|name, value| {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                headers.insert(name, value);
            }
        });
    }
}
