//! OTLP over gRPC: unary calls on HTTP/2.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use lens_otlp::wire::{put_bytes, put_message, put_uint};
use tokio::net::TcpListener;

use super::receive::{self, Body, full, gunzip, response_message};
use super::{Reply, Shared, Signal};

const PREFIX_BYTES: usize = 5;
const UNIMPLEMENTED: u32 = 12;
const INVALID_ARGUMENT: u32 = 3;
const RESOURCE_EXHAUSTED: u32 = 8;

pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let shared = Arc::clone(&shared);
                async move {
                    let mut response = handle(request, Arc::clone(&shared)).await?;
                    shared.sign(&mut response);
                    Ok::<_, Infallible>(response)
                }
            });
            // A sender that goes away is its own affair.
            let _ = http2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(4 << 20)
                .initial_connection_window_size(8 << 20)
                .max_frame_size(1 << 20)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// A response that consists of a status: trailers only, sent as headers.
fn failure(code: u32) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from(code));
    response
}

fn failure_with(code: u32, name: &'static str, value: &str) -> Response<Body> {
    let mut response = failure(code);
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
    response
}

/// `google.rpc.Status` with a `RetryInfo`, in base 64.
fn retry_details(code: u32, after: Duration) -> String {
    let mut status = Vec::new();
    put_uint(&mut status, 1, u64::from(code));
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
    lens_otlp::json::put_base64(&mut text, &status);
    // gRPC leaves the padding out.
    text.trim_end_matches('=').to_owned()
}

fn success() -> Response<Body> {
    partial(0, "")
}

fn partial(rejected: u64, saying: &str) -> Response<Body> {
    let message = response_message(rejected, saying);
    let mut framed = vec![0];
    framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
    framed.extend_from_slice(&message);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(0_u32));
    let body = full(framed);
    let body = body.with_trailers(std::future::ready(Some(Ok(trailers)))).boxed();
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

async fn handle(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let signal = match head.uri.path() {
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export" => Signal::Traces,
        "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export" => Signal::Metrics,
        "/opentelemetry.proto.collector.logs.v1.LogsService/Export" => Signal::Logs,
        _ => return Ok(failure(UNIMPLEMENTED)),
    };
    let Ok(body) = body.collect().await else { return Ok(failure(INVALID_ARGUMENT)) };
    let Some(body) = unframe(&body.to_bytes(), &head.headers) else {
        return Ok(failure(INVALID_ARGUMENT));
    };
    let incoming =
        receive::Incoming { signal, path: head.uri.path(), headers: &head.headers, body: &body };
    Ok(match receive::order(&shared, &body) {
        Reply::Accept => {
            receive::accept(&shared, &incoming);
            success()
        }
        Reply::Partial(rejected) => {
            receive::accept(&shared, &incoming);
            partial(rejected, "as ordered")
        }
        Reply::PartialSaying(rejected, saying) => {
            receive::accept(&shared, &incoming);
            partial(rejected, saying)
        }
        Reply::Slow(time) => {
            tokio::time::sleep(time).await;
            receive::accept(&shared, &incoming);
            success()
        }
        Reply::Grpc(code) => failure(code),
        Reply::GrpcSaying(code, message) => failure_with(code, "grpc-message", message),
        Reply::GrpcPushback(code, after) => {
            failure_with(code, "grpc-retry-pushback-ms", &after.as_millis().to_string())
        }
        Reply::GrpcRetryInfo(code, after) => {
            failure_with(code, "grpc-status-details-bin", &retry_details(code, after))
        }
        Reply::UpTo(bytes) => {
            let message =
                format!("grpc: received message larger than max ({} vs. {bytes})", body.len());
            failure_with(RESOURCE_EXHAUSTED, "grpc-message", &message)
        }
        Reply::Http(status) | Reply::HttpAfter(status, _) => {
            let mut response = Response::new(full(Bytes::new()));
            *response.status_mut() =
                StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            response
        }
        Reply::CutOff => Response::new(receive::cut_off()),
        Reply::Garbage => Response::new(full("\u{7}no gRPC")),
        Reply::Hang => std::future::pending().await,
    })
}

/// The one message of a unary call; `None` when framing or compression is wrong.
fn unframe(body: &Bytes, headers: &HeaderMap) -> Option<Bytes> {
    let [flag, len @ ..] = *body.first_chunk::<PREFIX_BYTES>()?;
    let message = body.slice(PREFIX_BYTES..);
    if message.len() != u32::from_be_bytes(len) as usize {
        return None;
    }
    match flag {
        0 => Some(message),
        1 if headers.get("grpc-encoding").is_some_and(|encoding| encoding == "gzip") => {
            gunzip(&message)
        }
        _ => None,
    }
}
