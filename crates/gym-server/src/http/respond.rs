//! From one request to one reply.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use gym_telemetry::semconv;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use lens::InSpan as _;

use super::body::ReplyBody;
use super::call::{BAGGAGE, ERROR_TYPE, TRACEPARENT, TRACESTATE, joined};
use super::connection::InFlight;
use super::router::{HandlerFuture, Lookup, Service};
use super::server::{Peer, Shard};
use super::span::RequestSpan;
use super::{Call, HttpError, Reply};
use crate::client::names_a_timeout;
use crate::instance::ServerType;
use crate::rollout::{self, RolloutId};
use crate::session::{SessionId, SessionMark, set_cookie_value};

/// Where a rollout's session with its resources begins.
const SEED_PATH: &str = "/seed_session";

/// Answers one request of a connection. Every failure becomes a reply.
///
/// A connection keeps room for this future as long as it lives: what is done with the head is done
/// before there is one, so that it holds each thing once.
pub(super) fn respond(
    shard: Arc<Shard>,
    peer: &Peer,
    request: Request<Incoming>,
    in_flight: InFlight,
) -> impl Future<Output = Result<Response<ReplyBody>, Infallible>> + use<> {
    let (head, body) = request.into_parts();
    let opened = Opened::new(&shard, peer, head);
    async move {
        let body = read(body, shard.max_body_bytes).await;
        let response = opened.answer(&shard, body).await;
        drop(in_flight);
        Ok(response)
    }
}

/// Answers a request that this process sends to itself.
pub(crate) fn respond_locally(
    shard: &Shard,
    head: Parts,
    body: Bytes,
) -> impl Future<Output = Response<Bytes>> {
    let answer = Opened::new(shard, &shard.own_peer, head).answer(shard, Ok(body));
    async move { answer.await.map(ReplyBody::into_whole) }
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
        let known = KnownHeaders::of(&head.headers, &service.cookie_name);
        let parent = known.trace_context();
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
        let mut span = RequestSpan::start(route, &head.method, path, known.host, peer, &parent);
        if let Some(rollout) = rollout.as_ref().filter(|_| strips) {
            span.set_rollout(rollout);
        }
        let context = span.context(&parent);
        let session = known.session.unwrap_or_else(SessionId::random);
        let keeps_sessions = service.server_type != ServerType::ResponsesApiModels;
        if span.is_recording() && keeps_sessions {
            let of_request = SessionMark::of(&session);
            span.set_session(of_request);
            // An agent's own session is new with each run; that of its resources is one for all.
            let is_kept = known.session.is_some()
                || (service.server_type == ServerType::ResourcesServers && path != SEED_PATH);
            if let Some(rollout) = &rollout {
                let sessions = &service.sessions;
                if !is_kept {
                    sessions.begins(rollout.as_str(), of_request);
                } else if sessions.changes(rollout.as_str(), of_request) {
                    span.set(semconv::SESSION_CHANGED, true.into());
                }
            }
        }
        let is_traced = known.is_traced();
        let (uri, headers) = (head.uri, head.headers);
        let call =
            Call::new(shard.client.clone(), session, uri, prefix_len, rollout, headers, is_traced);
        Self { lookup, call, context, span }
    }

    fn answer(
        self,
        shard: &Shard,
        body: Result<Bytes, HttpError>,
    ) -> impl Future<Output = Response<ReplyBody>> {
        let Self { lookup, call, context, mut span } = self;
        let handler = body.and_then(|body| {
            span.has_read(body.len());
            Ok(guarded(handler_of(&lookup, &call, body)?).in_context(context))
        });
        async move {
            let result = match handler {
                Ok(handler) => handler.await,
                Err(error) => Err(error),
            };
            for (key, value) in call.take_server_attributes() {
                span.set(key, value);
            }
            reply(&shard.service, &call, result, span)
        }
    }
}

/// What every request is looked through for, found in one walk over its headers.
#[derive(Default)]
struct KnownHeaders<'h> {
    traceparent: Option<&'h HeaderValue>,
    tracestate: Option<&'h HeaderValue>,
    baggage: Option<&'h HeaderValue>,
    host: Option<&'h HeaderValue>,
    session: Option<SessionId>,
    /// Two parents are no parent.
    has_two_parents: bool,
    /// The headers, when several `tracestate` or `baggage` ones make a list.
    with_lists: Option<&'h HeaderMap>,
}

impl<'h> KnownHeaders<'h> {
    fn of(headers: &'h HeaderMap, cookie_name: &str) -> Self {
        let mut known = Self::default();
        for (name, value) in headers {
            if *name == header::COOKIE {
                known.session = known.session.or_else(|| session_in(value, cookie_name));
            } else if *name == header::HOST {
                known.host = known.host.or(Some(value));
            } else if *name == TRACEPARENT {
                known.has_two_parents |= known.traceparent.is_some();
                known.traceparent = known.traceparent.or(Some(value));
            } else {
                let slot = match name {
                    name if *name == TRACESTATE => &mut known.tracestate,
                    name if *name == BAGGAGE => &mut known.baggage,
                    _ => continue,
                };
                if slot.is_some() {
                    known.with_lists = Some(headers);
                } else {
                    *slot = Some(value);
                }
            }
        }
        known
    }

    fn is_traced(&self) -> bool {
        self.traceparent.or(self.baggage).is_some()
    }

    fn trace_context(&self) -> lens::Context {
        if !gym_telemetry::is_active() {
            return lens::Context::empty();
        }
        if self.has_two_parents {
            gym_telemetry::notice(
                "a request came with more than one traceparent, so a new trace was begun for it; \
                 its caller, or a proxy before it, adds one where there is one",
            );
            return lens::Context::refused();
        }
        let bytes = |value: Option<&'h HeaderValue>| value.map(HeaderValue::as_bytes);
        let traceparent = bytes(self.traceparent);
        let Some(headers) = self.with_lists else {
            let (state, baggage) = (bytes(self.tracestate), bytes(self.baggage));
            return lens::Context::from_header_values(traceparent, state, baggage);
        };
        let (state, baggage) = (joined(headers, &TRACESTATE), joined(headers, &BAGGAGE));
        lens::Context::from_header_values(
            traceparent,
            state.as_deref().map(str::as_bytes),
            baggage.as_deref().map(str::as_bytes),
        )
    }
}

fn session_in(cookies: &HeaderValue, cookie_name: &str) -> Option<SessionId> {
    let pairs = cookies.to_str().ok()?.split(';');
    pairs
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(name, _)| *name == cookie_name)
        .find_map(|(_, value)| SessionId::parse(value))
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

fn handler_of(lookup: &Lookup, call: &Call, body: Bytes) -> Result<HandlerFuture, HttpError> {
    match lookup {
        Lookup::Found(route) => Ok((route.handler)(call.clone(), body)),
        Lookup::WrongMethod => {
            Err(HttpError::detail(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"))
        }
        Lookup::Unknown => Err(HttpError::not_found()),
    }
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
            let error_type = error.error_type();
            let mut reply = Reply::json_bytes(error.body(&service.cookie_name)).status(status);
            if names_a_timeout(&error_type)
                && let Ok(value) = HeaderValue::from_str(&error_type)
            {
                reply = reply.header(ERROR_TYPE, value);
            }
            span.answered(status, Some(error_type));
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
