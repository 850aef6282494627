//! Log records and metrics as they came.

use std::sync::Arc;

use bytes::Bytes;
use lens_otlp::DecodeError;
use lens_otlp::view::logs::LogView;
use lens_otlp::view::metrics::MetricView;
use lens_otlp::view::{Repeated, ScopeView, resources};
use lens_otlp::wire::Fields;

use super::{Origin, RawResource, check_attributes, check_value, slice};
use crate::ids::{SpanId, TraceId};

/// One log record.
#[derive(Clone, Debug)]
pub struct RawLog {
    /// When it happened, else when it was seen; Unix nanoseconds.
    pub time_nanos: u64,
    /// Trace that it belongs to.
    pub trace_id: Option<TraceId>,
    /// Span that it belongs to.
    pub span_id: Option<SpanId>,
    /// Encoded `LogRecord`.
    pub message: Bytes,
    /// Where it comes from.
    pub origin: Arc<Origin>,
    /// Number of the request that it came in.
    pub ingest_seq: u64,
}

/// One metric with its points.
#[derive(Clone, Debug)]
pub struct RawMetric {
    /// Time of its latest point, Unix nanoseconds.
    pub time_nanos: u64,
    /// Encoded `Metric`.
    pub message: Bytes,
    /// Where it comes from.
    pub origin: Arc<Origin>,
    /// Number of the request that it came in.
    pub ingest_seq: u64,
}

/// Fields of a metric that hold its points: gauge, sum, histogram, exponential histogram, summary.
pub(crate) const METRIC_DATA: [u32; 5] = [5, 7, 9, 10, 11];

impl RawMetric {
    /// How many points it has.
    pub fn points(&self) -> usize {
        let data = Fields::new(&self.message).flatten().find_map(|(number, content)| {
            METRIC_DATA.contains(&number).then(|| content.bytes().ok()).flatten()
        });
        data.map_or(0, |data| Repeated::new(data, 1).count())
    }
}

/// The items of a request that can be read, and what is to be said of the others.
#[derive(Clone, Debug)]
pub struct Items<T> {
    /// Those that are kept.
    pub items: Vec<T>,
    /// How many were refused.
    pub refused: u64,
    /// Why the first of them was.
    pub reason: Option<DecodeError>,
}

/// Takes a request of log records apart.
///
/// # Errors
///
/// When the request itself cannot be walked.
pub fn decode_logs(request: &Bytes, ingest_seq: u64) -> Result<Items<RawLog>, DecodeError> {
    decode_items(request, |message, origin| {
        let view = LogView::read(message)?;
        check_attributes(view.attributes())?;
        check_value(view.body)?;
        Ok(RawLog {
            time_nanos: if view.time_nanos == 0 { view.observed_nanos } else { view.time_nanos },
            trace_id: TraceId::from_bytes(view.trace_id),
            span_id: SpanId::from_bytes(view.span_id),
            message: slice(request, message),
            origin: Arc::clone(origin),
            ingest_seq,
        })
    })
}

/// Takes a request of metrics apart.
///
/// # Errors
///
/// When the request itself cannot be walked.
pub fn decode_metrics(request: &Bytes, ingest_seq: u64) -> Result<Items<RawMetric>, DecodeError> {
    decode_items(request, |message, origin| {
        Ok(RawMetric {
            time_nanos: latest_point(&MetricView::read(message)?)?,
            message: slice(request, message),
            origin: Arc::clone(origin),
            ingest_seq,
        })
    })
}

/// Walks all points to their ends.
fn latest_point(metric: &MetricView<'_>) -> Result<u64, DecodeError> {
    let mut latest = 0;
    for point in metric.number_points() {
        let point = point?;
        check_attributes(point.attributes())?;
        latest = latest.max(point.end_nanos);
    }
    for point in metric.histogram_points() {
        let point = point?;
        check_attributes(point.attributes())?;
        latest = latest.max(point.end_nanos);
    }
    for point in metric.exponential_points() {
        let point = point?;
        check_attributes(point.attributes())?;
        point.positive()?;
        point.negative()?;
        latest = latest.max(point.end_nanos);
    }
    Ok(latest)
}

fn decode_items<T>(
    request: &Bytes,
    mut item: impl FnMut(&[u8], &Arc<Origin>) -> Result<T, DecodeError>,
) -> Result<Items<T>, DecodeError> {
    let mut decoded = Items { items: Vec::new(), refused: 0, reason: None };
    for resource in resources(request) {
        let resource = resource?;
        check_attributes(resource.attributes())?;
        let raw = Arc::new(RawResource {
            message: slice(request, resource.resource),
            schema_url: resource.schema_url.into(),
        });
        for scope in resource.scopes() {
            let scope: ScopeView<'_> = scope?;
            check_attributes(scope.attributes())?;
            let origin = Arc::new(Origin {
                resource: Arc::clone(&raw),
                scope: slice(request, scope.scope_message()),
                schema_url: scope.schema_url.into(),
            });
            for message in scope.items() {
                match item(message?, &origin) {
                    Ok(item) => decoded.items.push(item),
                    Err(reason) => {
                        decoded.refused += 1;
                        decoded.reason.get_or_insert(reason);
                    }
                }
            }
        }
    }
    Ok(decoded)
}
