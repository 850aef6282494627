//! Metrics of a `ScopeMetrics`.

use super::{Attributes, Repeated};
use crate::metrics::{ExponentialBuckets, Number};
use crate::wire::{Content, DecodeError, Fields};

/// Walks `ScopeMetrics.metrics` fields.
pub fn metrics(items: &[u8]) -> impl Iterator<Item = Result<MetricView<'_>, DecodeError>> {
    Repeated::new(items, 2).map(|message| MetricView::read(message?))
}

/// What kind of metric it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Nothing known to this reader.
    Unknown,
    /// Last values.
    Gauge,
    /// A sum.
    Sum {
        /// Only grows.
        monotonic: bool,
        /// 1 delta, 2 cumulative.
        temporality: u64,
    },
    /// A histogram with explicit bounds.
    Histogram {
        /// 1 delta, 2 cumulative.
        temporality: u64,
    },
    /// A histogram with exponential buckets.
    Exponential {
        /// 1 delta, 2 cumulative.
        temporality: u64,
    },
}

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct MetricView<'a> {
    /// Name.
    pub name: &'a str,
    /// What is measured.
    pub description: &'a str,
    /// UCUM unit.
    pub unit: &'a str,
    /// Its kind.
    pub data: Data,
    points: &'a [u8],
}

impl<'a> MetricView<'a> {
    /// Reads an encoded `Metric`.
    ///
    /// # Errors
    ///
    /// When the message's own fields are malformed.
    pub fn read(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut view =
            Self { name: "", description: "", unit: "", data: Data::Unknown, points: &[] };
        for field in Fields::new(message) {
            match field? {
                (1, content) => view.name = content.text()?,
                (2, content) => view.description = content.text()?,
                (3, content) => view.unit = content.text()?,
                (5, content) => (view.data, view.points) = (Data::Gauge, content.bytes()?),
                (7, content) => {
                    view.points = content.bytes()?;
                    let (temporality, monotonic) = read_aggregation(view.points)?;
                    view.data = Data::Sum { monotonic, temporality };
                }
                (9, content) => {
                    view.points = content.bytes()?;
                    let (temporality, _) = read_aggregation(view.points)?;
                    view.data = Data::Histogram { temporality };
                }
                (10, content) => {
                    view.points = content.bytes()?;
                    let (temporality, _) = read_aggregation(view.points)?;
                    view.data = Data::Exponential { temporality };
                }
                _ => {}
            }
        }
        Ok(view)
    }

    /// Points of a sum or gauge.
    pub fn number_points(
        &self,
    ) -> impl Iterator<Item = Result<NumberPointView<'a>, DecodeError>> + use<'a> {
        let points =
            if matches!(self.data, Data::Gauge | Data::Sum { .. }) { self.points } else { &[] };
        Repeated::new(points, 1).map(|message| NumberPointView::read(message?))
    }

    /// Points of a histogram.
    pub fn histogram_points(
        &self,
    ) -> impl Iterator<Item = Result<HistogramPointView<'a>, DecodeError>> + use<'a> {
        let points = if matches!(self.data, Data::Histogram { .. }) { self.points } else { &[] };
        Repeated::new(points, 1).map(|message| HistogramPointView::read(message?))
    }

    /// Points of an exponential histogram.
    pub fn exponential_points(
        &self,
    ) -> impl Iterator<Item = Result<ExponentialPointView<'a>, DecodeError>> + use<'a> {
        let points = if matches!(self.data, Data::Exponential { .. }) { self.points } else { &[] };
        Repeated::new(points, 1).map(|message| ExponentialPointView::read(message?))
    }
}

/// One measurement among those of a point.
#[derive(Clone, Copy, Debug)]
pub struct ExemplarView<'a> {
    /// When it was measured, since the epoch.
    pub time_nanos: u64,
    /// The value.
    pub value: Option<Number>,
    /// 16 bytes, or empty.
    pub trace_id: &'a [u8],
    /// 8 bytes, or empty.
    pub span_id: &'a [u8],
}

