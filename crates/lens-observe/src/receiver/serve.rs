//! What both transports do with a request once its body is there.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming as HttpBody;
use lens_otlp::DecodeError;
use lens_otlp::client::OBSERVE_HEADER;
use lens_otlp::split;
use lens_store::wal::{from_json, inflate};

use super::body::{Bounds, Budget, Held};
use super::counters::{Counters, Reason, Received, Snapshot, Transport};
use super::denial::Denial;
use super::{Limits, Token, grpc, http_server};
use crate::intake::{Accepted, Encoding, Format, Incoming, Intake, Refused, Signal};
use crate::pages::Pages;
use crate::prometheus::Metrics;

/// Between two looks whether there is room: the first pause, and the longest.
const ROOM_PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(50));

pub(super) type Body = BoxBody<Bytes, Infallible>;

pub(super) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed()
}

/// What all connections share.
pub(super) struct Shared {
    pub intake: Arc<dyn Intake>,
    pub limits: Limits,
    pub max_connections: usize,
    pub metrics: Metrics,
    pub token: Option<Token>,
    pub pages: Option<Arc<dyn Pages>>,
    pub counters: Counters,
    pub budget: Arc<Budget>,
}

/// What is known of a request besides its body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub signal: Signal,
    pub transport: Transport,
    pub encoding: Encoding,
}

impl Shared {
    /// Answers a request of either transport, on a port of either: gRPC is known by its content type.
    pub(super) async fn answer(&self, request: Request<HttpBody>) -> Response<Body> {
        let content_type = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let is_grpc = content_type.is_some_and(|kind| kind.starts_with(b"application/grpc"));
        let mut response = if is_grpc {
            grpc::answer(self, request).await
        } else {
            http_server::answer(self, request).await
        };
        response.headers_mut().insert(OBSERVE_HEADER, HeaderValue::from_static("1"));
        response
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            connections_limit: self.max_connections as u64,
            in_flight_bytes: self.budget.held_bytes() as u64,
            in_flight_limit_bytes: self.budget.limit_bytes() as u64,
            ..self.counters.snapshot()
        }
    }

    /// Refuses whoever does not have the token.
    pub(super) fn check_token(&self, headers: &HeaderMap) -> Result<(), Denial> {
        let Some(token) = &self.token else { return Ok(()) };
        let Some(sent) = headers.get(AUTHORIZATION) else {
            return Err(Denial::new(
                Reason::Credentials,
                "a token is needed: send it as `authorization: Bearer …`",
            ));
        };
        let (scheme, sent) = sent.as_bytes().split_at_checked(7).unwrap_or_default();
        if scheme.eq_ignore_ascii_case(b"bearer ") && token.is(sent.trim_ascii()) {
            return Ok(());
        }
        Err(Denial::new(Reason::Credentials, "the token is not the right one"))
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds { limit_bytes: self.limits.body_bytes, timeout: self.limits.body_timeout }
    }

    /// Decompresses a body, translates it, hands it over, and counts it.
    pub(super) async fn take(
        &self,
        kind: Kind,
        body: Bytes,
        held: &mut Held,
    ) -> Result<Accepted, Denial> {
        let request = self.to_protobuf(kind, &body)?;
        if request.as_ptr() != body.as_ptr() {
            held.grow(request.len())?;
        }
        let mut received = Received {
            requests: 1,
            items: split::count_items(&request),
            rejected_items: 0,
            received_bytes: body.len() as u64,
            request_bytes: request.len() as u64,
        };
        let Kind { signal, transport, encoding } = kind;
        let incoming =
            Incoming { signal, encoding, body, request: request.clone(), is_again: false };
        let accepted = self.hand_over(incoming).await?;
        received.rejected_items = accepted.rejected;
        received.items = received.items.saturating_sub(accepted.rejected);
        self.counters.received(signal, transport, &received);
        self.metrics.take(signal, &request, accepted.rejected, Instant::now());
        Ok(accepted)
    }

    /// Hands a request over, at once or when there is room: a sender that has to come again sends everything again, and
    /// waits longer than it must.
    async fn hand_over(&self, mut incoming: Incoming) -> Result<Accepted, Refused> {
        let since = Instant::now();
        let (mut pause, longest) = ROOM_PAUSES;
        loop {
            match self.intake.accept(incoming.clone()) {
                Err(Refused::Overloaded { .. }) if since.elapsed() < self.limits.room_timeout => {
                    tokio::time::sleep(pause).await;
                    pause = longest.min(pause * 2);
                    incoming.is_again = true;
                }
                result => return result,
            }
        }
    }

    fn to_protobuf(&self, kind: Kind, body: &Bytes) -> Result<Bytes, Denial> {
        let inflated = inflate(body, kind.encoding.compression, self.limits.request_bytes)?;
        if kind.encoding.format == Format::Protobuf {
            return Ok(inflated);
        }
        let limit_values = self.limits.json_values;
        // A tree of values is many times larger than its text; commas and brackets bound how many there are.
        let values = inflated.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
        if values > limit_values {
            let message =
                format!("message too large: more than {limit_values} values; send protobuf");
            return Err(Denial::new(Reason::TooLarge, message));
        }
        from_json(kind.signal, &inflated).map_err(|error| malformed(&error))
    }
}

fn malformed(error: &DecodeError) -> Denial {
    Denial::new(Reason::Malformed, format!("not an OTLP request: {error}"))
}
