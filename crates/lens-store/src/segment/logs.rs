//! Files of log records, sorted by time.
//!
//! A record is kept as it came in the column `otlp`, beside the columns that people ask for: records are few beside
//! spans, and a second copy of them costs less than a second way to take them apart.

use std::io::Write;
use std::path::Path;

use arrow_array::{BinaryViewArray, Int64Array, RecordBatch};
use bytes::Bytes;
use lens_otlp::json::{put_plain_attributes, put_plain_value};
use lens_otlp::view::AnyValue;
use lens_otlp::view::logs::LogView;

use super::SegmentError;
use super::column::Stats;
use super::file::{ColumnFile, column, guarded, next_batch};
use super::origins::{OriginTexts, fields as origin_fields};
use super::rebuild::Origins;
use super::schema::VERSION;
use super::table::{Field, Leaf, Table};
use crate::ids::{SpanId, TraceId};
use crate::raw::RawLog;

fn fields() -> Vec<Field> {
    use Field::{Optional, Required};
    let mut fields = vec![
        Required("time_unix_nano", Leaf::Deltas, Stats::Pages),
        Required("observed_unix_nano", Leaf::Deltas, Stats::None),
        Required("severity_number", Leaf::Word, Stats::Chunk),
        Required("severity_text", Leaf::Text, Stats::Chunk),
        Required("event_name", Leaf::Text, Stats::Chunk),
        Required("body", Leaf::Text, Stats::None),
        Optional("trace_id".to_owned(), Leaf::PlainText, Stats::Chunk),
        Optional("span_id".to_owned(), Leaf::PlainText, Stats::None),
        Required("attributes", Leaf::Text, Stats::None),
        Required("ingest_seq", Leaf::Deltas, Stats::Chunk),
        Required("otlp", Leaf::PlainBytes, Stats::None),
    ];
    fields.extend(origin_fields());
    fields
}

/// Writes records that are sorted by time; returns how many.
///
/// # Errors
///
/// When the medium fails, when a record is malformed, and when the order is another one.
pub fn write_logs(out: impl Write + Send, logs: &[RawLog]) -> Result<u64, SegmentError> {
    if !logs.is_sorted_by_key(|log| log.time_nanos) {
        return Err(SegmentError::Order);
    }
    let version = (lens::semconv::FILE_VERSION.to_owned(), VERSION.to_owned());
    let mut table = Table::new(out, "logs", &fields(), &[0], vec![version])?;
    let mut origins = OriginTexts::default();
    let mut text = String::new();
    for log in logs {
        let row = table.rows;
        let (columns, counts) = (&mut table.columns, &mut table.counts);
        let view = LogView::read(&log.message)?;
        columns[0].push_int(log.time_nanos as i64);
        columns[1].push_int(view.observed_nanos as i64);
        columns[2].push_int(view.severity_number as i64);
        columns[3].push_text(view.severity_text.as_bytes());
        columns[4].push_text(view.event_name.as_bytes());
        match view.body {
            AnyValue::String(body) => columns[5].push_text(body.as_bytes()),
            AnyValue::Empty => columns[5].push_text(b""),
            body => {
                text.clear();
                put_plain_value(&mut text, &body)?;
                columns[5].push_text(text.as_bytes());
            }
        }
        if let Some(id) = log.trace_id {
            columns[6].push_text(id.to_string().as_bytes());
            counts[0].add(row, 1);
        }
        if let Some(id) = log.span_id {
            columns[7].push_text(id.to_string().as_bytes());
            counts[1].add(row, 1);
        }
        text.clear();
        put_plain_attributes(&mut text, view.attributes())?;
        columns[8].push_text(text.as_bytes());
        columns[9].push_int(log.ingest_seq as i64);
        columns[10].push_text(&log.message);
        origins.put(&log.origin, &mut columns[11..])?;
        table.end_row()?;
    }
    table.finish()?;
    Ok(logs.len() as u64)
}

/// Reads all records of a file, by time.
///
/// # Errors
///
/// When the file cannot be read, or is none of log records.
pub fn read_logs(path: &Path) -> Result<Vec<RawLog>, SegmentError> {
    let file = ColumnFile::open(path)?;
    let (mut origins, mut logs) = (Origins::default(), Vec::new());
    let columns = ["time_unix_nano", "ingest_seq", "otlp", "origin_otlp"];
    let row_groups = (0..file.footer().num_row_groups()).collect();
    let wanted = file.columns(|name| columns.contains(&name));
    let mut batches = file.read(wanted, row_groups, None, 1_024)?;
    while let Some(batch) = next_batch(&mut batches)? {
        guarded(|| read_batch(&batch, &mut origins, &mut logs))?;
    }
    Ok(logs)
}

fn read_batch(
    batch: &RecordBatch,
    origins: &mut Origins,
    logs: &mut Vec<RawLog>,
) -> Result<(), SegmentError> {
    let times: &Int64Array = column(batch, "time_unix_nano")?;
    let seqs: &Int64Array = column(batch, "ingest_seq")?;
    let messages: &BinaryViewArray = column(batch, "otlp")?;
    let from: &BinaryViewArray = column(batch, "origin_otlp")?;
    for row in 0..batch.num_rows() {
        let message = Bytes::copy_from_slice(messages.value(row));
        let view = LogView::read(&message)?;
        logs.push(RawLog {
            time_nanos: times.value(row) as u64,
            trace_id: TraceId::from_bytes(view.trace_id),
            span_id: SpanId::from_bytes(view.span_id),
            origin: origins.get(from.value(row))?,
            ingest_seq: seqs.value(row) as u64,
            message,
        });
    }
    Ok(())
}
