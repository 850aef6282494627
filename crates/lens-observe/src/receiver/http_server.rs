//! OTLP over HTTP: protobuf and JSON.
//!
//! Every refusal has a `google.rpc.Status` in the form in which the request came; for requests of no known form that is
//! JSON, which people can read.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, CONTENT_TYPE, EXPECT, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming as HttpBody;
use lens_otlp::json::put_text;

use super::body;
use super::counters::{Reason, Transport};
use super::denial::Denial;
use super::grpc::{response_message, status_message};
use super::serve::{Body, Kind, Shared, full};
use crate::intake::{Accepted, Compression, Encoding, Format, Signal};
use crate::pages::{Page, Pages, Question};
use crate::prometheus::Format as PageFormat;

const METRICS_PATH: &str = "/metrics";
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(super) async fn answer(shared: &Shared, request: Request<HttpBody>) -> Response<Body> {
    let (head, mut body) = request.into_parts();
    if head.uri.path() == METRICS_PATH {
        return match metrics(shared, &head) {
            Ok(page) => page,
            Err(denial) => {
                shared.counters.refused(Transport::Http, denial.reason);
                failure(&denial, Format::Json, "GET, HEAD")
            }
        };
    }
    let form = form(&head.headers);
    if matches!(head.method, Method::GET | Method::HEAD)
        && let Some(pages) = &shared.pages
    {
        match page(shared, Arc::clone(pages), &head).await {
            Ok(Some(page)) => return page,
            Ok(None) => {}
            Err(denial) => {
                shared.counters.refused(Transport::Http, denial.reason);
                return failure(&denial, Format::Json, "GET, HEAD");
            }
        }
    }
    match take(shared, &head, form, &mut body).await {
        Ok((signal, accepted)) => success(signal, form.unwrap_or(Format::Json), &accepted),
        Err(denial) => {
            shared.counters.refused(Transport::Http, denial.reason);
            // Who expects to be told before sending the body is told.
            if denial.leaves_body() && !head.headers.contains_key(EXPECT) {
                body::drain(&mut body).await;
            }
            failure(&denial, form.unwrap_or(Format::Json), "POST")
        }
    }
}

/// What is read at a path, if anything is. It is made elsewhere, so that senders need not wait for it.
async fn page(
    shared: &Shared,
    pages: Arc<dyn Pages>,
    head: &http::request::Parts,
) -> Result<Option<Response<Body>>, Denial> {
    shared.check_token(&head.headers)?;
    let accept = head.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let question = Question {
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        accept: accept.unwrap_or_default().to_owned(),
    };
    let made = tokio::task::spawn_blocking(move || pages.page(&question)).await;
    let Ok(made) = made else {
        let message = "the answer could not be made; the receiver goes on";
        let page = Page::refusal(StatusCode::INTERNAL_SERVER_ERROR, message);
        return Ok(Some(response_of(page)));
    };
    Ok(made.map(response_of))
}

