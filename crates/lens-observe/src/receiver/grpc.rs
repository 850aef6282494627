//! OTLP over gRPC: unary calls on HTTP/2.
//!
//! A refusal is "trailers only": its status is among the headers, and no message comes with it.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming as HttpBody;
use lens_otlp::json::put_base64;
use lens_otlp::wire::{put_bytes, put_message, put_uint};

use super::body;
use super::counters::{Reason, Transport};
use super::denial::{Denial, code};
use super::frame::{PREFIX_BYTES, unframe};
use super::serve::{Body, Kind, Shared, full};
use crate::intake::{Accepted, Compression, Encoding, Format, Signal};

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
/// Longest message that is put into a header.
const MAX_MESSAGE_BYTES: usize = 1024;

pub(super) async fn answer(shared: &Shared, request: Request<HttpBody>) -> Response<Body> {
    let (head, mut body) = request.into_parts();
    let outcome = take(shared, &head, &mut body).await;
    let mut response = match outcome {
        Ok(accepted) => success(&accepted),
        Err(denial) => {
            shared.counters.refused(Transport::Grpc, denial.reason);
            if denial.leaves_body() {
                body::drain(&mut body).await;
            }
            failure(&denial)
        }
    };
    let accepts = HeaderValue::from_static("identity,gzip,zstd");
    response.headers_mut().insert(ACCEPT_ENCODING, accepts);
    response
}

async fn take(
    shared: &Shared,
    head: &http::request::Parts,
    body: &mut HttpBody,
) -> Result<Accepted, Denial> {
    let signal = match head.uri.path() {
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export" => Signal::Traces,
        "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export" => Signal::Metrics,
        "/opentelemetry.proto.collector.logs.v1.LogsService/Export" => Signal::Logs,
        path => {
            let message = format!("there is no method {path}; this is a receiver of OTLP");
            return Err(Denial::new(Reason::NoSuchPath, message));
        }
    };
    if head.method != Method::POST {
        return Err(Denial::new(Reason::Method, "calls of gRPC are sent with POST"));
    }
    shared.check_token(&head.headers)?;
    let mut held = shared.budget.hold();
    let bounds = shared.bounds();
    let framed = body::Bounds { limit_bytes: bounds.limit_bytes + PREFIX_BYTES, ..bounds };
    // The prefix tells the length before the message has come.
    let begin = |first: &[u8]| {
        let Some([_, length @ ..]) = first.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > bounds.limit_bytes {
            return Err(Denial::too_large(bounds.limit_bytes));
        }
        Ok(Some(length + PREFIX_BYTES))
    };
    let framed = body::read(body, &mut held, framed, begin).await?;
    let (compressed, message) =
        unframe(&framed).map_err(|error| Denial::new(Reason::Malformed, error.to_string()))?;
    let compression = if compressed { compression(&head.headers)? } else { Compression::Identity };
    let encoding = Encoding { format: Format::Protobuf, compression };
    let kind = Kind { signal, transport: Transport::Grpc, encoding };
    shared.take(kind, message, &mut held).await
}

fn compression(headers: &HeaderMap) -> Result<Compression, Denial> {
    match headers.get(ENCODING).map(HeaderValue::as_bytes) {
        Some(b"gzip") => Ok(Compression::Gzip),
        Some(b"zstd") => Ok(Compression::Zstd),
        other => {
            let name = String::from_utf8_lossy(other.unwrap_or(b"identity"));
            let message =
                format!("the message is compressed with {name:?}; gzip and zstd are understood");
            Err(Denial::new(Reason::Compression, message))
        }
    }
}

fn success(accepted: &Accepted) -> Response<Body> {
    let message = response_message(accepted);
    let mut framed = Vec::with_capacity(PREFIX_BYTES + message.len());
    framed.push(0);
    framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
    framed.extend_from_slice(&message);
    let mut trailers = HeaderMap::new();
    trailers.insert(STATUS, HeaderValue::from(code::OK));
    let body = Full::new(Bytes::from(framed));
    let body = body.with_trailers(std::future::ready(Some(Ok(trailers)))).boxed();
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

/// An `Export*ServiceResponse`; empty when there is nothing to say.
pub(super) fn response_message(accepted: &Accepted) -> Vec<u8> {
    let mut out = Vec::new();
    let message = accepted.message.as_deref().unwrap_or_default();
    if accepted.rejected > 0 || !message.is_empty() {
        put_message(&mut out, 1, |out| {
            if accepted.rejected > 0 {
                put_uint(out, 1, accepted.rejected);
            }
            if !message.is_empty() {
                put_bytes(out, 2, message.as_bytes());
            }
        });
    }
    out
}

fn failure(denial: &Denial) -> Response<Body> {
    let code = denial.code();
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, GRPC);
    headers.insert(STATUS, HeaderValue::from(code));
    if let Ok(message) = HeaderValue::from_str(&percent_encode(&denial.message)) {
        headers.insert(MESSAGE, message);
    }
    if let Some(after) = denial.retry_after
        && let Ok(details) = HeaderValue::from_str(&retry_details(code, &denial.message, after))
    {
        headers.insert(DETAILS, details);
    }
    response
}

/// What headers cannot carry, as `%xx`.
fn percent_encode(message: &str) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = String::with_capacity(message.len());
    for byte in message.bytes().take(MAX_MESSAGE_BYTES) {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(DIGITS[usize::from(byte >> 4)]));
            out.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
    out
}

/// A `google.rpc.Status`.
pub(super) fn status_message(code: u32, message: &str) -> Vec<u8> {
    let mut status = Vec::new();
    put_uint(&mut status, 1, u64::from(code));
    put_bytes(&mut status, 2, message.as_bytes());
    status
}

/// A `google.rpc.Status` with `RetryInfo`, in base 64 without padding.
fn retry_details(code: u32, message: &str, after: Duration) -> String {
    let mut status = status_message(code, message);
    put_message(&mut status, 3, |any| {
        put_bytes(any, 1, b"type.googleapis.com/google.rpc.RetryInfo");
        put_message(any, 2, |info| {
            put_message(info, 1, |delay| {
                put_uint(delay, 1, after.as_secs());
                put_uint(delay, 2, u64::from(after.subsec_nanos()));
            });
        });
    });
    let mut text = String::new();
    put_base64(&mut text, &status);
    text.trim_end_matches('=').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_escaped_for_headers() {
        assert_eq!(percent_encode("100% of ä\n"), "100%25 of %C3%A4%0A");
    }

    #[test]
    fn an_answer_says_nothing_when_all_is_well() {
        assert!(response_message(&Accepted::default()).is_empty());
        let hint = Accepted { rejected: 0, message: Some("hm".to_owned()) };
        assert_eq!(response_message(&hint), b"\x0a\x04\x12\x02hm");
        let partial = Accepted { rejected: 3, message: None };
        assert_eq!(response_message(&partial), b"\x0a\x02\x08\x03");
    }
}
