//! What a model server implements, and the routes around it.
//!
//! The adapter checks bodies, maps dialects, replays streams and makes the spans; an
//! implementation answers plain requests of the Responses and the chat dialect.

use std::future::Future;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use gym_telemetry::groups::MODEL_CALL;
use gym_telemetry::metrics;
use gym_telemetry::semconv::{self, span as span_name, value::dialect};
use http::{HeaderName, HeaderValue, Method, header};
use lens::Span;

use super::{Backend, Dialect, PrepareError, Prepared, failed_stream, finish, prepare};
use crate::http::{Call, HttpError, Reply, Service};
use crate::instance::{InstanceConfig, ServerType};
use crate::session::SessionId;
use crate::telemetry::traced;

/// Timings of an inference engine, in a reply header: `queue;dur=…, prefill;dur=…, decode;dur=…`.
pub const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

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
    let name: Arc<str> = instance.name.as_str().into();
    for (path, dialect) in [
        ("/v1/responses", Dialect::Responses),
        ("/v1/chat/completions", Dialect::Chat),
        ("/v1/messages", Dialect::Messages),
    ] {
        let (server, name) = (Arc::clone(&server), Arc::clone(&name));
        service.route(Method::POST, path, move |call, body| {
            let (server, name) = (Arc::clone(&server), Arc::clone(&name));
            async move { answer(&*server, &name, &call, dialect, body).await }
        });
    }
    service
}

async fn answer<S: ModelServer>(
    server: &S,
    name: &Arc<str>,
    call: &Call,
    dialect: Dialect,
    body: Bytes,
) -> Result<Reply, HttpError> {
    let (span_name, label) = match dialect {
        Dialect::Responses => (span_name::MODEL_RESPONSES, dialect::RESPONSES),
        Dialect::Chat => (span_name::MODEL_CHAT_COMPLETIONS, dialect::CHAT_COMPLETIONS),
        Dialect::Messages => (span_name::MODEL_MESSAGES, dialect::MESSAGES),
    };
    let started = Instant::now();
    let mut span = Span::start(&MODEL_CALL, span_name);
    if span.is_recording() {
        span.set(semconv::SERVER_NAME, Arc::clone(name));
        span.set(semconv::MODEL_DIALECT, label);
        if let Some(rollout) = call.rollout() {
            span.set(semconv::ROLLOUT_ID, rollout.as_str());
        }
    }
    let result = traced(span, backend(server, call, dialect, &body), |span, result| {
        if let Ok(reply) = result {
            write_engine_timings(span, reply);
        }
    })
    .await;
    if gym_telemetry::is_active() {
        metrics::MODEL_CALL_DURATION.record(
            metrics::millis(started.elapsed()),
            &[
                (semconv::MODEL_DIALECT, label.into()),
                (semconv::SERVER_NAME, Arc::clone(name).into()),
            ],
        );
    }
    result
}

async fn backend<S: ModelServer>(
    server: &S,
    call: &Call,
    dialect: Dialect,
    body: &Bytes,
) -> Result<Reply, HttpError> {
    let prepared = prepare(dialect, body).map_err(|error| match error {
        PrepareError::Rejected(rejection) => rejection.into(),
        PrepareError::Unsupported(message) => HttpError::failed("NotImplementedError", &message),
    })?;
    let result = match prepared.backend {
        Backend::Responses => server.responses(call, prepared.body.clone()).await,
        Backend::Chat => server.chat_completions(call, prepared.body.clone()).await,
    };
    match result {
        Ok(reply) => finished(&prepared, reply),
        Err(error) => {
            let id = SessionId::random();
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            match failed_stream(&prepared, &error.to_string(), id.as_str(), now.as_secs_f64()) {
                Some(stream) => Ok(Reply::sse(stream.body)),
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

fn write_engine_timings(span: &mut Span, reply: &Reply) {
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
        #[allow(clippy::cast_possible_truncation, reason = "durations of an engine fit")]
        span.set(key, (millis * 1e6) as i64);
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
}
