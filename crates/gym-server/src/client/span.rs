//! The CLIENT span of one logical request, and the trace context that it sends.

use std::cell::RefCell;
use std::time::Duration;

use gym_telemetry::groups::HTTP_CLIENT;
use gym_telemetry::semconv::{self, event, span as span_name, value};
use http::{Method, StatusCode};
use lens::{AttributeSet, Moment, Span, SpanKind};

use super::ClientConfig;
use super::error::ClientError;
use super::meters::{Measured, destination_of};
use super::outgoing::ClientReply;
use super::trace_headers::TraceHeaders;
use crate::instance::{Endpoint, EndpointKind};

/// What an attempt is doing, and since when.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Idle,
    WaitingForConnection(Moment),
    Connecting(Moment),
    AwaitingReply(Moment),
    BackingOff(Moment),
}

/// The attempt under way.
#[derive(Debug)]
struct Attempt {
    started: Moment,
    timings: Timings,
    backoff_nanos: u64,
}

/// What one attempt measured.
#[derive(Clone, Copy, Debug, Default)]
struct Timings {
    pool_wait_nanos: u64,
    connect_nanos: u64,
    first_byte_nanos: u64,
}

/// The span of one logical request; every attempt is an event of it, also one that was cut off.
pub(super) struct CallSpan {
    span: Span,
    phase: Phase,
    attempt: Option<Attempt>,
    tries: u32,
    /// Sums over all attempts.
    timings: Timings,
    backoff_nanos: u64,
    finished: bool,
    /// What the metrics ask for; requests are measured without spans too.
    measured: Option<Measured>,
}

impl CallSpan {
    /// Measures nothing.
    pub(super) fn none() -> Self {
        Self::around(Span::disabled(), None)
    }

    pub(super) fn start(
        context: &lens::Context,
        method: &Method,
        endpoint: &Endpoint,
        path: &str,
        enabled: bool,
    ) -> Self {
        let measured = Measured::begin(endpoint, method);
        if !enabled || !HTTP_CLIENT.is_enabled() {
            return Self::around(Span::disabled(), measured);
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
            span.set_all(endpoint.attributes(|| attributes_of(endpoint)));
        }
        Self::around(span, measured)
    }

    fn around(span: Span, measured: Option<Measured>) -> Self {
        Self {
            span,
            phase: Phase::Idle,
            attempt: None,
            tries: 0,
            timings: Timings::default(),
            backoff_nanos: 0,
            finished: false,
            measured,
        }
    }

    /// The context that the destination may see.
    pub(super) fn trace_headers(
        &self,
        context: lens::Context,
        endpoint: &Endpoint,
        config: &ClientConfig,
    ) -> TraceHeaders {
        let with_baggage = match endpoint.kind() {
            EndpointKind::Gym => true,
            EndpointKind::Model if config.propagate_to_models => false,
            EndpointKind::External if config.propagate_to.iter().any(|h| h == endpoint.host()) => {
                false
            }
            EndpointKind::Model | EndpointKind::External => return TraceHeaders::none(),
        };
        let is_known = self.span.context().is_valid();
        let context = if is_known { context.with_span(&self.span) } else { context };
        TraceHeaders::of(context, with_baggage)
    }

    /// An attempt begins, and the back-off before it ends.
    pub(super) fn begin_attempt(&mut self) {
        // Without a span nobody asks for the times, and a look at the clock is not free.
        if !self.span.is_recording() {
            return;
        }
        let waited = self.backoff_nanos;
        self.leave();
        let (timings, backoff_nanos) = (Timings::default(), self.backoff_nanos - waited);
        self.attempt = Some(Attempt { started: Moment::now(), timings, backoff_nanos });
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

    /// The attempt ended so, and another one follows after `wait`.
    pub(super) fn backs_off(
        &mut self,
        endpoint: &Endpoint,
        result: &Result<ClientReply, ClientError>,
        wait: Duration,
    ) {
        let (reason, status) = match result {
            Ok(reply) => (value::retry_reason::STATUS, Some(reply.status)),
            Err(error) => (error.retry_reason(), None),
        };
        if self.measured.is_some() {
            Measured::repeats(reason);
        }
        if self.span.is_recording() {
            self.tell_of_retry(endpoint, reason, status, wait);
        }
        self.enter(Phase::BackingOff);
    }

    /// The span says so when the whole request is over; who watches wants to know now.
    fn tell_of_retry(
        &self,
        endpoint: &Endpoint,
        reason: &'static str,
        status: Option<StatusCode>,
        wait: Duration,
    ) {
        let wait_nanos = i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX);
        let status = status.map(|status| status.as_u16());
        let mut attributes = vec![
            (semconv::HTTP_REQUEST_RESEND_COUNT, i64::from(self.tries).into()),
            (semconv::HTTP_ATTEMPT_REASON, lens::Value::from_static(reason)),
            (semconv::HTTP_BACKOFF_NANOS, wait_nanos.into()),
            destination_of(endpoint),
        ];
        let code = status.map(|status| i64::from(status).into());
        attributes.extend(code.map(|code| (semconv::HTTP_RESPONSE_STATUS_CODE, code)));
        let to = match endpoint.kind() {
            EndpointKind::Gym => endpoint.name(),
            EndpointKind::Model | EndpointKind::External => endpoint.authority(),
        };
        let why = status.map_or_else(|| reason.to_owned(), |status| format!("status {status}"));
        self.span.tell(event::RETRY, &format!("request to {to} ({why})"), &attributes);
    }

