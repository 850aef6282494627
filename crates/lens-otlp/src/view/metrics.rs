//! Metrics of a `ScopeMetrics`.

use super::{Attributes, Repeated};
use crate::metrics::Number;
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
}