impl<'a> ExemplarView<'a> {
    fn read(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut view = Self { time_nanos: 0, value: None, trace_id: &[], span_id: &[] };
        for field in Fields::new(message) {
            match field? {
                (2, content) => view.time_nanos = content.fixed64()?,
                (3, content) => {
                    view.value = Some(Number::Double(f64::from_bits(content.fixed64()?)));
                }
                (4, content) => view.span_id = content.bytes()?,
                (5, content) => view.trace_id = content.bytes()?,
                (6, content) => view.value = Some(Number::Int(content.fixed64()? as i64)),
                _ => {}
            }
        }
        Ok(view)
    }
}

fn exemplars(
    message: &[u8],
    field: u32,
) -> impl Iterator<Item = Result<ExemplarView<'_>, DecodeError>> {
    Repeated::new(message, field).map(|message| ExemplarView::read(message?))
}

/// One attribute set of an exponential histogram.
#[derive(Clone, Copy, Debug)]
pub struct ExponentialPointView<'a> {
    message: &'a [u8],
    /// Since the epoch.
    pub start_nanos: u64,
    /// Since the epoch.
    pub end_nanos: u64,
    /// Values recorded.
    pub count: u64,
    /// Their sum.
    pub sum: Option<f64>,
    /// Resolution: the base is `2^(2^-scale)`.
    pub scale: i32,
    /// Values that are zero.
    pub zero_count: u64,
    /// Smallest value.
    pub min: Option<f64>,
    /// Largest value.
    pub max: Option<f64>,
    positive: &'a [u8],
    negative: &'a [u8],
}

fn unzigzag(value: u64) -> i32 {
    let value = value as u32;
    (value >> 1) as i32 ^ -((value & 1) as i32)
}

fn read_buckets(message: &[u8]) -> Result<ExponentialBuckets, DecodeError> {
    let mut buckets = ExponentialBuckets::default();
    for field in Fields::new(message) {
        match field? {
            (1, content) => buckets.offset = unzigzag(content.varint()?),
            // Only the packed form is read; no sender writes the other.
            (2, content) => {
                let (mut count, mut shift) = (0_u64, 0);
                for byte in content.bytes()? {
                    count |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
                    shift += 7;
                    if byte & 0x80 == 0 {
                        buckets.counts.push(count);
                        (count, shift) = (0, 0);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(buckets)
}

impl<'a> ExponentialPointView<'a> {
    fn read(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut view = Self {
            message,
            start_nanos: 0,
            end_nanos: 0,
            count: 0,
            sum: None,
            scale: 0,
            zero_count: 0,
            min: None,
            max: None,
            positive: &[],
            negative: &[],
        };
        let double = |content: Content<'_>| content.fixed64().map(f64::from_bits);
        for field in Fields::new(message) {
            match field? {
                (2, content) => view.start_nanos = content.fixed64()?,
                (3, content) => view.end_nanos = content.fixed64()?,
                (4, content) => view.count = content.fixed64()?,
                (5, content) => view.sum = Some(double(content)?),
                (6, content) => view.scale = unzigzag(content.varint()?),
                (7, content) => view.zero_count = content.fixed64()?,
                (8, content) => view.positive = content.bytes()?,
                (9, content) => view.negative = content.bytes()?,
                (12, content) => view.min = Some(double(content)?),
                (13, content) => view.max = Some(double(content)?),
                _ => {}
            }
        }
        Ok(view)
    }

    /// Values above zero.
    ///
    /// # Errors
    ///
    /// When the message is malformed.
    pub fn positive(&self) -> Result<ExponentialBuckets, DecodeError> {
        read_buckets(self.positive)
    }

    /// Values below zero.
    ///
    /// # Errors
    ///
    /// When the message is malformed.
    pub fn negative(&self) -> Result<ExponentialBuckets, DecodeError> {
        read_buckets(self.negative)
    }

    /// Attributes of the point.
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes::new(self.message, 1)
    }

    /// Some of what was measured.
    pub fn exemplars(&self) -> impl Iterator<Item = Result<ExemplarView<'a>, DecodeError>> {
        exemplars(self.message, 11)
    }
}

fn read_aggregation(message: &[u8]) -> Result<(u64, bool), DecodeError> {
    let mut found = (0, false);
    for field in Fields::new(message) {
        match field? {
            (2, content) => found.0 = content.varint()?,
            (3, content) => found.1 = content.varint()? != 0,
            _ => {}
        }
    }
    Ok(found)
}

/// One attribute set of a sum or gauge.
#[derive(Clone, Copy, Debug)]
pub struct NumberPointView<'a> {
    message: &'a [u8],
    /// Since the epoch.
    pub start_nanos: u64,
    /// Since the epoch.
    pub end_nanos: u64,
    /// The value.
    pub value: Option<Number>,
}

impl<'a> NumberPointView<'a> {
    fn read(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut view = Self { message, start_nanos: 0, end_nanos: 0, value: None };
        for field in Fields::new(message) {
            match field? {
                (2, content) => view.start_nanos = content.fixed64()?,
                (3, content) => view.end_nanos = content.fixed64()?,
                (4, content) => {
                    view.value = Some(Number::Double(f64::from_bits(content.fixed64()?)));
                }
                (6, content) => view.value = Some(Number::Int(content.fixed64()? as i64)),
                _ => {}
            }
        }
        Ok(view)
    }

    /// Attributes of the point.
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes::new(self.message, 7)
    }

    /// Some of what was measured.
    pub fn exemplars(&self) -> impl Iterator<Item = Result<ExemplarView<'a>, DecodeError>> {
        exemplars(self.message, 5)
    }
}

