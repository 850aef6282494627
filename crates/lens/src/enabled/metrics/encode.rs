//! Collected points as OTLP.

use lens_otlp::encode::{Scope, put_request};
use lens_otlp::metrics::{
    EXPONENTIAL_POINT_ATTRIBUTES, ExponentialPoint, HistogramPoint, Identity, Interval, Number,
    NumberPoint, Temporality, put_exponential_histogram, put_gauge, put_histogram, put_sum,
};
use lens_otlp::wire::{BYTES, tag};

use super::aggregate::{Deltas, Instrument, Kind, Observed, Point, instruments};
use crate::config::TemporalityPreference;
use crate::enabled::fields;

/// The spans of time that points may cover, and which of them do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cover {
    pub preference: TemporalityPreference,
    /// Since the start of the process.
    pub start_nanos: u64,
    /// Since the last export.
    pub last_nanos: u64,
    pub now_nanos: u64,
}

impl Cover {
    fn deltas(&self, instrument: &Instrument) -> Deltas {
        let (measured, observed) = match self.preference {
            TemporalityPreference::Cumulative => (false, false),
            TemporalityPreference::Delta => (true, true),
            TemporalityPreference::LowMemory => (true, false),
        };
        // One metric has one temporality: totals that are asked for decide it.
        let measured = if instrument.has_callbacks() { observed } else { measured };
        Deltas { measured, observed }
    }

    fn of(&self, instrument: &Instrument) -> (Temporality, Interval) {
        let is_sum = !matches!(instrument.kind, Kind::UpDownCounter | Kind::Gauge);
        let (temporality, start_nanos) = if is_sum && self.deltas(instrument).measured {
            (Temporality::Delta, self.last_nanos)
        } else {
            (Temporality::Cumulative, self.start_nanos)
        };
        (temporality, Interval { start_nanos, end_nanos: self.now_nanos })
    }
}

/// An export request of everything measured; `None` when there is nothing.
pub(super) fn request(resource: &[u8], cover: &Cover) -> Option<Vec<u8>> {
    let mut items = Vec::new();
    for instrument in instruments() {
        let points = instrument.collect(cover.deltas(&instrument));
        if !points.is_empty() {
            put_metric(&mut items, &instrument, cover, &points);
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

fn put_metric(out: &mut Vec<u8>, instrument: &Instrument, cover: &Cover, points: &[Point]) {
    let identity = Identity {
        name: instrument.name,
        unit: instrument.unit,
        description: instrument.description,
    };
    let (temporality, interval) = cover.of(instrument);
    match instrument.kind {
        Kind::Counter => put_sum(out, &identity, interval, temporality, true, numbers(points)),
        Kind::UpDownCounter => {
            put_sum(out, &identity, interval, temporality, false, numbers(points));
        }
        Kind::Gauge => put_gauge(out, &identity, interval, numbers(points)),
        Kind::Histogram(bounds) => {
            if histograms(points).next().is_some() {
                put_histogram(out, &identity, interval, temporality, bounds, histograms(points));
            }
            let keys: Vec<Vec<u8>> = points.iter().map(exponential_attributes).collect();
            if exponentials(points, &keys).next().is_some() {
                let points = exponentials(points, &keys);
                put_exponential_histogram(out, &identity, interval, temporality, points);
            }
        }
    }
}

/// The attributes of a point under the field number that an exponential one has for them.
fn exponential_attributes(point: &Point) -> Vec<u8> {
    let mut attributes = point.attributes.clone();
    let mut at = 0;
    while let Some(field) = fields::first(&attributes[at..]) {
        let len = field.len;
        attributes[at] = tag(EXPONENTIAL_POINT_ATTRIBUTES, BYTES);
        at += len;
    }
    attributes
}

fn exponentials<'a>(
    points: &'a [Point],
    keys: &'a [Vec<u8>],
) -> impl Iterator<Item = ExponentialPoint<'a>> {
    points.iter().zip(keys).filter_map(|(point, attributes)| match &point.value {
        Observed::Exponential(value) => Some(ExponentialPoint {
            attributes,
            count: value.count,
            sum: value.sum,
            scale: value.scale,
            zero_count: value.zero_count,
            positive: &value.positive,
            negative: &value.negative,
            min_max: (value.count > 0).then_some((value.min, value.max)),
            exemplars: &point.exemplars,
        }),
        _ => None,
    })
}

fn numbers(points: &[Point]) -> impl Iterator<Item = NumberPoint<'_>> {
    points.iter().filter_map(|point| {
        let value = match point.value {
            Observed::Int(value) => Number::Int(value),
            Observed::Double(value) => Number::Double(value),
            Observed::Histogram { .. } | Observed::Exponential(_) => return None,
        };
        Some(NumberPoint { attributes: &point.attributes, value, exemplars: &point.exemplars })
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
            exemplars: &point.exemplars,
        }),
        _ => None,
    })
}
