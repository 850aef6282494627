//! What a model server implements, and the routes around it.
//!
//! The adapter checks bodies, maps dialects, replays streams and makes the spans; an
//! implementation answers plain requests of the Responses and the chat dialect.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use gym_telemetry::groups::MODEL_CALL;
use gym_telemetry::semconv::{self, value::OPERATION_CHAT};
use http::{HeaderName, HeaderValue, Method, header};
use lens::Span;

use super::facts::Facts;
use super::meter::Meter;
use super::{Backend, Dialect, PrepareError, Prepared, failed_stream, finish, prepare};
use crate::http::{Call, HttpError, Reply, Service};
use crate::instance::{InstanceConfig, ServerType};
use crate::session::SessionId;
use crate::telemetry::traced;

/// Timings of an inference engine, in a reply header: `queue;dur=…, prefill;dur=…, decode;dur=…`.
pub const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// A year: no engine takes longer.
const MAX_TIMING_MILLIS: f64 = 3.2e10;

/// A server that answers for a language model.
pub trait ModelServer: Sized + Send + Sync + 'static {
    /// Answers a Responses request. `body` was checked and asks for no stream.
    fn responses(
        &self,
        call: &Call,
        body: Bytes,
    ) -> impl Future<Output = Result<Reply, HttpError>> + Send;

    /// Answers a chat completions request. `body` was checked and asks for no stream.
    fn chat_completions(
        &self,
        call: &Call,
        body: Bytes,
    ) -> impl Future<Output = Result<Reply, HttpError>> + Send;
}

/// The routes of a model server.
#[must_use]
pub fn service<S: ModelServer>(server: S, instance: &InstanceConfig) -> Service {
    let cookie_name = format!("{}___{}", instance.implementation, instance.name);
    let mut service = Service::new(ServerType::ResponsesApiModels, cookie_name);
    let server = Arc::new(server);
    for (path, dialect) in [
        ("/v1/responses", Dialect::Responses),
        ("/v1/chat/completions", Dialect::Chat),
        ("/v1/messages", Dialect::Messages),
    ] {
        let (server, endpoint) = (Arc::clone(&server), Arc::new(Meter::new(instance, dialect)));
        service.route(Method::POST, path, move |call, body| {
            let (server, endpoint) = (Arc::clone(&server), Arc::clone(&endpoint));
            async move { answer(&*server, &endpoint, &call, dialect, body).await }
        });
    }
    service
}

async fn answer<S: ModelServer>(
    server: &S,
    meter: &Meter,
    call: &Call,
    dialect: Dialect,
    body: Bytes,
) -> Result<Reply, HttpError> {
    if !gym_telemetry::is_active() {
        return backend(server, call, dialect, &body, false).await.map(|(reply, _)| reply);
    }
    let started = Instant::now();
    let mut span = Span::start(&MODEL_CALL, meter.span_name);
    let is_recording = span.is_recording();
    if is_recording {
        span.set(semconv::SERVER_NAME, &*meter.server_name);
        span.set(semconv::MODEL_DIALECT, meter.dialect);
        span.set(semconv::GEN_AI_OPERATION_NAME, OPERATION_CHAT);
        span.set(semconv::GEN_AI_PROVIDER_NAME, &*meter.provider);
        if let Some(rollout) = call.rollout() {
            span.set(semconv::ROLLOUT_ID, rollout.as_str());
        }
    }
    let reads_facts = is_recording || lens::metrics::is_enabled();
    let answered = backend(server, call, dialect, &body, reads_facts);
    let result = traced(span, answered, |span, result| {
        if let Ok((reply, facts)) = result {
            facts.write(span);
            engine_timings(reply, |key, nanos| span.set(key, nanos));
            span.set(semconv::MODEL_TIME_TO_FIRST_BYTE_NANOS, nanos(first_byte(call, started)));
        }
    })
    .await;
    if let Ok((reply, _)) = &result
        && !is_recording
    {
        // The time of a rollout adds up with every choice of groups.
        engine_timings(reply, |key, nanos| call.set_server_attribute(key, nanos));
    }
    if lens::metrics::is_enabled() {
        match &result {
            Ok((_, facts)) => meter.record(started.elapsed(), first_byte(call, started), facts),
            Err(error) => meter.record_failure(started.elapsed(), &error.error_type()),
        }
    }
    result.map(|(reply, _)| reply)
}

