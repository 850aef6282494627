//! Files of log records and of points of metrics: a few columns to ask for, and each record as it came.
//!
//! A metric with several points is one row for each; the first has the metric as it came.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{Array, BinaryViewArray, Int64Array, RecordBatch, StringViewArray};
use bytes::Bytes;
use gym_telemetry::semconv;
use lens_otlp::json::{put_plain_attributes, put_plain_value};
use lens_otlp::metrics::Number;
use lens_otlp::view::logs::LogView;
use lens_otlp::view::metrics::MetricView;
use lens_otlp::view::{AnyValue, Attributes};

use super::SegmentError;
use super::column::Stats;
use super::file::{ColumnFile, column, guarded, next_batch};
use super::schema::VERSION;
use super::table::{Field, Leaf, Table};
use crate::ids::{SpanId, TraceId};
use crate::raw::{Origin, RawLog, RawMetric, RawResource};

const BATCH_ROWS: usize = 1_024;

/// What both tables end with.
fn origin_fields() -> Vec<Field> {
    use Field::Required;
    vec![
        Required("service_name", Leaf::Key, Stats::Chunk),
        Required("resource", Leaf::KeyBytes, Stats::None),
        Required("resource_schema_url", Leaf::Key, Stats::None),
        Required("scope", Leaf::KeyBytes, Stats::None),
        Required("scope_schema_url", Leaf::Key, Stats::None),
        Required("ingest_seq", Leaf::Deltas, Stats::Chunk),
    ]
}

fn version() -> Vec<(String, String)> {
    vec![(lens::semconv::FILE_VERSION.to_owned(), VERSION.to_owned())]
}

fn push_origin<W: Write + Send>(table: &mut Table<W>, from: usize, origin: &Origin, seq: u64) {
    let resource = &origin.resource;
    let service = Attributes::new(&resource.message, 1)
        .filter_map(Result::ok)
        .find(|(key, _)| *key == semconv::SERVICE_NAME);
    let service = match service {
        Some((_, AnyValue::String(name))) => name,
        _ => "",
    };
    let parts: [&[u8]; 5] = [
        service.as_bytes(),
        &resource.message,
        resource.schema_url.as_bytes(),
        &origin.scope,
        origin.schema_url.as_bytes(),
    ];
    for (column, part) in table.columns[from..].iter_mut().zip(parts) {
        column.push_text(part);
    }
    table.columns[from + parts.len()].push_int(seq as i64);
}

fn push_attributes<W: Write + Send>(
    table: &mut Table<W>,
    nth: usize,
    attributes: Attributes<'_>,
) -> Result<(), SegmentError> {
    let mut text = String::new();
    put_plain_attributes(&mut text, attributes)?;
    table.columns[nth].push_text(text.as_bytes());
    Ok(())
}

/// Writes log records in the order of time; returns how many.
///
/// # Errors
///
/// When the medium fails, or a record is malformed.
pub fn write_logs(out: impl Write + Send, logs: &[RawLog]) -> Result<u64, SegmentError> {
    use Field::{Optional, Required};
    let mut fields = vec![
        Required("time_unix_nano", Leaf::Deltas, Stats::Pages),
        Required("severity_number", Leaf::Int, Stats::Chunk),
        Required("severity_text", Leaf::Key, Stats::Chunk),
        Required("event_name", Leaf::Text, Stats::Chunk),
        Required("body", Leaf::Text, Stats::None),
        Required("attributes", Leaf::Text, Stats::None),
        Optional("trace_id".to_owned(), Leaf::PlainText, Stats::None),
        Optional("span_id".to_owned(), Leaf::PlainText, Stats::None),
    ];
    let origin_at = fields.len();
    fields.extend(origin_fields());
    fields.push(Required("otlp", Leaf::PlainBytes, Stats::None));
    let mut table = Table::new(out, "logs", &fields, &[0], version())?;
    for log in logs {
        let view = LogView::read(&log.message)?;
        let row = table.rows;
        table.columns[0].push_int(log.time_nanos as i64);
        table.columns[1].push_int(view.severity_number as i64);
        table.columns[2].push_text(view.severity_text.as_bytes());
        table.columns[3].push_text(view.event_name.as_bytes());
        let mut body = String::new();
        match view.body {
            AnyValue::String(text) => body.push_str(text),
            AnyValue::Empty => {}
            value => put_plain_value(&mut body, &value)?,
        }
        table.columns[4].push_text(body.as_bytes());
        push_attributes(&mut table, 5, view.attributes())?;
        let ids = [log.trace_id.map(|id| id.to_string()), log.span_id.map(|id| id.to_string())];
        for (nth, id) in ids.iter().enumerate() {
            if let Some(id) = id {
                table.columns[6 + nth].push_text(id.as_bytes());
                table.counts[nth].add(row, 1);
            }
        }
        push_origin(&mut table, origin_at, &log.origin, log.ingest_seq);
        table.columns[fields.len() - 1].push_text(&log.message);
        table.end_row()?;
    }
    table.finish()?;
    Ok(logs.len() as u64)
}

