//! From one request to one reply.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use gym_telemetry::semconv;
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use lens::InSpan as _;

use super::body::ReplyBody;
use super::call::{TRACEPARENT, TRACESTATE};
use super::router::{HandlerFuture, Lookup, Service};
use super::server::{Peer, Shard};
use super::span::RequestSpan;
use super::{Call, HttpError, Reply};
use crate::rollout::{self, RolloutId};
use crate::session::{SessionId, set_cookie_value};

/// Answers one request of a connection. Every failure becomes a reply.
pub(crate) async fn respond(
    shard: Arc<Shard>,
    peer: Arc<Peer>,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Infallible> {
    let (head, body) = request.into_parts();
    let opened = Opened::new(&shard, &peer, head);
    let body = read(body, shard.max_body_bytes).await;
    Ok(opened.answer(&shard, body).await)
}

/// Answers a request that this process sends to itself.
pub(crate) async fn respond_locally(shard: &Shard, head: Parts, body: Bytes) -> Response<Bytes> {
    let opened = Opened::new(shard, &shard.own_peer, head);
    opened.answer(shard, Ok(body)).await.map(ReplyBody::into_whole)
}

/// A request whose head was read: its span runs.
struct Opened {
    lookup: Lookup,
    call: Call,
    context: lens::Context,
    span: RequestSpan,
}

impl Opened {
    fn new(shard: &Shard, peer: &Peer, head: Parts) -> Self {
        let service = &shard.service;
        let full_path = head.uri.path();
        let split = rollout::split_path(full_path);
        let strips = !split.prefix.is_empty() && service.strips_prefix(split.path);
        let (prefix_len, path) =
            if strips { (split.prefix.len(), split.path) } else { (0, full_path) };
        let parent = trace_context(&head.headers);
        let rollout = if strips {
            RolloutId::parse(split.id)
        } else {
            parent.baggage(semconv::ROLLOUT_ID).and_then(RolloutId::parse)
        };
        let lookup = service.find(&head.method, path);
        let route = match &lookup {
            Lookup::Found(route) => Some(route),
            Lookup::WrongMethod | Lookup::Unknown => None,
        };
        let mut span = RequestSpan::start(route, &head.method, path, &head.headers, peer, &parent);
        if let Some(rollout) = rollout.as_ref().filter(|_| strips) {
            span.set_rollout(rollout);
        }
        let context = span.context(&parent);
        let session = session_of(service, &head.headers);
        let call =
            Call::new(shard.client.clone(), session, head.uri, prefix_len, rollout, head.headers);
        Self { lookup, call, context, span }
    }

    async fn answer(self, shard: &Shard, body: Result<Bytes, HttpError>) -> Response<ReplyBody> {
        let Self { lookup, call, context, mut span } = self;
        let result = match body {
            Ok(body) => handle(&lookup, &call, body, context).await,
            Err(error) => Err(error),
        };
        for (key, value) in call.take_server_attributes() {
            span.set(key, value);
        }
        reply(&shard.service, &call, result, span)
    }
}

fn trace_context(headers: &HeaderMap) -> lens::Context {
    if !gym_telemetry::is_active() {
        return lens::Context::empty();
    }
    // Several `tracestate` or `baggage` headers are one list.
    let joined = |name: &str| -> Option<String> {
        let mut values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        let first = values.next()?;
        let mut text = first.to_owned();
        for value in values {
            text.push(',');
            text.push_str(value);
        }
        Some(text)
    };
    let many = |name: &http::HeaderName| headers.get_all(name).iter().nth(1).is_some();
    if many(&TRACEPARENT) {
        // Two parents are no parent.
        return lens::Context::empty();
    }
    if many(&TRACESTATE) || many(&super::BAGGAGE) {
        let (parent, state, baggage) =
            (joined("traceparent"), joined("tracestate"), joined("baggage"));
        return lens::Context::extract(|name| match name {
            "traceparent" => parent.as_deref(),
            "tracestate" => state.as_deref(),
            "baggage" => baggage.as_deref(),
            _ => None,
        });
    }
    lens::Context::extract(|name| {
        let name = match name {
            "traceparent" => TRACEPARENT,
            "tracestate" => TRACESTATE,
            "baggage" => super::BAGGAGE,
            _ => return None,
        };
        headers.get(name)?.to_str().ok()
    })
}

fn session_of(service: &Service, headers: &HeaderMap) -> SessionId {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(name, _)| *name == service.cookie_name)
        .find_map(|(_, value)| SessionId::parse(value))
        .unwrap_or_else(SessionId::random)
}

async fn read(body: Incoming, max_bytes: usize) -> Result<Bytes, HttpError> {
    match Limited::new(body, max_bytes).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(HttpError::detail(
            StatusCode::PAYLOAD_TOO_LARGE,
            &format!("the request body is larger than {max_bytes} bytes"),
        )),
        Err(_) => Err(HttpError::detail(StatusCode::BAD_REQUEST, "the request body broke off")),
    }
}

async fn handle(
    lookup: &Lookup,
    call: &Call,
    body: Bytes,
    context: lens::Context,
) -> Result<Reply, HttpError> {
    let route = match lookup {
        Lookup::Found(route) => route,
        Lookup::WrongMethod => {
            return Err(HttpError::detail(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"));
        }
        Lookup::Unknown => return Err(HttpError::not_found()),
    };
    let handler = (route.handler)(call.clone(), body);
    guarded(handler).in_context(context).await
}

/// Turns a panic of the handler into a failure of this request alone.
async fn guarded(handler: HandlerFuture) -> Result<Reply, HttpError> {
    let mut handler = pin!(handler);
    std::future::poll_fn(|cx| {
        match std::panic::catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(cx))) {
            Ok(poll) => poll,
            Err(_) => Poll::Ready(Err(HttpError::Panicked)),
        }
    })
    .await
}

fn reply(
    service: &Service,
    call: &Call,
    result: Result<Reply, HttpError>,
    mut span: RequestSpan,
) -> Response<ReplyBody> {
    let (reply, keeps_session) = match result {
        Ok(reply) => {
            span.answered(reply.status, None);
            (reply, true)
        }
        Err(error) => {
            let status = error.status();
            span.answered(status, Some(error.error_type()));
            let reply = Reply::json_bytes(error.body(&service.cookie_name)).status(status);
            (reply, error.keeps_session())
        }
    };
    let mut response = Response::new(());
    *response.status_mut() = reply.status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, reply.content_type);
    for (name, value) in reply.headers {
        headers.append(name, value);
    }
    if keeps_session {
        for (name, value) in call.take_reply_cookies().iter() {
            if name != service.cookie_name
                && let Some(value) = set_cookie_value(name, value)
            {
                headers.append(header::SET_COOKIE, value);
            }
        }
        if let Some(value) = set_cookie_value(&service.cookie_name, call.session_id()) {
            headers.append(header::SET_COOKIE, value);
        }
    }
    response.map(|()| ReplyBody::new(reply.body, span, reply.delivery))
}
