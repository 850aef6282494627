//! Collected points as OTLP.

use lens_otlp::encode::{Scope, put_request};
use lens_otlp::metrics::{
    HistogramPoint, Identity, Interval, Number, NumberPoint, Temporality, put_gauge, put_histogram,
    put_sum,
};

use super::aggregate::{Instrument, Kind, Observed, Point, instruments};

/// An export request of everything measured; `None` when there is nothing.
pub(super) fn request(resource: &[u8], interval: Interval) -> Option<Vec<u8>> {
    let mut items = Vec::new();
    for instrument in instruments() {
        let points = instrument.collect();
        if !points.is_empty() {
            put_metric(&mut items, &instrument, interval, &points);
        }
    }
    if items.is_empty() {
        return None;
    }
    let scope = Scope { name: "lens", version: env!("CARGO_PKG_VERSION") };
    let mut request = Vec::new();
    put_request(&mut request, resource, std::iter::once((scope, items.as_slice())));
    Some(request)
}

fn put_metric(out: &mut Vec<u8>, instrument: &Instrument, interval: Interval, points: &[Point]) {
    let identity = Identity {
        name: instrument.name,
        unit: instrument.unit,
        description: instrument.description,
    };
    let cumulative = Temporality::Cumulative;
    match instrument.kind {
        Kind::Counter => put_sum(out, &identity, interval, cumulative, true, numbers(points)),
        Kind::UpDownCounter => {
            put_sum(out, &identity, interval, cumulative, false, numbers(points));
        }
        Kind::Gauge => put_gauge(out, &identity, interval, numbers(points)),
        Kind::Histogram(bounds) => {
            put_histogram(out, &identity, interval, cumulative, bounds, histograms(points));
        }
    }
}

fn numbers(points: &[Point]) -> impl Iterator<Item = NumberPoint<'_>> {
    points.iter().filter_map(|point| {
        let value = match point.value {
            Observed::Int(value) => Number::Int(value),
            Observed::Double(value) => Number::Double(value),
            Observed::Histogram { .. } => return None,
        };
        Some(NumberPoint { attributes: &point.attributes, value })
    })
}

fn histograms(points: &[Point]) -> impl Iterator<Item = HistogramPoint<'_>> {
    points.iter().filter_map(|point| match &point.value {
        Observed::Histogram { count, sum, buckets, min, max } => Some(HistogramPoint {
            attributes: &point.attributes,
            count: *count,
            sum: *sum,
            buckets,
            min_max: (*count > 0).then_some((*min, *max)),
        }),
        _ => None,
    })
}
