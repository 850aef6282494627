//! Metrics from OTLP/JSON: gauges, sums, both kinds of histograms and summaries.

use serde_json::Value;

use super::{
    Levels, decode_request, double, list, nested, number, put_attributes, put_count, put_id,
    put_text,
};
use crate::metrics::{
    EXPONENTIAL_POINT_ATTRIBUTES, HISTOGRAM_POINT_ATTRIBUTES, POINT_ATTRIBUTES, zigzag,
};
use crate::wire::{
    BYTES, DecodeError, put_bytes, put_double, put_fixed64, put_tag, put_uint, put_varint,
};

/// Number of `SummaryDataPoint.attributes`.
const SUMMARY_POINT_ATTRIBUTES: u8 = 7;

/// Reads an OTLP/JSON metrics request into an encoded `ExportMetricsServiceRequest`.
///
/// # Errors
///
/// When the text is no JSON or a known field has a value of the wrong kind.
pub fn decode_metrics_request(json: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let levels = Levels { resources: "resourceMetrics", scopes: "scopeMetrics", items: "metrics" };
    decode_request(json, &levels, put_metric)
}

/// Appends one data point.
type PutPoint = fn(&mut Vec<u8>, &Value) -> Result<(), DecodeError>;

fn put_metric(out: &mut Vec<u8>, metric: &Value) -> Result<(), DecodeError> {
    const KINDS: [(&str, u8, PutPoint); 5] = [
        ("gauge", 5, put_number_point),
        ("sum", 7, put_number_point),
        ("histogram", 9, put_histogram_point),
        ("exponentialHistogram", 10, put_exponential_point),
        ("summary", 11, put_summary_point),
    ];
    let mut error = None;
    put_text(out, 1, metric, "name")?;
    put_text(out, 2, metric, "description")?;
    put_text(out, 3, metric, "unit")?;
    for (name, field, put_point) in KINDS {
        let Some(data) = metric.get(name).filter(|data| !data.is_null()) else { continue };
        nested(out, field, &mut error, |out| {
            let mut error = None;
            for point in list(data, "dataPoints")? {
                nested(out, 1, &mut error, |out| put_point(out, point));
            }
            let temporality = temporality(data)?;
            if temporality > 0 {
                put_uint(out, 2, temporality);
            }
            if flag(data, "isMonotonic")? {
                put_uint(out, 3, 1);
            }
            error.map_or(Ok(()), Err)
        });
    }
    error.map_or(Ok(()), Err)
}

fn temporality(data: &Value) -> Result<u64, DecodeError> {
    const FIELD: &str = "aggregationTemporality";
    let Some(Value::String(name)) = data.get(FIELD) else { return number(data, FIELD) };
    match name.as_str() {
        "AGGREGATION_TEMPORALITY_UNSPECIFIED" => Ok(0),
        "AGGREGATION_TEMPORALITY_DELTA" => Ok(1),
        "AGGREGATION_TEMPORALITY_CUMULATIVE" => Ok(2),
        _ => Err(DecodeError::Json(FIELD)),
    }
}

fn flag(object: &Value, name: &'static str) -> Result<bool, DecodeError> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(_) => Err(DecodeError::Json(name)),
    }
}

/// A signed number, or one in a string.
fn signed(object: &Value, name: &'static str) -> Result<i64, DecodeError> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(0),
        Some(Value::String(text)) => text.parse().map_err(|_| DecodeError::Json(name)),
        Some(value) => value.as_i64().ok_or(DecodeError::Json(name)),
    }
}

fn put_zigzag(
    out: &mut Vec<u8>,
    field: u8,
    object: &Value,
    name: &'static str,
) -> Result<(), DecodeError> {
    let value = i32::try_from(signed(object, name)?).map_err(|_| DecodeError::Json(name))?;
    put_uint(out, field, zigzag(value));
    Ok(())
}

/// A double, if there is one.
fn put_optional_double(
    out: &mut Vec<u8>,
    field: u8,
    object: &Value,
    name: &'static str,
) -> Result<(), DecodeError> {
    if let Some(value) = object.get(name).filter(|value| !value.is_null()) {
        put_double(out, field, double(value)?);
    }
    Ok(())
}

