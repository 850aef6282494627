//! The CLIENT span of one logical request, and the trace context that it sends.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use gym_telemetry::groups::HTTP_CLIENT;
use gym_telemetry::semconv::{self, event, span as span_name, value};
use http::{HeaderName, HeaderValue, Method};
use lens::{Span, SpanKind};

use super::ClientConfig;
use super::error::ClientError;
use super::outgoing::{ClientReply, set as set_header};
use crate::http::Carrier;
use crate::instance::{Endpoint, EndpointKind};

/// What an attempt is doing, and since when.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Idle,
    WaitingForConnection(Instant),
    Connecting(Instant),
    AwaitingReply(Instant),
    BackingOff(Instant),
}

/// The attempt under way.
#[derive(Debug)]
struct Attempt {
    started: Instant,
    timings: Timings,
    backoff: Duration,
}

/// What one attempt measured.
#[derive(Clone, Copy, Debug, Default)]
struct Timings {
    pool_wait: Duration,
    connect: Duration,
    first_byte: Duration,
}

/// The span of one logical request; every attempt is an event of it, also one that was cut off.
pub(super) struct CallSpan {
    span: Span,
    phase: Phase,
    attempt: Option<Attempt>,
    tries: u32,
    pool_wait: Duration,
    connect: Duration,
    first_byte: Duration,
    backoff: Duration,
    finished: bool,
}

impl CallSpan {
    /// Measures nothing.
    pub(super) fn none() -> Self {
        Self::around(Span::disabled())
    }

    pub(super) fn start(
        context: &lens::Context,
        method: &Method,
        endpoint: &Endpoint,
        path: &str,
        enabled: bool,
    ) -> Self {
        if !enabled || !HTTP_CLIENT.is_enabled() {
            return Self::none();
        }
        let name = match *method {
            Method::POST => span_name::HTTP_POST.into(),
            Method::GET => span_name::HTTP_GET.into(),
            ref other => format!("{}{other}", span_name::HTTP_CLIENT_PREFIX).into(),
        };
        let name: std::borrow::Cow<'static, str> = name;
        let mut span =
            Span::build(&HTTP_CLIENT, name).kind(SpanKind::Client).parent(context).start();
        if span.is_recording() {
            span.set(semconv::HTTP_REQUEST_METHOD, method.as_str());
            URL.with_borrow_mut(|url| {
                put_url_without_query(url, endpoint, path);
                span.set(semconv::URL_FULL, url.as_str());
            });
            span.set(semconv::SERVER_ADDRESS, endpoint.host());
            span.set(semconv::SERVER_PORT, i64::from(endpoint.port()));
            match endpoint.kind() {
                EndpointKind::Gym => {
                    span.set(semconv::HTTP_DESTINATION_SERVER_NAME, endpoint.name());
                }
                EndpointKind::Model => {
                    span.set(semconv::HTTP_DESTINATION_KIND, value::destination::MODEL);
                }
                EndpointKind::External => {
                    span.set(semconv::HTTP_DESTINATION_KIND, value::destination::EXTERNAL);
                }
            }
        }
        Self::around(span)
    }

    fn around(span: Span) -> Self {
        Self {
            span,
            phase: Phase::Idle,
            attempt: None,
            tries: 0,
            pool_wait: Duration::ZERO,
            connect: Duration::ZERO,
            first_byte: Duration::ZERO,
            backoff: Duration::ZERO,
            finished: false,
        }
    }

