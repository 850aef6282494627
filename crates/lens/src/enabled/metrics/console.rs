//! Metrics as JSON lines on stdout: one line a metric.

use std::fmt::Write as _;

use lens_otlp::json::{put_number, put_plain_attributes, put_text};
use lens_otlp::metrics::Number;
use lens_otlp::view::metrics::{Data, HistogramPointView, MetricView, NumberPointView};
use lens_otlp::view::resources;
use lens_otlp::wire::DecodeError;

use crate::enabled::console::{put_resource, put_scope, put_time, write_lines};

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
    out.push('}');
    Ok(())
}