fn put_times(out: &mut Vec<u8>, point: &Value) -> Result<(), DecodeError> {
    put_fixed64(out, 2, number(point, "startTimeUnixNano")?);
    put_fixed64(out, 3, number(point, "timeUnixNano")?);
    Ok(())
}

/// `asDouble` or `asInt`.
fn put_either(
    out: &mut Vec<u8>,
    object: &Value,
    [double_field, int_field]: [u8; 2],
) -> Result<(), DecodeError> {
    put_optional_double(out, double_field, object, "asDouble")?;
    if object.get("asInt").is_some_and(|value| !value.is_null()) {
        put_fixed64(out, int_field, signed(object, "asInt")? as u64);
    }
    Ok(())
}

fn put_exemplars(out: &mut Vec<u8>, field: u8, point: &Value) -> Result<(), DecodeError> {
    let mut error = None;
    for exemplar in list(point, "exemplars")? {
        nested(out, field, &mut error, |out| {
            put_fixed64(out, 2, number(exemplar, "timeUnixNano")?);
            put_either(out, exemplar, [3, 6])?;
            put_id(out, 4, exemplar, "spanId", 8)?;
            put_id(out, 5, exemplar, "traceId", 16)
        });
    }
    error.map_or(Ok(()), Err)
}

fn put_number_point(out: &mut Vec<u8>, point: &Value) -> Result<(), DecodeError> {
    put_times(out, point)?;
    put_either(out, point, [4, 6])?;
    put_exemplars(out, 5, point)?;
    put_attributes(out, POINT_ATTRIBUTES, point)?;
    put_count(out, 8, point, "flags")
}

/// Packed numbers of eight bytes each.
fn put_packed(
    out: &mut Vec<u8>,
    field: u32,
    values: &[Value],
    bits: impl Fn(&Value) -> Result<u64, DecodeError>,
) -> Result<(), DecodeError> {
    put_tag(out, field, BYTES);
    put_varint(out, values.len() as u64 * 8);
    for value in values {
        out.extend_from_slice(&bits(value)?.to_le_bytes());
    }
    Ok(())
}

/// A count that is an element of a list.
fn count(value: &Value) -> Result<u64, DecodeError> {
    let count = match value {
        Value::String(text) => text.parse().ok(),
        value => value.as_u64(),
    };
    count.ok_or(DecodeError::Json("bucketCounts"))
}

fn put_histogram_point(out: &mut Vec<u8>, point: &Value) -> Result<(), DecodeError> {
    put_times(out, point)?;
    put_fixed64(out, 4, number(point, "count")?);
    put_optional_double(out, 5, point, "sum")?;
    put_packed(out, 6, list(point, "bucketCounts")?, count)?;
    put_packed(out, 7, list(point, "explicitBounds")?, |bound| double(bound).map(f64::to_bits))?;
    put_exemplars(out, 8, point)?;
    put_attributes(out, HISTOGRAM_POINT_ATTRIBUTES, point)?;
    put_count(out, 10, point, "flags")?;
    put_optional_double(out, 11, point, "min")?;
    put_optional_double(out, 12, point, "max")
}

fn put_exponential_point(out: &mut Vec<u8>, point: &Value) -> Result<(), DecodeError> {
    let mut error = None;
    put_attributes(out, EXPONENTIAL_POINT_ATTRIBUTES, point)?;
    put_times(out, point)?;
    put_fixed64(out, 4, number(point, "count")?);
    put_optional_double(out, 5, point, "sum")?;
    put_zigzag(out, 6, point, "scale")?;
    put_fixed64(out, 7, number(point, "zeroCount")?);
    for (field, name) in [(8, "positive"), (9, "negative")] {
        let Some(buckets) = point.get(name).filter(|buckets| buckets.is_object()) else {
            continue;
        };
        nested(out, field, &mut error, |out| {
            put_zigzag(out, 1, buckets, "offset")?;
            let mut counts = Vec::new();
            for value in list(buckets, "bucketCounts")? {
                put_varint(&mut counts, count(value)?);
            }
            put_bytes(out, 2, &counts);
            Ok(())
        });
    }
    put_count(out, 10, point, "flags")?;
    put_exemplars(out, 11, point)?;
    put_optional_double(out, 12, point, "min")?;
    put_optional_double(out, 13, point, "max")?;
    put_optional_double(out, 14, point, "zeroThreshold")?;
    error.map_or(Ok(()), Err)
}

