//! Metrics as JSON lines on stdout: one line a metric.

use std::fmt::Write as _;

use lens_otlp::json::{put_number, put_plain_attributes, put_text};
use lens_otlp::metrics::Number;
use lens_otlp::view::metrics::{
    Data, ExemplarView, ExponentialPointView, HistogramPointView, MetricView, NumberPointView,
};
use lens_otlp::view::resources;
use lens_otlp::wire::DecodeError;

use crate::enabled::console::{put_id, put_resource, put_scope, put_time, write_lines};

/// Writes an export request to stdout.
pub(super) fn write(request: &[u8]) {
    let mut lines = String::new();
    if put_lines(&mut lines, request).is_ok() {
        // A closed stdout is the program's affair.
        let _ = write_lines(&lines);
    }
}

fn put_lines(out: &mut String, request: &[u8]) -> Result<(), DecodeError> {
    for resource in resources(request) {
        let resource = resource?;
        let mut tail = String::new();
        put_resource(&mut tail, &resource)?;
        for scope in resource.scopes() {
            let scope = scope?;
            for metric in scope.items() {
                put_metric(out, &MetricView::read(metric?)?)?;
                put_scope(out, &scope);
                out.push_str(&tail);
            }
        }
    }
    Ok(())
}

fn put_metric(out: &mut String, metric: &MetricView<'_>) -> Result<(), DecodeError> {
    out.push_str("{\"type\":\"metric\",\"name\":");
    put_text(out, metric.name);
    out.push_str(",\"unit\":");
    put_text(out, metric.unit);
    out.push_str(",\"description\":");
    put_text(out, metric.description);
    let kind = match metric.data {
        Data::Gauge => "gauge",
        Data::Sum { monotonic: true, .. } => "counter",
        Data::Sum { .. } => "up_down_counter",
        Data::Histogram { .. } => "histogram",
        Data::Exponential { .. } => "exponential_histogram",
        Data::Unknown => "unknown",
    };
    let _ = write!(out, ",\"kind\":\"{kind}\",\"points\":[");
    let mut first = true;
    let mut comma = |out: &mut String| {
        if !std::mem::take(&mut first) {
            out.push(',');
        }
    };
    for point in metric.number_points() {
        comma(out);
        put_number_point(out, &point?)?;
    }
    for point in metric.histogram_points() {
        comma(out);
        put_histogram_point(out, &point?)?;
    }
    for point in metric.exponential_points() {
        comma(out);
        put_exponential_point(out, &point?)?;
    }
    out.push(']');
    Ok(())
}

fn put_interval(out: &mut String, start_nanos: u64, end_nanos: u64) {
    out.push_str("\"start_time\":\"");
    put_time(out, start_nanos);
    out.push_str("\",\"time\":\"");
    put_time(out, end_nanos);
    out.push_str("\",");
}

fn put_number_point(out: &mut String, point: &NumberPointView<'_>) -> Result<(), DecodeError> {
    out.push('{');
    put_interval(out, point.start_nanos, point.end_nanos);
    out.push_str("\"value\":");
    match point.value {
        Some(Number::Int(value)) => {
            let _ = write!(out, "{value}");
        }
        Some(Number::Double(value)) => put_number(out, value),
        None => out.push_str("null"),
    }
    out.push_str(",\"attributes\":");
    put_plain_attributes(out, point.attributes())?;
    put_exemplars(out, point.exemplars())?;
    out.push('}');
    Ok(())
}

fn put_histogram_point(
    out: &mut String,
    point: &HistogramPointView<'_>,
) -> Result<(), DecodeError> {
    out.push('{');
    put_interval(out, point.start_nanos, point.end_nanos);
    let _ = write!(out, "\"count\":{}", point.count);
    for (name, value) in [("sum", point.sum), ("min", point.min), ("max", point.max)] {
        if let Some(value) = value {
            let _ = write!(out, ",\"{name}\":");
            put_number(out, value);
        }
    }
    out.push_str(",\"bounds\":[");
    for (at, bound) in point.bounds().enumerate() {
        if at > 0 {
            out.push(',');
        }
        put_number(out, bound);
    }
    out.push_str("],\"buckets\":[");
    for (at, count) in point.buckets().enumerate() {
        if at > 0 {
            out.push(',');
        }
        let _ = write!(out, "{count}");
    }
    out.push_str("],\"attributes\":");
    put_plain_attributes(out, point.attributes())?;
    put_exemplars(out, point.exemplars())?;
    out.push('}');
    Ok(())
}