fn response_of(page: Page) -> Response<Body> {
    let mut response = Response::new(full(page.body));
    *response.status_mut() = page.status;
    if let Ok(content_type) = HeaderValue::try_from(page.content_type.as_ref()) {
        response.headers_mut().insert(CONTENT_TYPE, content_type);
    }
    for (name, value) in page.headers {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// The page that Prometheus scrapes.
fn metrics(shared: &Shared, head: &http::request::Parts) -> Result<Response<Body>, Denial> {
    if head.method != Method::GET && head.method != Method::HEAD {
        return Err(Denial::new(Reason::Method, "metrics are read with GET"));
    }
    shared.check_token(&head.headers)?;
    let accept = head.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = PageFormat::of_accept(accept.unwrap_or_default());
    let page = shared.metrics.page(format, &shared.snapshot(), Instant::now());
    let mut response = Response::new(full(page));
    let kind = HeaderValue::from_static(format.content_type());
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

async fn take(
    shared: &Shared,
    head: &http::request::Parts,
    form: Option<Format>,
    body: &mut HttpBody,
) -> Result<(Signal, Accepted), Denial> {
    let signal = match head.uri.path() {
        "/v1/traces" => Signal::Traces,
        "/v1/metrics" => Signal::Metrics,
        "/v1/logs" => Signal::Logs,
        path => {
            let message = format!(
                "nothing is served at {path}; OTLP goes to /v1/traces, /v1/metrics, /v1/logs"
            );
            return Err(Denial::new(Reason::NoSuchPath, message));
        }
    };
    if head.method != Method::POST {
        return Err(Denial::new(Reason::Method, "OTLP is sent with POST"));
    }
    shared.check_token(&head.headers)?;
    let Some(form) = form else {
        return Err(Denial::new(
            Reason::ContentType,
            "the content type must be application/x-protobuf or application/json",
        ));
    };
    let compression = compression(&head.headers)?;
    let mut held = shared.budget.hold();
    let body = body::read(body, &mut held, shared.bounds(), |_| Ok(None)).await?;
    let encoding = Encoding { format: form, compression };
    let kind = Kind { signal, transport: Transport::Http, encoding };
    Ok((signal, shared.take(kind, body, &mut held).await?))
}

fn form(headers: &HeaderMap) -> Option<Format> {
    let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let kind = kind.split(';').next().unwrap_or_default().trim();
    match kind.to_ascii_lowercase().as_str() {
        "application/x-protobuf" | "application/protobuf" => Some(Format::Protobuf),
        "application/json" => Some(Format::Json),
        _ => None,
    }
}

fn compression(headers: &HeaderMap) -> Result<Compression, Denial> {
    let mut values = headers.get_all(CONTENT_ENCODING).iter();
    let value = match (values.next(), values.next()) {
        (None, _) => return Ok(Compression::Identity),
        (Some(value), None) => value.to_str().unwrap_or("?").trim(),
        (Some(_), Some(_)) => "several",
    };
    match value.to_ascii_lowercase().as_str() {
        "" | "identity" => Ok(Compression::Identity),
        "gzip" | "x-gzip" => Ok(Compression::Gzip),
        "zstd" => Ok(Compression::Zstd),
        other => {
            let message = format!("content encoding {other:?} is not known; gzip and zstd are");
            Err(Denial::new(Reason::Compression, message))
        }
    }
}

fn reply(form: Format, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(body));
    let kind = if form == Format::Json { JSON } else { PROTOBUF };
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn success(signal: Signal, form: Format, accepted: &Accepted) -> Response<Body> {
    if form == Format::Protobuf {
        return reply(form, response_message(accepted));
    }
    let message = accepted.message.as_deref().unwrap_or_default();
    let mut fields = Vec::new();
    if accepted.rejected > 0 {
        let name = match signal {
            Signal::Traces => "rejectedSpans",
            Signal::Metrics => "rejectedDataPoints",
            Signal::Logs => "rejectedLogRecords",
        };
        fields.push(format!("\"{name}\":\"{}\"", accepted.rejected));
    }
    if !message.is_empty() {
        let mut field = "\"errorMessage\":".to_owned();
        put_text(&mut field, message);
        fields.push(field);
    }
    if fields.is_empty() {
        return reply(form, "{}");
    }
    reply(form, format!("{{\"partialSuccess\":{{{}}}}}", fields.join(",")))
}

fn failure(denial: &Denial, form: Format, allowed: &'static str) -> Response<Body> {
    let code = denial.code();
    let mut response = match form {
        Format::Protobuf => reply(form, status_message(code, &denial.message)),
        Format::Json => {
            let mut text = format!("{{\"code\":{code},\"message\":");
            put_text(&mut text, &denial.message);
            text.push('}');
            reply(form, text)
        }
    };
    *response.status_mut() = denial.status();
    let headers = response.headers_mut();
    if let Some(after) = denial.retry_after {
        // Whole seconds; less than one is not "at once".
        headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs_f64().ceil() as u64));
    }
    let more = match denial.reason {
        Reason::Method => Some((ALLOW, allowed)),
        Reason::Credentials => Some((WWW_AUTHENTICATE, "Bearer")),
        Reason::Compression => Some((ACCEPT_ENCODING, "gzip, zstd, identity")),
        _ => None,
    };
    if let Some((name, value)) = more {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
