//! Metrics as OTLP/JSON: what this crate can encode, so gauges, sums and both kinds of histograms.

use std::fmt::Write as _;

use super::write::{
    comma, put_attributes, put_id, put_list, put_number, put_optional_text, put_request, put_text,
};
use crate::metrics::Number;
use crate::view::Attributes;
use crate::view::metrics::{
    Data, ExemplarView, ExponentialPointView, HistogramPointView, MetricView, NumberPointView,
};
use crate::wire::DecodeError;

/// An `ExportMetricsServiceRequest` as OTLP/JSON. A metric of another kind keeps its name and loses its points.
///
/// # Errors
///
/// When the request is malformed anywhere.
pub fn encode_metrics_request(request: &[u8]) -> Result<String, DecodeError> {
    put_request(request, ["resourceMetrics", "scopeMetrics", "metrics"], put_metric)
}

fn put_metric(out: &mut String, metric: &[u8]) -> Result<(), DecodeError> {
    let metric = MetricView::read(metric)?;
    out.push_str("{\"name\":");
    put_text(out, metric.name);
    put_optional_text(out, "description", metric.description);
    put_optional_text(out, "unit", metric.unit);
    match metric.data {
        Data::Unknown => {}
        Data::Gauge => {
            out.push_str(",\"gauge\":{");
            put_list(out, "dataPoints", metric.number_points(), put_number_point)?;
            out.push('}');
        }
        Data::Sum { monotonic, temporality } => {
            out.push_str(",\"sum\":{");
            put_list(out, "dataPoints", metric.number_points(), put_number_point)?;
            let _ = write!(
                out,
                ",\"aggregationTemporality\":{temporality},\"isMonotonic\":{monotonic}}}"
            );
        }
        Data::Exponential { temporality } => {
            out.push_str(",\"exponentialHistogram\":{");
            put_list(out, "dataPoints", metric.exponential_points(), put_exponential_point)?;
            let _ = write!(out, ",\"aggregationTemporality\":{temporality}}}");
        }
        Data::Histogram { temporality } => {
            out.push_str(",\"histogram\":{");
            put_list(out, "dataPoints", metric.histogram_points(), put_histogram_point)?;
            let _ = write!(out, ",\"aggregationTemporality\":{temporality}}}");
        }
    }
    out.push('}');
    Ok(())
}

fn put_point_head(
    out: &mut String,
    attributes: Attributes<'_>,
    [start_nanos, end_nanos]: [u64; 2],
) -> Result<(), DecodeError> {
    out.push('{');
    put_attributes(out, attributes)?;
    let _ =
        write!(out, ",\"startTimeUnixNano\":\"{start_nanos}\",\"timeUnixNano\":\"{end_nanos}\"");
    Ok(())
}

fn put_number_point(out: &mut String, point: NumberPointView<'_>) -> Result<(), DecodeError> {
    put_point_head(out, point.attributes(), [point.start_nanos, point.end_nanos])?;
    match point.value {
        Some(Number::Int(value)) => {
            let _ = write!(out, ",\"asInt\":\"{value}\"");
        }
        Some(Number::Double(value)) => put_double(out, "asDouble", Some(value)),
        None => {}
    }
    put_exemplars(out, point.exemplars())?;
    out.push('}');
    Ok(())
}

fn put_exemplars<'a>(
    out: &mut String,
    exemplars: impl Iterator<Item = Result<ExemplarView<'a>, DecodeError>>,
) -> Result<(), DecodeError> {
    let mut is_first = true;
    for exemplar in exemplars {
        let exemplar = exemplar?;
        out.push_str(if is_first { ",\"exemplars\":[" } else { "," });
        is_first = false;
        let _ = write!(out, "{{\"timeUnixNano\":\"{}\"", exemplar.time_nanos);
        match exemplar.value {
            Some(Number::Int(value)) => {
                let _ = write!(out, ",\"asInt\":\"{value}\"");
            }
            Some(Number::Double(value)) => put_double(out, "asDouble", Some(value)),
            None => {}
        }
        for (name, id, len) in [("spanId", exemplar.span_id, 8), ("traceId", exemplar.trace_id, 16)]
        {
            let _ = write!(out, ",\"{name}\":\"");
            put_id(out, id, len);
            out.push('"');
        }
        out.push('}');
    }
    if !is_first {
        out.push(']');
    }
    Ok(())
}

fn put_double(out: &mut String, name: &str, value: Option<f64>) {
    if let Some(value) = value {
        let _ = write!(out, ",\"{name}\":");
        put_number(out, value);
    }
}

fn put_histogram_point(out: &mut String, point: HistogramPointView<'_>) -> Result<(), DecodeError> {
    put_point_head(out, point.attributes(), [point.start_nanos, point.end_nanos])?;
    let _ = write!(out, ",\"count\":\"{}\"", point.count);
    put_double(out, "sum", point.sum);
    out.push_str(",\"bucketCounts\":[");
    for (at, count) in point.buckets().enumerate() {
        comma(out, at);
        let _ = write!(out, "\"{count}\"");
    }
    out.push_str("],\"explicitBounds\":[");
    for (at, bound) in point.bounds().enumerate() {
        comma(out, at);
        put_number(out, bound);
    }
    out.push(']');
    put_exemplars(out, point.exemplars())?;
    put_double(out, "min", point.min);
    put_double(out, "max", point.max);
    out.push('}');
    Ok(())
}