    /// Writes the context that the destination may see.
    ///
    /// Without a context of our own the headers of the request being served are passed on as
    /// they came: a service whose telemetry is off does not break its callers' traces.
    pub(super) fn propagate(
        &self,
        context: &lens::Context,
        carrier: Option<&Carrier>,
        endpoint: &Endpoint,
        config: &ClientConfig,
        headers: &mut Vec<(HeaderName, HeaderValue)>,
    ) {
        let baggage = match endpoint.kind() {
            EndpointKind::Gym => true,
            EndpointKind::Model if config.propagate_to_models => false,
            EndpointKind::External if config.propagate_to.iter().any(|h| h == endpoint.host()) => {
                false
            }
            EndpointKind::Model | EndpointKind::External => return,
        };
        let mut injected = false;
        let mut set = |name: &'static str, value: &str| {
            let name = HeaderName::from_static(name);
            if !baggage && name == crate::http::BAGGAGE {
                return;
            }
            // The baggage of a request is mostly what it came with: share those bytes.
            let kept = carrier
                .filter(|_| name == crate::http::BAGGAGE)
                .and_then(|carrier| carrier.baggage_if_same(value));
            if let Some(value) = kept.or_else(|| HeaderValue::from_str(value).ok()) {
                injected |= name == crate::http::TRACEPARENT;
                set_header(headers, name, value);
            }
        };
        if self.span.context().is_valid() {
            context.with_span(&self.span).inject(&mut set);
        } else {
            context.inject(&mut set);
        }
        if let Some(carrier) = carrier.filter(|_| !injected && !gym_telemetry::is_active()) {
            carrier.copy_to(baggage, |name, value| {
                // What was set for this request alone stays.
                if name != crate::http::BAGGAGE || headers.iter().all(|(known, _)| *known != name) {
                    set_header(headers, name, value);
                }
            });
        }
    }

    /// An attempt begins, after this back-off.
    pub(super) fn begin_attempt(&mut self, backoff: Duration) {
        // Without a span nobody asks for the times, and a look at the clock is not free.
        if !self.span.is_recording() {
            return;
        }
        self.leave();
        self.attempt =
            Some(Attempt { started: Instant::now(), timings: Timings::default(), backoff });
    }

    /// The attempt waits for a connection.
    pub(super) fn waits_for_connection(&mut self) {
        self.enter(Phase::WaitingForConnection);
    }

    /// It waits no longer.
    pub(super) fn got_connection(&mut self) {
        self.leave();
    }

    /// The attempt opens a connection.
    pub(super) fn connects(&mut self) {
        self.enter(Phase::Connecting);
    }

    /// The request is on its way.
    pub(super) fn awaits_reply(&mut self) {
        self.enter(Phase::AwaitingReply);
    }

    /// The head of the reply is there.
    pub(super) fn reply_begins(&mut self) {
        self.leave();
    }

    /// The attempt ended and another one follows later.
    pub(super) fn backs_off(&mut self) {
        self.enter(Phase::BackingOff);
    }

    fn enter(&mut self, phase: fn(Instant) -> Phase) {
        if self.span.is_recording() {
            self.leave();
            self.phase = phase(Instant::now());
        }
    }

    /// Adds the time of the current phase to the attempt it belongs to.
    fn leave(&mut self) {
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        let Some(attempt) = &mut self.attempt else {
            if let Phase::BackingOff(since) = phase {
                self.backoff += since.elapsed();
            }
            return;
        };
        match phase {
            Phase::Idle | Phase::BackingOff(_) => {}
            Phase::WaitingForConnection(since) => attempt.timings.pool_wait += since.elapsed(),
            Phase::Connecting(since) => attempt.timings.connect += since.elapsed(),
            Phase::AwaitingReply(since) => attempt.timings.first_byte += since.elapsed(),
        }
    }

    /// Ends the attempt under way with its result.
    pub(super) fn end_attempt(&mut self, result: &Result<ClientReply, ClientError>) {
        let outcome = match result {
            Ok(reply) => {
                (semconv::HTTP_RESPONSE_STATUS_CODE, i64::from(reply.status.as_u16()).into())
            }
            Err(error) => (semconv::HTTP_ATTEMPT_REASON, error.error_type().into()),
        };
        self.note_attempt(outcome);
    }

    fn note_attempt(&mut self, outcome: (&'static str, lens::Value)) {
        self.leave();
        let Some(Attempt { started, timings, backoff }) = self.attempt.take() else { return };
        if !self.span.is_recording() {
            return;
        }
        self.tries += 1;
        self.pool_wait += timings.pool_wait;
        self.connect += timings.connect;
        self.first_byte += timings.first_byte;
        let started_nanos = lens::now_unix_nanos().saturating_sub(nanos(started.elapsed()));
        let attributes: [(&'static str, lens::Value); 5] = [
            (semconv::HTTP_POOL_WAIT_NANOS, nanos(timings.pool_wait).into()),
            (semconv::HTTP_CONNECT_NANOS, nanos(timings.connect).into()),
            (semconv::HTTP_TIME_TO_FIRST_BYTE_NANOS, nanos(timings.first_byte).into()),
            (semconv::HTTP_BACKOFF_NANOS, nanos(backoff).into()),
            outcome,
        ];
        self.span.event_at(event::HTTP_ATTEMPT, started_nanos, &attributes);
    }

    /// Notes an attempt or a back-off that was cut off.
    fn cut_off(&mut self, reason: &'static str) {
        self.note_attempt((semconv::HTTP_ATTEMPT_REASON, lens::Value::from_static(reason)));
    }

    /// Ends the span with the outcome of the whole request.
    pub(super) fn finish(mut self, result: &Result<ClientReply, ClientError>) {
        self.finished = true;
        if !self.span.is_recording() {
            return;
        }
        // The limit of the whole request cuts off what is under way.
        if self.attempt.is_some() {
            self.cut_off(value::retry_reason::TIMEOUT);
        }
        self.write_sums();
        match result {
            Ok(reply) => {
                self.span.set(semconv::HTTP_RESPONSE_STATUS_CODE, i64::from(reply.status.as_u16()));
                if reply.status.as_u16() >= 400 {
                    self.span.set(semconv::ERROR_TYPE, reply.status.as_u16().to_string());
                    self.span.set_error("");
                }
            }
            Err(error) => {
                self.span.set(semconv::ERROR_TYPE, error.error_type());
                self.span.set_error(error.full_message());
            }
        }
    }

    fn write_sums(&mut self) {
        self.span.set(semconv::HTTP_POOL_WAIT_NANOS, nanos(self.pool_wait));
        self.span.set(semconv::HTTP_CONNECT_NANOS, nanos(self.connect));
        self.span.set(semconv::HTTP_TIME_TO_FIRST_BYTE_NANOS, nanos(self.first_byte));
        self.span.set(semconv::HTTP_BACKOFF_NANOS, nanos(self.backoff));
        if self.tries > 1 {
            self.span.set(semconv::HTTP_REQUEST_RESEND_COUNT, i64::from(self.tries - 1));
        }
    }
}

impl Drop for CallSpan {
    fn drop(&mut self) {
        if !self.finished && self.span.is_recording() {
            self.cut_off(value::outcome::CANCELLED);
            self.write_sums();
            self.span.set(semconv::CANCELLED, true);
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

thread_local! {
    /// Where addresses are put together; every request of a rollout has one.
    static URL: RefCell<String> = const { RefCell::new(String::new()) };
}

fn put_url_without_query(url: &mut String, endpoint: &Endpoint, path: &str) {
    url.clear();
    url.push_str(if endpoint.tls() { "https" } else { "http" });
    url.push_str("://");
    url.push_str(endpoint.authority());
    url.push_str(path.split(['?', '#']).next().unwrap_or_default());
}
