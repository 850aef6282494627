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

/// One measurement among those of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar {
    /// The value.
    pub value: Number,
    /// When it was measured, since the epoch.
    pub time_nanos: u64,
    /// Trace and span in which it was measured.
    pub span: Option<([u8; 16], [u8; 8])>,
}

fn put_exemplars(out: &mut Vec<u8>, field: u8, exemplars: &[Exemplar]) {
    for exemplar in exemplars {
        put_message(out, field, |out| {
            put_fixed64(out, 2, exemplar.time_nanos);
            match exemplar.value {
                Number::Double(value) => put_double(out, 3, value),
                Number::Int(value) => put_fixed64(out, 6, value as u64),
            }
            if let Some((trace_id, span_id)) = &exemplar.span {
                put_bytes(out, 4, span_id);
                put_bytes(out, 5, trace_id);
            }
        });
    }
}

/// One attribute set of a sum or gauge.
#[derive(Clone, Debug)]
pub struct NumberPoint<'a> {
    /// `NumberDataPoint.attributes` fields (number [`POINT_ATTRIBUTES`]).
    pub attributes: &'a [u8],
    /// The value.
    pub value: Number,
    /// Some of what was measured.
    pub exemplars: &'a [Exemplar],
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
    /// Some of what was measured.
    pub exemplars: &'a [Exemplar],
}

/// Neighbouring buckets of an exponential histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExponentialBuckets {
    /// Index of the first.
    pub offset: i32,
    /// Counts.
    pub counts: Vec<u64>,
}

/// One attribute set of an exponential histogram: bucket `i` holds what is above `base^i` and not above `base^(i+1)`,
/// where `base` is `2^(2^-scale)`.
#[derive(Clone, Debug)]
pub struct ExponentialPoint<'a> {
    /// `ExponentialHistogramDataPoint.attributes` fields (number [`EXPONENTIAL_POINT_ATTRIBUTES`]).
    pub attributes: &'a [u8],
    /// Values recorded.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
    /// Resolution.
    pub scale: i32,
    /// Values that are zero.
    pub zero_count: u64,
    /// Values above zero.
    pub positive: &'a ExponentialBuckets,
    /// Values below zero, by their absolute value.
    pub negative: &'a ExponentialBuckets,
    /// Smallest and largest value, when there is one.
    pub min_max: Option<(f64, f64)>,
    /// Some of what was measured.
    pub exemplars: &'a [Exemplar],
}

/// Field number of `NumberDataPoint.attributes`.
pub const POINT_ATTRIBUTES: u8 = 7;
/// Field number of `HistogramDataPoint.attributes`.
pub const HISTOGRAM_POINT_ATTRIBUTES: u8 = 9;

/// Field number of `ExponentialHistogramDataPoint.attributes`.
pub const EXPONENTIAL_POINT_ATTRIBUTES: u8 = 1;

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
            put_exemplars(out, 5, point.exemplars);
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
    put_exemplars(out, 8, point.exemplars);
    out.extend_from_slice(point.attributes);
    if let Some((min, max)) = point.min_max {
        put_double(out, 11, min);
        put_double(out, 12, max);
    }
}

/// Appends a histogram with exponential buckets.
pub fn put_exponential_histogram<'a>(
    out: &mut Vec<u8>,
    identity: &Identity<'_>,
    interval: Interval,
    temporality: Temporality,
    points: impl Iterator<Item = ExponentialPoint<'a>>,
) {
    put_message(out, 2, |out| {
        put_identity(out, identity);
        put_message(out, 10, |out| {
            for point in points {
                put_message(out, 1, |out| put_exponential_point(out, interval, &point));
            }
            put_uint(out, 2, temporality as u64);
        });
    });
}

pub(crate) fn zigzag(value: i32) -> u64 {
    u64::from(((value << 1) ^ (value >> 31)) as u32)
}

fn put_exponential_point(out: &mut Vec<u8>, interval: Interval, point: &ExponentialPoint<'_>) {
    out.extend_from_slice(point.attributes);
    put_fixed64(out, 2, interval.start_nanos);
    put_fixed64(out, 3, interval.end_nanos);
    put_fixed64(out, 4, point.count);
    put_double(out, 5, point.sum);
    put_uint(out, 6, zigzag(point.scale));
    put_fixed64(out, 7, point.zero_count);
    for (field, buckets) in [(8, point.positive), (9, point.negative)] {
        put_message(out, field, |out| {
            put_uint(out, 1, zigzag(buckets.offset));
            let mut counts = Vec::with_capacity(buckets.counts.len() * 2);
            for count in &buckets.counts {
                put_varint(&mut counts, *count);
            }
            put_bytes(out, 2, &counts);
        });
    }
    put_exemplars(out, 11, point.exemplars);
    if let Some((min, max)) = point.min_max {
        put_double(out, 12, min);
        put_double(out, 13, max);
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
        let point = NumberPoint { attributes: &[], value: Number::Int(-3), exemplars: &[] };
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
            exemplars: &[],
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

    #[test]
    fn exponential_histogram_and_exemplars_read_back_as_written() {
        let mut items = Vec::new();
        let exemplars =
            [Exemplar { value: Number::Double(3.0), time_nanos: 7, span: Some(([1; 16], [2; 8])) }];
        let (positive, negative) = (
            ExponentialBuckets { offset: -3, counts: vec![1, 0, 300] },
            ExponentialBuckets { offset: 9, counts: vec![2] },
        );
        let point = ExponentialPoint {
            attributes: &[],
            count: 304,
            sum: 4.5,
            scale: -2,
            zero_count: 1,
            positive: &positive,
            negative: &negative,
            min_max: Some((-1.0, 4.0)),
            exemplars: &exemplars,
        };
        let delta = Temporality::Delta;
        put_exponential_histogram(&mut items, &IDENTITY, INTERVAL, delta, [point].into_iter());
        let point = NumberPoint { attributes: &[], value: Number::Int(1), exemplars: &exemplars };
        put_gauge(&mut items, &IDENTITY, INTERVAL, [point].into_iter());
        let read = metrics(&items).collect::<Result<Vec<_>, _>>().expect("valid");
        assert_eq!(read[0].data, Data::Exponential { temporality: 1 });
        let points = read[0].exponential_points().collect::<Result<Vec<_>, _>>().expect("valid");
        let point = points[0];
        assert_eq!((point.count, point.scale, point.zero_count), (304, -2, 1));
        assert_eq!((point.sum, point.min, point.max), (Some(4.5), Some(-1.0), Some(4.0)));
        assert_eq!(point.positive().expect("valid"), positive);
        assert_eq!(point.negative().expect("valid"), negative);
        let seen = point.exemplars().collect::<Result<Vec<_>, _>>().expect("valid");
        assert_eq!((seen[0].time_nanos, seen[0].value), (7, Some(Number::Double(3.0))));
        assert_eq!((seen[0].trace_id, seen[0].span_id), ([1; 16].as_slice(), [2; 8].as_slice()));
        let points = read[1].number_points().collect::<Result<Vec<_>, _>>().expect("valid");
        assert_eq!(points[0].exemplars().count(), 1);
    }
}