fn put_exponential_point(
    out: &mut String,
    point: ExponentialPointView<'_>,
) -> Result<(), DecodeError> {
    put_point_head(out, point.attributes(), [point.start_nanos, point.end_nanos])?;
    let _ = write!(out, ",\"count\":\"{}\"", point.count);
    put_double(out, "sum", point.sum);
    let _ = write!(out, ",\"scale\":{},\"zeroCount\":\"{}\"", point.scale, point.zero_count);
    for (name, buckets) in [("positive", point.positive()?), ("negative", point.negative()?)] {
        let _ = write!(out, ",\"{name}\":{{\"offset\":{},\"bucketCounts\":[", buckets.offset);
        for (at, count) in buckets.counts.iter().enumerate() {
            comma(out, at);
            let _ = write!(out, "\"{count}\"");
        }
        out.push_str("]}");
    }
    put_exemplars(out, point.exemplars())?;
    put_double(out, "min", point.min);
    put_double(out, "max", point.max);
    out.push('}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{Scope, put_key_value, put_request};
    use crate::metrics::{
        Exemplar, ExponentialBuckets, ExponentialPoint, HistogramPoint, Identity, Interval,
        NumberPoint, POINT_ATTRIBUTES, Temporality, put_exponential_histogram, put_gauge,
        put_histogram, put_sum,
    };

    #[test]
    fn metrics_have_the_fields_of_the_specification() {
        let interval = Interval { start_nanos: 1, end_nanos: 2 };
        let identity = |name| Identity { name, unit: "s", description: "d" };
        let mut attributes = Vec::new();
        put_key_value(&mut attributes, POINT_ATTRIBUTES, "k", "v");
        let exemplars =
            [Exemplar { value: Number::Int(4), time_nanos: 3, span: Some(([1; 16], [2; 8])) }; 2];
        let int =
            NumberPoint { attributes: &attributes, value: Number::Int(-3), exemplars: &exemplars };
        let double = NumberPoint { attributes: &[], value: Number::Double(0.5), exemplars: &[] };
        let histogram = HistogramPoint {
            attributes: &[],
            count: 3,
            sum: 4.5,
            buckets: &[1, 2],
            min_max: Some((0.5, 2.0)),
            exemplars: &[],
        };
        let (positive, negative) =
            (ExponentialBuckets { offset: -1, counts: vec![2] }, ExponentialBuckets::default());
        let exponential = ExponentialPoint {
            attributes: &[],
            count: 3,
            sum: 4.5,
            scale: 2,
            zero_count: 1,
            positive: &positive,
            negative: &negative,
            min_max: None,
            exemplars: &[],
        };
        let mut items = Vec::new();
        let cumulative = Temporality::Cumulative;
        put_sum(&mut items, &identity("sum"), interval, cumulative, true, [int].into_iter());
        put_gauge(&mut items, &identity("gauge"), interval, [double].into_iter());
        let points = [histogram].into_iter();
        put_histogram(&mut items, &identity("histogram"), interval, cumulative, &[1.0], points);
        let points = [exponential].into_iter();
        put_exponential_histogram(
            &mut items,
            &identity("exponential"),
            interval,
            Temporality::Delta,
            points,
        );
        let mut request = Vec::new();
        let scope = Scope { name: "gym", version: "1" };
        put_request(&mut request, &[], std::iter::once((scope, items.as_slice())));
        let json = encode_metrics_request(&request).expect("valid request");
        let json: serde_json::Value = serde_json::from_str(&json).expect("valid JSON");

        let times = |mut point: serde_json::Value| {
            point["startTimeUnixNano"] = "1".into();
            point["timeUnixNano"] = "2".into();
            point
        };
        let attribute = serde_json::json!({"key": "k", "value": {"stringValue": "v"}});
        let exemplar = serde_json::json!({
            "timeUnixNano": "3", "asInt": "4", "spanId": "0202020202020202",
            "traceId": "01010101010101010101010101010101",
        });
        let sum = times(serde_json::json!({
            "attributes": [attribute], "asInt": "-3", "exemplars": [exemplar, exemplar],
        }));
        let exponential = times(serde_json::json!({
            "attributes": [], "count": "3", "sum": 4.5, "scale": 2, "zeroCount": "1",
            "positive": {"offset": -1, "bucketCounts": ["2"]},
            "negative": {"offset": 0, "bucketCounts": []},
        }));
        let gauge = times(serde_json::json!({"attributes": [], "asDouble": 0.5}));
        let histogram = times(serde_json::json!({
            "attributes": [], "count": "3", "sum": 4.5, "bucketCounts": ["1", "2"],
            "explicitBounds": [1.0], "min": 0.5, "max": 2.0,
        }));
        let expected = serde_json::json!([
            {
                "name": "sum", "description": "d", "unit": "s",
                "sum": {"dataPoints": [sum], "aggregationTemporality": 2, "isMonotonic": true},
            },
            {"name": "gauge", "description": "d", "unit": "s", "gauge": {"dataPoints": [gauge]}},
            {
                "name": "histogram", "description": "d", "unit": "s",
                "histogram": {"dataPoints": [histogram], "aggregationTemporality": 2},
            },
            {
                "name": "exponential", "description": "d", "unit": "s",
                "exponentialHistogram": {"dataPoints": [exponential], "aggregationTemporality": 1},
            },
        ]);
        assert_eq!(json["resourceMetrics"][0]["scopeMetrics"][0]["metrics"], expected);
    }
}
