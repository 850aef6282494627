//! What both transports do with a request.

use std::io::Read as _;

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::HeaderMap;
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

/// Takes the next order, and the request if it is to be accepted.
pub(super) fn take(shared: &Shared, incoming: &Incoming<'_>) -> Reply {
    let mut received = shared.lock();
    received.tries += 1;
    let reply = received.orders.pop_front().unwrap_or(Reply::Accept);
    if matches!(reply, Reply::Accept | Reply::Partial(_)) {
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
    }
    shared.arrived.notify_all();
    reply
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
pub(super) fn response_message(rejected: u64) -> Vec<u8> {
    let mut out = Vec::new();
    if rejected > 0 {
        lens_otlp::wire::put_message(&mut out, 1, |out| {
            lens_otlp::wire::put_uint(out, 1, rejected);
            lens_otlp::wire::put_bytes(out, 2, b"as ordered");
        });
    }
    out
}
