//! OTLP over gRPC: unary calls on HTTP/2.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

use super::receive::{self, gunzip, response_message};
use super::{Reply, Shared, Signal};

const PREFIX_BYTES: usize = 5;
const UNIMPLEMENTED: u32 = 12;
const INVALID_ARGUMENT: u32 = 3;

pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(|request| handle(request, Arc::clone(&shared)));
            // A sender that goes away is its own affair.
            let _ = http2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(4 << 20)
                .initial_connection_window_size(8 << 20)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

type Body = BoxBody<Bytes, Infallible>;

/// A response that consists of a status: trailers only, sent as headers.
fn failure(code: u32) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::new()).boxed());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from(code));
    response
}

fn success(rejected: u64) -> Response<Body> {
    let message = response_message(rejected);
    let mut framed = vec![0];
    framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
    framed.extend_from_slice(&message);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(0_u32));
    let body = Full::new(Bytes::from(framed));
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
    Ok(match receive::take(&shared, &incoming) {
        Reply::Accept => success(0),
        Reply::Partial(rejected) => success(rejected),
        Reply::Grpc(code) => failure(code),
        Reply::Http(status) => {
            let mut response = Response::new(Full::new(Bytes::new()).boxed());
            *response.status_mut() =
                StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            response
        }
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