/// One attribute set of a histogram.
#[derive(Clone, Copy, Debug)]
pub struct HistogramPointView<'a> {
    message: &'a [u8],
    /// Since the epoch.
    pub start_nanos: u64,
    /// Since the epoch.
    pub end_nanos: u64,
    /// Values recorded.
    pub count: u64,
    /// Their sum.
    pub sum: Option<f64>,
    /// Smallest value.
    pub min: Option<f64>,
    /// Largest value.
    pub max: Option<f64>,
    buckets: &'a [u8],
    bounds: &'a [u8],
}

impl<'a> HistogramPointView<'a> {
    fn read(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut view = Self {
            message,
            start_nanos: 0,
            end_nanos: 0,
            count: 0,
            sum: None,
            min: None,
            max: None,
            buckets: &[],
            bounds: &[],
        };
        let double = |content: Content<'_>| content.fixed64().map(f64::from_bits);
        for field in Fields::new(message) {
            match field? {
                (2, content) => view.start_nanos = content.fixed64()?,
                (3, content) => view.end_nanos = content.fixed64()?,
                (4, content) => view.count = content.fixed64()?,
                (5, content) => view.sum = Some(double(content)?),
                // Only the packed form is read; no sender writes the other.
                (6, content) => view.buckets = content.bytes()?,
                (7, content) => view.bounds = content.bytes()?,
                (11, content) => view.min = Some(double(content)?),
                (12, content) => view.max = Some(double(content)?),
                _ => {}
            }
        }
        Ok(view)
    }

    /// Counts by bucket; one more than bounds.
    pub fn buckets(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.buckets.as_chunks::<8>().0.iter().map(|chunk| u64::from_le_bytes(*chunk))
    }

    /// Upper bounds of the buckets but the last.
    pub fn bounds(&self) -> impl Iterator<Item = f64> + use<'a> {
        self.bounds.as_chunks::<8>().0.iter().map(|chunk| f64::from_le_bytes(*chunk))
    }

    /// Attributes of the point.
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes::new(self.message, 9)
    }

    /// Some of what was measured.
    pub fn exemplars(&self) -> impl Iterator<Item = Result<ExemplarView<'a>, DecodeError>> {
        exemplars(self.message, 8)
    }
}