/// What a point says, of whatever kind it is.
struct Point<'a> {
    time_nanos: u64,
    /// Of a histogram the sum.
    value: Option<f64>,
    /// Of a histogram.
    count: Option<u64>,
    attributes: Attributes<'a>,
}

fn points<'a>(metric: &MetricView<'a>) -> Result<Vec<Point<'a>>, SegmentError> {
    let mut points = Vec::new();
    for point in metric.number_points() {
        let point = point?;
        let value = point.value.map(|value| match value {
            Number::Int(value) => value as f64,
            Number::Double(value) => value,
        });
        let attributes = point.attributes();
        points.push(Point { time_nanos: point.end_nanos, value, count: None, attributes });
    }
    for point in metric.histogram_points() {
        let point = point?;
        let (value, count, attributes) = (point.sum, Some(point.count), point.attributes());
        points.push(Point { time_nanos: point.end_nanos, value, count, attributes });
    }
    for point in metric.exponential_points() {
        let point = point?;
        let (value, count, attributes) = (point.sum, Some(point.count), point.attributes());
        points.push(Point { time_nanos: point.end_nanos, value, count, attributes });
    }
    if points.is_empty() {
        // A kind that nobody knows here is kept all the same.
        let attributes = Attributes::new(&[], 1);
        points.push(Point { time_nanos: 0, value: None, count: None, attributes });
    }
    Ok(points)
}

/// Writes metrics, one row for each point; returns how many rows.
///
/// # Errors
///
/// When the medium fails, or a metric is malformed.
pub fn write_points(out: impl Write + Send, metrics: &[RawMetric]) -> Result<u64, SegmentError> {
    use Field::{Optional, Required};
    let mut fields = vec![
        Required("time_unix_nano", Leaf::Deltas, Stats::Pages),
        Required("name", Leaf::Key, Stats::Chunk),
        Required("unit", Leaf::Key, Stats::None),
        Required("attributes", Leaf::Text, Stats::None),
        Optional("value".to_owned(), Leaf::Double, Stats::None),
        Optional("count".to_owned(), Leaf::Int, Stats::None),
    ];
    let origin_at = fields.len();
    fields.extend(origin_fields());
    fields.push(Optional("otlp".to_owned(), Leaf::PlainBytes, Stats::None));
    let mut table = Table::new(out, "points", &fields, &[], version())?;
    let mut rows = 0;
    for metric in metrics {
        let view = MetricView::read(&metric.message)?;
        for (nth, point) in points(&view)?.into_iter().enumerate() {
            let row = table.rows;
            table.columns[0].push_int(point.time_nanos as i64);
            table.columns[1].push_text(view.name.as_bytes());
            table.columns[2].push_text(view.unit.as_bytes());
            push_attributes(&mut table, 3, point.attributes)?;
            if let Some(value) = point.value {
                table.columns[4].push_double(value);
                table.counts[0].add(row, 1);
            }
            if let Some(count) = point.count {
                table.columns[5].push_int(count as i64);
                table.counts[1].add(row, 1);
            }
            push_origin(&mut table, origin_at, &metric.origin, metric.ingest_seq);
            if nth == 0 {
                table.columns[fields.len() - 1].push_text(&metric.message);
                table.counts[2].add(row, 1);
            }
            table.end_row()?;
            rows += 1;
        }
    }
    table.finish()?;
    Ok(rows)
}