fn put_exponential_point(
    out: &mut String,
    point: &ExponentialPointView<'_>,
) -> Result<(), DecodeError> {
    out.push('{');
    put_interval(out, point.start_nanos, point.end_nanos);
    let _ = write!(out, "\"count\":{}", point.count);
    for (name, value) in [("sum", point.sum), ("min", point.min), ("max", point.max)] {
        if let Some(value) = value {
            let _ = write!(out, ",\"{name}\":");
            put_number(out, value);
        }
    }
    let _ = write!(out, ",\"scale\":{},\"zero_count\":{}", point.scale, point.zero_count);
    for (name, buckets) in [("positive", point.positive()?), ("negative", point.negative()?)] {
        let counts: Vec<String> = buckets.counts.iter().map(u64::to_string).collect();
        let counts = counts.join(",");
        let _ = write!(out, ",\"{name}\":{{\"offset\":{},\"counts\":[{counts}]}}", buckets.offset);
    }
    out.push_str(",\"attributes\":");
    put_plain_attributes(out, point.attributes())?;
    put_exemplars(out, point.exemplars())?;
    out.push('}');
    Ok(())
}

/// The names differ from those of spans and log records: who looks for the lines of a trace finds no metrics.
fn put_exemplars<'a>(
    out: &mut String,
    exemplars: impl Iterator<Item = Result<ExemplarView<'a>, DecodeError>>,
) -> Result<(), DecodeError> {
    let mut is_first = true;
    for exemplar in exemplars {
        let exemplar = exemplar?;
        out.push_str(if is_first { ",\"exemplars\":[{" } else { ",{" });
        is_first = false;
        for (name, id) in
            [("exemplar_trace_id", exemplar.trace_id), ("exemplar_span_id", exemplar.span_id)]
        {
            if !id.is_empty() {
                put_id(out, name, id);
                out.push(',');
            }
        }
        out.push_str("\"time\":\"");
        put_time(out, exemplar.time_nanos);
        out.push_str("\",\"value\":");
        match exemplar.value {
            Some(Number::Int(value)) => {
                let _ = write!(out, "{value}");
            }
            Some(Number::Double(value)) => put_number(out, value),
            None => out.push_str("null"),
        }
        out.push('}');
    }
    if !is_first {
        out.push(']');
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lens_otlp::encode::{Scope, put_request};
    use lens_otlp::metrics::{
        Exemplar, HistogramPoint, Identity, Interval, NumberPoint, Temporality, put_gauge,
        put_histogram,
    };

    #[test]
    fn metric_is_one_line_without_a_trace_id() {
        let interval = Interval { start_nanos: 0, end_nanos: 1_000_000_000 };
        let identity = |name| Identity { name, unit: "ms", description: "what it is" };
        let mut items = Vec::new();
        let exemplar =
            Exemplar { value: Number::Int(3), time_nanos: 0, span: Some(([1; 16], [2; 8])) };
        let point = NumberPoint {
            attributes: &[],
            value: Number::Double(f64::INFINITY),
            exemplars: &[exemplar],
        };
        put_gauge(&mut items, &identity("g"), interval, [point].into_iter());
        let point = HistogramPoint {
            attributes: &[],
            count: 1,
            sum: 2.0,
            buckets: &[0, 1],
            min_max: Some((2.0, 2.0)),
            exemplars: &[],
        };
        let cumulative = Temporality::Cumulative;
        put_histogram(
            &mut items,
            &identity("h"),
            interval,
            cumulative,
            &[1.0],
            [point].into_iter(),
        );
        let mut request = Vec::new();
        let scope = Scope { name: "lens", version: "" };
        put_request(&mut request, &[], std::iter::once((scope, items.as_slice())));
        let mut out = String::new();
        put_lines(&mut out, &request).expect("valid");
        assert!(!out.contains("\"trace_id\""));
        let lines: Vec<serde_json::Value> =
            out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[0]["type"], &lines[0]["kind"]), (&"metric".into(), &"gauge".into()));
        assert_eq!(lines[0]["points"][0]["value"], "Infinity");
        let told = &lines[0]["points"][0]["exemplars"][0];
        assert_eq!(told["exemplar_trace_id"], "01010101010101010101010101010101");
        assert_eq!(told["value"], 3);
        assert_eq!(lines[1]["points"][0]["buckets"], serde_json::json!([0, 1]));
        assert_eq!(lines[1]["points"][0]["time"], "1970-01-01T00:00:01.000000000Z");
    }
}
