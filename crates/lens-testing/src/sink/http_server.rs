//! OTLP over HTTP/1.1.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::receive::{self, Body, full, gunzip, response_message};
use super::{Reply, Shared, Signal};

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
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn answer(status: StatusCode, body: Vec<u8>, json: bool) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = status;
    let kind = if json { "application/json" } else { "application/x-protobuf" };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn partial(rejected: u64, saying: &str, json: bool) -> Vec<u8> {
    if json {
        let fields = format!("\"rejectedSpans\":\"{rejected}\",\"errorMessage\":\"{saying}\"");
        return format!("{{\"partialSuccess\":{{{fields}}}}}").into_bytes();
    }
    response_message(rejected, saying)
}

async fn handle(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let signal = match head.uri.path() {
        "/v1/traces" => Signal::Traces,
        "/v1/metrics" => Signal::Metrics,
        "/v1/logs" => Signal::Logs,
        _ => return Ok(answer(StatusCode::NOT_FOUND, Vec::new(), false)),
    };
    let json = head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    let Ok(body) = body.collect().await else {
        return Ok(answer(StatusCode::BAD_REQUEST, Vec::new(), json));
    };
    let body = body.to_bytes();
    let zipped = head.headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding == "gzip");
    let body = if zipped { gunzip(&body) } else { Some(body) };
    let body = match (body, json && signal == Signal::Traces) {
        (Some(body), true) => lens_otlp::json::decode_trace_request(&body).ok().map(Bytes::from),
        (body, _) => body,
    };
    let Some(body) = body else { return Ok(answer(StatusCode::BAD_REQUEST, Vec::new(), json)) };
    let incoming =
        receive::Incoming { signal, path: head.uri.path(), headers: &head.headers, body: &body };
    let accepted = |message: Vec<u8>| {
        receive::accept(&shared, &incoming);
        answer(StatusCode::OK, message, json)
    };
    let nothing = if json { b"{}".to_vec() } else { Vec::new() };
    let failed = |status: u16| {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        answer(status, Vec::new(), json)
    };
    Ok(match receive::order(&shared, &body) {
        Reply::Accept => accepted(nothing),
        Reply::Partial(rejected) => accepted(partial(rejected, "as ordered", json)),
        Reply::PartialSaying(rejected, saying) => accepted(partial(rejected, saying, json)),
        Reply::Slow(time) => {
            tokio::time::sleep(time).await;
            accepted(nothing)
        }
        Reply::Garbage => accepted(b"\xff\xff no response".to_vec()),
        Reply::Http(status) => failed(status),
        Reply::HttpAfter(status, after) => {
            let mut response = failed(status);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(after));
            response
        }
        Reply::UpTo(_) => failed(413),
        Reply::Grpc(_)
        | Reply::GrpcSaying(..)
        | Reply::GrpcRetryInfo(..)
        | Reply::GrpcPushback(..) => failed(500),
        Reply::CutOff => {
            let mut response = Response::new(receive::cut_off());
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("100"));
            response
        }
        Reply::Hang => std::future::pending().await,
    })
}