/// Reads all log records of a file, in its order.
///
/// # Errors
///
/// When the file cannot be read, or is none of log records.
pub fn read_logs(path: &Path) -> Result<Vec<RawLog>, SegmentError> {
    let mut logs = Vec::new();
    read(path, |time_nanos, message, origin, ingest_seq| {
        let view = LogView::read(&message)?;
        let trace_id = TraceId::from_bytes(view.trace_id);
        let span_id = SpanId::from_bytes(view.span_id);
        logs.push(RawLog { time_nanos, trace_id, span_id, message, origin, ingest_seq });
        Ok(())
    })?;
    Ok(logs)
}

/// Reads all metrics of a file, in its order.
///
/// # Errors
///
/// When the file cannot be read, or is none of points.
pub fn read_points(path: &Path) -> Result<Vec<RawMetric>, SegmentError> {
    let mut metrics = Vec::new();
    read(path, |_, message, origin, ingest_seq| {
        let latest = points(&MetricView::read(&message)?)?.iter().map(|p| p.time_nanos).max();
        let time_nanos = latest.unwrap_or(0);
        metrics.push(RawMetric { time_nanos, message, origin, ingest_seq });
        Ok(())
    })?;
    Ok(metrics)
}

type Origins = HashMap<(Bytes, Bytes, Box<str>, Box<str>), Arc<Origin>>;

fn read(
    path: &Path,
    mut take: impl FnMut(u64, Bytes, Arc<Origin>, u64) -> Result<(), SegmentError>,
) -> Result<(), SegmentError> {
    let file = ColumnFile::open(path)?;
    let mut origins = Origins::new();
    let mut batches = file.read_all(BATCH_ROWS)?;
    while let Some(batch) = next_batch(&mut batches)? {
        guarded(|| read_batch(&batch, &mut origins, &mut take))?;
    }
    Ok(())
}

fn read_batch(
    batch: &RecordBatch,
    origins: &mut Origins,
    take: &mut impl FnMut(u64, Bytes, Arc<Origin>, u64) -> Result<(), SegmentError>,
) -> Result<(), SegmentError> {
    let times: &Int64Array = column(batch, "time_unix_nano")?;
    let seqs: &Int64Array = column(batch, "ingest_seq")?;
    let resources: &BinaryViewArray = column(batch, "resource")?;
    let resource_urls: &StringViewArray = column(batch, "resource_schema_url")?;
    let scopes: &BinaryViewArray = column(batch, "scope")?;
    let scope_urls: &StringViewArray = column(batch, "scope_schema_url")?;
    let messages: &BinaryViewArray = column(batch, "otlp")?;
    for row in (0..batch.num_rows()).filter(|row| messages.is_valid(*row)) {
        let bytes = |array: &BinaryViewArray| Bytes::copy_from_slice(array.value(row));
        let key = (
            bytes(resources),
            bytes(scopes),
            resource_urls.value(row).into(),
            scope_urls.value(row).into(),
        );
        let origin = origins.entry(key).or_insert_with_key(|(message, scope, url, scope_url)| {
            let resource = RawResource { message: message.clone(), schema_url: url.clone() };
            let (scope, schema_url) = (scope.clone(), scope_url.clone());
            Arc::new(Origin { resource: Arc::new(resource), scope, schema_url })
        });
        let (time_nanos, seq) = (times.value(row) as u64, seqs.value(row) as u64);
        take(time_nanos, bytes(messages), Arc::clone(origin), seq)?;
    }
    Ok(())
}
