//! What both transports do with a request.

use std::io::{self, Read as _};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::HeaderMap;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as HttpBody, Frame};
use lens_otlp::view::metrics::MetricView;
use lens_otlp::view::resources;

use super::{Counts, ReceivedRequest, Reply, Shared, Signal};

/// A request, decompressed.
pub(super) struct Incoming<'a> {
    pub signal: Signal,
    pub path: &'a str,
    pub headers: &'a HeaderMap,
    pub body: &'a [u8],
}

/// Takes the next order.
pub(super) fn order(shared: &Shared, body: &[u8]) -> Reply {
    let mut received = shared.lock();
    received.tries += 1;
    shared.arrived.notify_all();
    let standing = received.standing.unwrap_or(Reply::Accept);
    match received.orders.pop_front().unwrap_or(standing) {
        Reply::UpTo(bytes) if body.len() <= bytes => Reply::Accept,
        reply => reply,
    }
}

/// Counts a request as received.
pub(super) fn accept(shared: &Shared, incoming: &Incoming<'_>) {
    let mut received = shared.lock();
    count(&mut received.counts, incoming);
    if shared.keep {
        received.requests.push(ReceivedRequest {
            signal: incoming.signal,
            path: incoming.path.to_owned(),
            headers: incoming
                .headers
                .iter()
                .map(|(name, value)| {
                    let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                    (name.as_str().to_owned(), value)
                })
                .collect(),
            body: incoming.body.to_vec(),
        });
    }
    shared.arrived.notify_all();
}

pub(super) type Body = BoxBody<Bytes, io::Error>;

struct CutOff(std::array::IntoIter<io::Result<Frame<Bytes>>, 2>);

impl HttpBody for CutOff {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Poll::Ready(self.0.next())
    }
}

/// A body that ends in the middle of what was promised.
pub(super) fn cut_off() -> Body {
    let frames = [Ok(Frame::data(Bytes::from_static(b"\0\0\0"))), Err(io::ErrorKind::Other.into())];
    CutOff(frames.into_iter()).boxed()
}

pub(super) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

fn count(counts: &mut Counts, incoming: &Incoming<'_>) {
    counts.requests += 1;
    counts.bytes += incoming.body.len() as u64;
    let items: usize = resources(incoming.body)
        .filter_map(Result::ok)
        .flat_map(|resource| resource.scopes().filter_map(Result::ok).collect::<Vec<_>>())
        .map(|scope| scope.items().filter(Result::is_ok).count())
        .sum();
    let counter = match incoming.signal {
        Signal::Traces => &mut counts.spans,
        Signal::Metrics => &mut counts.metrics,
        Signal::Logs => &mut counts.logs,
    };
    *counter += items as u64;
}

pub(super) fn metric_names(body: &[u8]) -> Vec<String> {
    resources(body)
        .filter_map(Result::ok)
        .flat_map(|resource| resource.scopes().filter_map(Result::ok).collect::<Vec<_>>())
        .flat_map(|scope| scope.items().filter_map(Result::ok).collect::<Vec<_>>())
        .filter_map(|metric| MetricView::read(metric).ok().map(|metric| metric.name.to_owned()))
        .collect()
}

pub(super) fn gunzip(body: &Bytes) -> Option<Bytes> {
    let mut out = Vec::new();
    GzDecoder::new(body.as_ref()).read_to_end(&mut out).ok()?;
    Some(out.into())
}

/// An export response, empty unless items were refused.
pub(super) fn response_message(rejected: u64, saying: &str) -> Vec<u8> {
    let mut out = Vec::new();
    if rejected > 0 || !saying.is_empty() {
        lens_otlp::wire::put_message(&mut out, 1, |out| {
            lens_otlp::wire::put_uint(out, 1, rejected);
            lens_otlp::wire::put_bytes(out, 2, saying.as_bytes());
        });
    }
    out
}