fn put_summary_point(out: &mut Vec<u8>, point: &Value) -> Result<(), DecodeError> {
    let mut error = None;
    put_times(out, point)?;
    put_fixed64(out, 4, number(point, "count")?);
    put_optional_double(out, 5, point, "sum")?;
    for quantile in list(point, "quantileValues")? {
        nested(out, 6, &mut error, |out| {
            put_optional_double(out, 1, quantile, "quantile")?;
            put_optional_double(out, 2, quantile, "value")
        });
    }
    put_attributes(out, SUMMARY_POINT_ATTRIBUTES, point)?;
    put_count(out, 8, point, "flags")?;
    error.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{Scope, put_key_value, put_request};
    use crate::json::encode_metrics_request;
    use crate::metrics::{
        Exemplar, ExponentialBuckets, ExponentialPoint, HistogramPoint, Identity, Interval, Number,
        NumberPoint, Temporality, put_exponential_histogram, put_gauge, put_histogram, put_sum,
    };
    use crate::view::metrics::{Data, metrics};

    #[test]
    fn metrics_of_every_kind_survive_json_and_back() {
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
            scale: -2,
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
        let delta = Temporality::Delta;
        put_exponential_histogram(&mut items, &identity("exponential"), interval, delta, points);
        let mut request = Vec::new();
        let scope = Scope { name: "gym", version: "1" };
        put_request(&mut request, &[], std::iter::once((scope, items.as_slice())));
        let json = encode_metrics_request(&request).unwrap();
        assert_eq!(decode_metrics_request(json.as_bytes()), Ok(request));
    }

    #[test]
    fn lenient_forms_of_other_senders_are_read() {
        let json = serde_json::json!({
            "name": "m",
            "sum": {
                "aggregationTemporality": "AGGREGATION_TEMPORALITY_DELTA",
                "dataPoints": [{"asInt": 5, "timeUnixNano": 7}, {"asDouble": "NaN"}, {"asDouble": 2}],
            },
        });
        let mut metric = Vec::new();
        put_metric(&mut metric, &json).unwrap();
        let mut items = Vec::new();
        put_bytes(&mut items, 2, &metric);
        let read = metrics(&items).next().unwrap().unwrap();
        assert_eq!(read.data, Data::Sum { monotonic: false, temporality: 1 });
        let points: Vec<_> = read.number_points().map(|point| point.unwrap().value).collect();
        assert_eq!(points[0], Some(Number::Int(5)));
        assert!(matches!(points[1], Some(Number::Double(value)) if value.is_nan()));
        assert_eq!(points[2], Some(Number::Double(2.0)));
    }

    #[test]
    fn wrong_values_are_errors_wherever_they_are() {
        for json in [
            r#"{"name":3}"#,
            r#"{"sum":{"dataPoints":3}}"#,
            r#"{"sum":{"dataPoints":[{"asInt":"x"}]}}"#,
            r#"{"sum":{"isMonotonic":1}}"#,
            r#"{"histogram":{"dataPoints":[{"bucketCounts":["-1"]}]}}"#,
            r#"{"histogram":{"dataPoints":[{"explicitBounds":[null]}]}}"#,
            r#"{"exponentialHistogram":{"dataPoints":[{"scale":4294967296}]}}"#,
            r#"{"exponentialHistogram":{"dataPoints":[{"positive":{"bucketCounts":[{}]}}]}}"#,
            r#"{"gauge":{"dataPoints":[{"exemplars":[{"spanId":"base64=="}]}]}}"#,
            r#"{"gauge":{"aggregationTemporality":"NEVER"}}"#,
        ] {
            let json: Value = serde_json::from_str(json).unwrap();
            assert!(put_metric(&mut Vec::new(), &json).is_err(), "{json}");
        }
    }
}
