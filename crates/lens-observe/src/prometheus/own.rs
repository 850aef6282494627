//! The receiver's counters, and those of this page.

use super::names::Kind;
use super::page::Page;
use super::received::ReceivedMetrics;
use super::spans::SpanDurations;
use crate::receiver::Snapshot;

/// Names of what the receiver says about itself.
mod metric {
    pub(super) const REQUESTS: &str = "gym_observe_requests";
    pub(super) const ITEMS: &str = "gym_observe_items";
    pub(super) const REJECTED_ITEMS: &str = "gym_observe_rejected_items";
    pub(super) const RECEIVED_BYTES: &str = "gym_observe_received_bytes";
    pub(super) const REQUEST_BYTES: &str = "gym_observe_request_bytes";
    pub(super) const REFUSED: &str = "gym_observe_refused_requests";
    pub(super) const CONNECTIONS: &str = "gym_observe_connections";
    pub(super) const CONNECTIONS_LIMIT: &str = "gym_observe_connections_limit";
    pub(super) const ACCEPTED: &str = "gym_observe_accepted_connections";
    pub(super) const SHED: &str = "gym_observe_shed_connections";
    pub(super) const ACCEPT_FAILURES: &str = "gym_observe_accept_failures";
    pub(super) const IN_FLIGHT: &str = "gym_observe_in_flight_bytes";
    pub(super) const IN_FLIGHT_LIMIT: &str = "gym_observe_in_flight_limit_bytes";
    pub(super) const SAMPLES: &str = "gym_observe_metric_samples";
    pub(super) const SAMPLES_LIMIT: &str = "gym_observe_metric_samples_limit";
    pub(super) const PROCESSES: &str = "gym_observe_metric_processes";
    pub(super) const REFUSED_POINTS: &str = "gym_observe_refused_points";
    pub(super) const SPAN_SERIES: &str = "gym_observe_span_series";
    pub(super) const SPAN_SERIES_LIMIT: &str = "gym_observe_span_series_limit";
    pub(super) const SPAN_OVERFLOW: &str = "gym_observe_span_series_overflow";
}

pub(super) fn put_receiver(page: &mut Page, snapshot: &Snapshot) {
    type Read = fn(&crate::receiver::Received) -> u64;
    let by_signal: [(&str, &str, Read); 5] = [
        (metric::REQUESTS, "Export requests that were accepted.", |received| received.requests),
        (metric::ITEMS, "Spans, metrics and log records that were accepted.", |received| {
            received.items
        }),
        (metric::REJECTED_ITEMS, "Items of accepted requests that were refused.", |received| {
            received.rejected_items
        }),
        (metric::RECEIVED_BYTES, "Bytes of accepted requests as received.", |received| {
            received.received_bytes
        }),
        (metric::REQUEST_BYTES, "Bytes of accepted requests as protobuf.", |received| {
            received.request_bytes
        }),
    ];
    for (name, help, read) in by_signal {
        page.family(name, Kind::Counter, help);
        for (signal, transport, received) in &snapshot.received {
            let labels = [("signal", signal.as_str()), ("transport", transport.as_str())];
            page.value(&labels, read(received) as f64);
        }
    }
    page.family(metric::REFUSED, Kind::Counter, "Requests that were refused.");
    for (transport, reason, count) in &snapshot.refused {
        let labels = [("transport", transport.as_str()), ("reason", reason.as_str())];
        page.value(&labels, *count as f64);
    }
    let counter = Kind::Counter;
    for (name, kind, help, value) in [
        (metric::ACCEPTED, counter, "Connections that were accepted.", snapshot.connections_total),
        (metric::SHED, counter, "Idle connections closed to make room.", snapshot.connections_shed),
        (
            metric::ACCEPT_FAILURES,
            counter,
            "Times that there was no room for a connection.",
            snapshot.accept_failures,
        ),
        (metric::CONNECTIONS, Kind::Gauge, "Open connections.", snapshot.connections),
        (
            metric::CONNECTIONS_LIMIT,
            Kind::Gauge,
            "As many connections may be open.",
            snapshot.connections_limit,
        ),
        (metric::IN_FLIGHT, Kind::Gauge, "Bytes of requests in flight.", snapshot.in_flight_bytes),
        (
            metric::IN_FLIGHT_LIMIT,
            Kind::Gauge,
            "As many bytes may be in flight.",
            snapshot.in_flight_limit_bytes,
        ),
    ] {
        page.family(name, kind, help);
        page.value(&[], value as f64);
    }
}

pub(super) fn put_page(page: &mut Page, metrics: &ReceivedMetrics, spans: &SpanDurations) {
    let (samples, samples_limit) = metrics.fill();
    let (series, series_limit, overflowed) = spans.fill();
    for (name, help, value) in [
        (metric::SAMPLES, "Samples of received metrics.", samples),
        (metric::SAMPLES_LIMIT, "As many samples of received metrics may be shown.", samples_limit),
        (metric::PROCESSES, "Processes that metrics were received from.", metrics.processes()),
        (metric::SPAN_SERIES, "Series of durations of spans.", series),
        (metric::SPAN_SERIES_LIMIT, "As many series of durations may be shown.", series_limit),
    ] {
        page.family(name, Kind::Gauge, help);
        page.value(&[], value as f64);
    }
    let overflow = "Spans whose duration went to the overflow series.";
    page.family(metric::SPAN_OVERFLOW, Kind::Counter, overflow);
    page.value(&[], overflowed as f64);
    page.family(metric::REFUSED_POINTS, Kind::Counter, "Data points that are not shown.");
    let refused = metrics.refused();
    for (reason, count) in [
        ("full", refused.full),
        ("conflicting", refused.conflicting),
        ("outdated", refused.outdated),
        ("unsupported", refused.unsupported),
    ] {
        page.value(&[("reason", reason)], count as f64);
    }
}
