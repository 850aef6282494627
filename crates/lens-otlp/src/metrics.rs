//! Metrics as `ScopeMetrics.metrics` fields.

use crate::wire::{
    BYTES, put_bytes, put_double, put_fixed64, put_message, put_uint, put_varint, tag,
};

/// How values relate to the previous export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temporality {
    /// Since the last export.
    Delta = 1,
    /// Since the start of the process.
    Cumulative = 2,
}

/// The measured value of a sum or gauge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An integer.
    Int(i64),
    /// A double.
    Double(f64),
}

/// One attribute set of a sum or gauge.
#[derive(Clone, Debug)]
pub struct NumberPoint<'a> {
    /// `NumberDataPoint.attributes` fields (number [`POINT_ATTRIBUTES`]).
    pub attributes: &'a [u8],
    /// The value.
    pub value: Number,
}

/// One attribute set of a histogram.
#[derive(Clone, Debug)]
pub struct HistogramPoint<'a> {
    /// `HistogramDataPoint.attributes` fields (number [`HISTOGRAM_POINT_ATTRIBUTES`]).
    pub attributes: &'a [u8],
    /// Values recorded.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
    /// Counts by bucket; one more than bounds.
    pub buckets: &'a [u64],
    /// Smallest and largest value, when there is one.
    pub min_max: Option<(f64, f64)>,
}

/// Field number of `NumberDataPoint.attributes`.
pub const POINT_ATTRIBUTES: u8 = 7;
/// Field number of `HistogramDataPoint.attributes`.
pub const HISTOGRAM_POINT_ATTRIBUTES: u8 = 9;

/// Name, unit and description of a metric.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// Name.
    pub name: &'a str,
    /// UCUM unit.
    pub unit: &'a str,
    /// What is measured.
    pub description: &'a str,
}

/// The span of time that points cover.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    /// Since the epoch.
    pub start_nanos: u64,
    /// Since the epoch.
    pub end_nanos: u64,
}

fn put_identity(out: &mut Vec<u8>, identity: &Identity<'_>) {
    put_bytes(out, 1, identity.name.as_bytes());
    if !identity.description.is_empty() {
        put_bytes(out, 2, identity.description.as_bytes());
    }
    if !identity.unit.is_empty() {
        put_bytes(out, 3, identity.unit.as_bytes());
    }
}

fn put_number_points<'a>(
    out: &mut Vec<u8>,
    interval: Interval,
    points: impl Iterator<Item = NumberPoint<'a>>,
) {
    for point in points {
        put_message(out, 1, |out| {
            put_fixed64(out, 2, interval.start_nanos);
            put_fixed64(out, 3, interval.end_nanos);
            match point.value {
                Number::Double(value) => put_double(out, 4, value),
                Number::Int(value) => put_fixed64(out, 6, value as u64),
            }
            out.extend_from_slice(point.attributes);
        });
    }
}

/// Appends a sum.
pub fn put_sum<'a>(
    out: &mut Vec<u8>,
    identity: &Identity<'_>,
    interval: Interval,
    temporality: Temporality,
    monotonic: bool,
    points: impl Iterator<Item = NumberPoint<'a>>,
) {
    put_message(out, 2, |out| {
        put_identity(out, identity);
        put_message(out, 7, |out| {
            put_number_points(out, interval, points);
            put_uint(out, 2, temporality as u64);
            if monotonic {
                put_uint(out, 3, 1);
            }
        });
    });
}

/// Appends a gauge.
pub fn put_gauge<'a>(
    out: &mut Vec<u8>,
    identity: &Identity<'_>,
    interval: Interval,
    points: impl Iterator<Item = NumberPoint<'a>>,
) {
    put_message(out, 2, |out| {
        put_identity(out, identity);
        put_message(out, 5, |out| put_number_points(out, interval, points));
    });
}

/// Appends a histogram with explicit bounds.
pub fn put_histogram<'a>(
    out: &mut Vec<u8>,
    identity: &Identity<'_>,
    interval: Interval,
    temporality: Temporality,
    bounds: &[f64],
    points: impl Iterator<Item = HistogramPoint<'a>>,
) {
    put_message(out, 2, |out| {
        put_identity(out, identity);
        put_message(out, 9, |out| {
            for point in points {
                put_message(out, 1, |out| put_histogram_point(out, interval, bounds, &point));
            }
            put_uint(out, 2, temporality as u64);
        });
    });
}

fn put_histogram_point(
    out: &mut Vec<u8>,
    interval: Interval,
    bounds: &[f64],
    point: &HistogramPoint<'_>,
) {
    put_fixed64(out, 2, interval.start_nanos);
    put_fixed64(out, 3, interval.end_nanos);
    put_fixed64(out, 4, point.count);
    put_double(out, 5, point.sum);
    out.push(tag(6, BYTES));
    put_varint(out, point.buckets.len() as u64 * 8);
    for count in point.buckets {
        out.extend_from_slice(&count.to_le_bytes());
    }
    out.push(tag(7, BYTES));
    put_varint(out, bounds.len() as u64 * 8);
    for bound in bounds {
        out.extend_from_slice(&bound.to_bits().to_le_bytes());
    }
    out.extend_from_slice(point.attributes);
    if let Some((min, max)) = point.min_max {
        put_double(out, 11, min);
        put_double(out, 12, max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::metrics::{Data, metrics};

    const IDENTITY: Identity<'_> = Identity { name: "m", unit: "ms", description: "d" };
    const INTERVAL: Interval = Interval { start_nanos: 5, end_nanos: 9 };

    #[test]
    fn sum_and_histogram_read_back_as_written() {
        let mut items = Vec::new();
        let point = NumberPoint { attributes: &[], value: Number::Int(-3) };
        put_sum(
            &mut items,
            &IDENTITY,
            INTERVAL,
            Temporality::Cumulative,
            false,
            [point].into_iter(),
        );
        let point = HistogramPoint {
            attributes: &[],
            count: 2,
            sum: 4.5,
            buckets: &[1, 0, 1],
            min_max: Some((0.5, 4.0)),
        };
        let bounds = [1.0, 2.0];
        put_histogram(
            &mut items,
            &IDENTITY,
            INTERVAL,
            Temporality::Cumulative,
            &bounds,
            [point].into_iter(),
        );
        let read = metrics(&items).collect::<Result<Vec<_>, _>>().expect("valid");
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].name, read[0].unit, read[0].description), ("m", "ms", "d"));
        let Data::Sum { monotonic: false, temporality: 2 } = read[0].data else {
            panic!("{:?}", read[0].data)
        };
        let points = read[0].number_points().collect::<Result<Vec<_>, _>>().expect("valid");
        assert_eq!(points[0].value, Some(Number::Int(-3)));
        assert_eq!((points[0].start_nanos, points[0].end_nanos), (5, 9));
        let points = read[1].histogram_points().collect::<Result<Vec<_>, _>>().expect("valid");
        assert_eq!((points[0].count, points[0].sum), (2, Some(4.5)));
        assert_eq!(points[0].buckets().collect::<Vec<_>>(), [1, 0, 1]);
        assert_eq!(points[0].bounds().collect::<Vec<_>>(), bounds);
        assert_eq!((points[0].min, points[0].max), (Some(0.5), Some(4.0)));
    }
}