    fn enter(&mut self, phase: fn(Moment) -> Phase) {
        if self.span.is_recording() {
            self.leave();
            self.phase = phase(Moment::now());
        }
    }

    /// Adds the time of the current phase to the attempt it belongs to.
    fn leave(&mut self) {
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        let Some(attempt) = &mut self.attempt else {
            if let Phase::BackingOff(since) = phase {
                self.backoff_nanos += since.nanos_until(Moment::now());
            }
            return;
        };
        let timings = &mut attempt.timings;
        let (sum, since) = match phase {
            Phase::Idle | Phase::BackingOff(_) => return,
            Phase::WaitingForConnection(since) => (&mut timings.pool_wait_nanos, since),
            Phase::Connecting(since) => (&mut timings.connect_nanos, since),
            Phase::AwaitingReply(since) => (&mut timings.first_byte_nanos, since),
        };
        *sum += since.nanos_until(Moment::now());
    }

    /// Ends the attempt under way with its result.
    pub(super) fn end_attempt(&mut self, result: &Result<ClientReply, ClientError>) {
        match result {
            Ok(reply) => {
                if reply.status.as_u16() >= 400 {
                    return self.note_failure(value::retry_reason::STATUS, Some(reply.status));
                }
                let Some((started_nanos, timings)) = self.close_attempt() else { return };
                let status = i64::from(reply.status.as_u16());
                let [pool_wait, connect, first_byte, backoff] = timings;
                let status = (semconv::HTTP_RESPONSE_STATUS_CODE, status);
                let attributes = [pool_wait, connect, first_byte, backoff, status];
                self.span.event_of_numbers(event::HTTP_ATTEMPT, started_nanos, &attributes);
            }
            Err(error) => self.note_failure(error.retry_reason(), None),
        }
    }

    fn note_failure(&mut self, reason: &'static str, status: Option<StatusCode>) {
        let Some((started_nanos, timings)) = self.close_attempt() else { return };
        let [pool_wait, connect, first_byte, backoff] =
            timings.map(|(key, nanos)| (key, lens::Value::from(nanos)));
        let reason = (semconv::HTTP_ATTEMPT_REASON, lens::Value::from_static(reason));
        let attributes = [pool_wait, connect, first_byte, backoff, reason];
        let mut attributes = Vec::from(attributes);
        let status = status.map(|status| i64::from(status.as_u16()).into());
        attributes.extend(status.map(|status| (semconv::HTTP_RESPONSE_STATUS_CODE, status)));
        self.span.event_at(event::HTTP_ATTEMPT, started_nanos, &attributes);
    }

    /// Adds the attempt under way to the sums; gives back its start and what it measured.
    fn close_attempt(&mut self) -> Option<(u64, [(&'static str, i64); 4])> {
        self.leave();
        let Attempt { started, timings, backoff_nanos } = self.attempt.take()?;
        if !self.span.is_recording() {
            return None;
        }
        self.tries += 1;
        self.timings.pool_wait_nanos += timings.pool_wait_nanos;
        self.timings.connect_nanos += timings.connect_nanos;
        self.timings.first_byte_nanos += timings.first_byte_nanos;
        Some((started.unix_nanos(), timings.attributes(backoff_nanos)))
    }

    /// Ends the span with the outcome of the whole request.
    pub(super) fn finish(mut self, result: &Result<ClientReply, ClientError>) {
        self.finished = true;
        if let Some(measured) = self.measured.take() {
            measured.end(result);
        }
        if !self.span.is_recording() {
            return;
        }
        // The limit of the whole request cuts off what is under way.
        if self.attempt.is_some() {
            self.note_failure(value::retry_reason::TIMEOUT, None);
        }
        self.leave();
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
        self.span.set(semconv::HTTP_POOL_WAIT_NANOS, self.timings.pool_wait_nanos);
        self.span.set(semconv::HTTP_CONNECT_NANOS, self.timings.connect_nanos);
        self.span.set(semconv::HTTP_TIME_TO_FIRST_BYTE_NANOS, self.timings.first_byte_nanos);
        self.span.set(semconv::HTTP_BACKOFF_NANOS, self.backoff_nanos);
        if self.tries > 1 {
            self.span.set(semconv::HTTP_REQUEST_RESEND_COUNT, i64::from(self.tries - 1));
        }
    }
}

impl Drop for CallSpan {
    fn drop(&mut self) {
        if let Some(measured) = self.measured.take() {
            measured.cancelled();
        }
        if !self.finished && self.span.is_recording() {
            self.note_failure(value::retry_reason::CANCELLED, None);
            self.write_sums();
            self.span.set(semconv::CANCELLED, true);
        }
    }
}

impl Timings {
    fn attributes(self, backoff_nanos: u64) -> [(&'static str, i64); 4] {
        let number = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX);
        [
            (semconv::HTTP_POOL_WAIT_NANOS, number(self.pool_wait_nanos)),
            (semconv::HTTP_CONNECT_NANOS, number(self.connect_nanos)),
            (semconv::HTTP_TIME_TO_FIRST_BYTE_NANOS, number(self.first_byte_nanos)),
            (semconv::HTTP_BACKOFF_NANOS, number(backoff_nanos)),
        ]
    }
}

/// What the spans of all requests to a destination say.
fn attributes_of(endpoint: &Endpoint) -> AttributeSet {
    AttributeSet::new(&[
        (semconv::SERVER_ADDRESS, endpoint.host().to_owned().into()),
        (semconv::SERVER_PORT, i64::from(endpoint.port()).into()),
        destination_of(endpoint),
    ])
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
    let end = path.bytes().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len());
    url.push_str(&path[..end]);
}
