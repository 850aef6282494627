//! Points of sums and gauges as received.

use std::collections::BTreeMap;
use std::sync::Arc;

use lens_otlp::DecodeError;
use lens_otlp::metrics::Number;
use lens_otlp::view::metrics::MetricView;
use lens_otlp::view::resources;
use serde_json::Value;

use crate::collected::{hex, read_attributes};

/// One point of a sum or gauge.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectedNumber {
    /// Name of the metric.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// The value; integers become floats.
    pub value: f64,
    /// By key.
    pub attributes: BTreeMap<String, Value>,
    /// Ids of the spans in which it was measured, as far as it tells.
    pub exemplar_spans: Vec<String>,
    /// Of the process.
    pub resource: Arc<BTreeMap<String, Value>>,
}

/// Reads the sums and gauges of an encoded `ExportMetricsServiceRequest`.
///
/// # Errors
///
/// When anything in it is malformed.
pub fn decode_numbers(request: &[u8]) -> Result<Vec<CollectedNumber>, DecodeError> {
    let mut numbers = Vec::new();
    for resource in resources(request) {
        let resource = resource?;
        let of_process = Arc::new(read_attributes(resource.attributes())?.0);
        for scope in resource.scopes() {
            for metric in scope?.items() {
                let metric = MetricView::read(metric?)?;
                for point in metric.number_points() {
                    let point = point?;
                    let mut exemplar_spans = Vec::new();
                    for exemplar in point.exemplars() {
                        exemplar_spans.push(hex(exemplar?.span_id));
                    }
                    numbers.push(CollectedNumber {
                        name: metric.name.to_owned(),
                        unit: metric.unit.to_owned(),
                        value: match point.value {
                            Some(Number::Int(value)) => value as f64,
                            Some(Number::Double(value)) => value,
                            None => f64::NAN,
                        },
                        attributes: read_attributes(point.attributes())?.0,
                        exemplar_spans,
                        resource: Arc::clone(&of_process),
                    });
                }
            }
        }
    }
    Ok(numbers)
}