/// From the request to the first byte of the model's reply; a model that answers by itself has its first byte when it
/// has all.
fn first_byte(call: &Call, started: Instant) -> Duration {
    call.model_answered().unwrap_or_else(Instant::now).saturating_duration_since(started)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

async fn backend<S: ModelServer>(
    server: &S,
    call: &Call,
    dialect: Dialect,
    body: &Bytes,
    reads_facts: bool,
) -> Result<(Reply, Facts), HttpError> {
    let prepared = prepare(dialect, body).map_err(|error| match error {
        PrepareError::Rejected(rejection) => rejection.into(),
        PrepareError::Unsupported(message) => HttpError::failed("NotImplementedError", &message),
    })?;
    let result = match prepared.backend {
        Backend::Responses => server.responses(call, prepared.body.clone()).await,
        Backend::Chat => server.chat_completions(call, prepared.body.clone()).await,
    };
    match result {
        Ok(reply) => {
            let facts = if reads_facts && reply.status.is_success() {
                Facts::read(prepared.backend, &prepared.asked_model, &reply.body)
            } else {
                Facts::default()
            };
            Ok((finished(&prepared, reply)?, facts))
        }
        Err(error) => {
            let id = SessionId::random();
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            match failed_stream(&prepared, &error.to_string(), id.as_str(), now.as_secs_f64()) {
                Some(stream) => Ok((Reply::sse(stream.body), Facts::default())),
                None => Err(error),
            }
        }
    }
}

fn finished(prepared: &Prepared, mut reply: Reply) -> Result<Reply, HttpError> {
    if !reply.status.is_success() {
        return Ok(reply);
    }
    let done = finish(prepared, std::mem::take(&mut reply.body))
        .map_err(|error| HttpError::failed("ValidationError", &format!("{error}: {}", error.0)))?;
    reply.body = done.body;
    reply.content_type = HeaderValue::from_static(done.content_type);
    if reply.content_type == HeaderValue::from_static(super::EVENT_STREAM) {
        reply.headers.push((header::CACHE_CONTROL, HeaderValue::from_static("no-cache")));
    }
    Ok(reply)
}

/// Hands the timings that the engine told in a header of its reply to `set`, as attributes.
fn engine_timings(reply: &Reply, mut set: impl FnMut(&'static str, i64)) {
    let Some((_, value)) = reply.headers.iter().find(|(name, _)| *name == SERVER_TIMING) else {
        return;
    };
    for (metric, millis) in server_timing(value.to_str().unwrap_or_default()) {
        let key = match metric {
            "queue" => semconv::MODEL_QUEUE_NANOS,
            "prefill" => semconv::MODEL_PREFILL_NANOS,
            "decode" => semconv::MODEL_DECODE_NANOS,
            _ => continue,
        };
        // A duration that is none says nothing.
        if (0.0..MAX_TIMING_MILLIS).contains(&millis) {
            #[allow(clippy::cast_possible_truncation, reason = "it is below the bound")]
            set(key, (millis * 1e6) as i64);
        }
    }
}

/// Metrics of a `Server-Timing` header with their durations in milliseconds.
pub fn server_timing(header: &str) -> impl Iterator<Item = (&str, f64)> {
    header.split(',').filter_map(|metric| {
        let mut parts = metric.split(';').map(str::trim);
        let name = parts.next().filter(|name| !name.is_empty())?;
        let duration = parts.find_map(|part| part.strip_prefix("dur="))?;
        Some((name, duration.trim_matches('"').parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_timings_are_read_from_the_header() {
        let header = r#"queue;dur=1.5, prefill;desc="p";dur="20", decode;dur=x, cache"#;
        let read: Vec<_> = server_timing(header).collect();
        assert_eq!(read, [("queue", 1.5), ("prefill", 20.0)]);
    }

    #[test]
    fn a_timing_that_is_no_duration_is_left_out() {
        let header =
            "queue;dur=-1, prefill;dur=NaN, decode;dur=1e300, queue;dur=inf, prefill;dur=2";
        let reply = Reply::json_bytes("{}").header(SERVER_TIMING, HeaderValue::from_static(header));
        let mut set = Vec::new();
        engine_timings(&reply, |key, nanos| set.push((key, nanos)));
        assert_eq!(set, [(semconv::MODEL_PREFILL_NANOS, 2_000_000)]);
    }
}
