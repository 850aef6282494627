//! One trace in one row: what lists and searches show.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{Array, Int64Array, ListArray, RecordBatch, StringViewArray};

use super::SegmentError;
use super::column::Stats;
use super::file::{ColumnFile, Texts, column, guarded, next_batch, typed};
use super::rebuild::unhex;
use super::schema::VERSION;
use super::table::{Field, Leaf, Table};
use crate::ids::TraceId;
use crate::raw::RawSpan;

/// The spans of one trace in one segment, or in several when rows were merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRow {
    /// Its id.
    pub trace_id: TraceId,
    /// Start of its first span, Unix nanoseconds.
    pub start_nanos: u64,
    /// End of its last span.
    pub end_nanos: u64,
    /// Its spans.
    pub spans: u32,
    /// Those with status ERROR.
    pub errors: u32,
    /// Start of its root: the earliest span without a parent.
    pub root_start_nanos: Option<u64>,
    /// Service of its root, or empty.
    pub root_service: Arc<str>,
    /// Name of its root, or empty.
    pub root_name: Arc<str>,
    /// Services that it went through, sorted.
    pub services: Vec<Arc<str>>,
    /// Its first row in the segment's file of spans; the others follow. Of no use in a merged row.
    pub first_row: u64,
}

impl TraceRow {
    /// A trace of which the first span is known, and not counted yet.
    pub(super) fn starting(span: &RawSpan, first_row: u64) -> Self {
        let none: Arc<str> = "".into();
        Self {
            trace_id: span.trace_id,
            start_nanos: span.start_nanos,
            end_nanos: 0,
            spans: 0,
            errors: 0,
            root_start_nanos: None,
            root_service: Arc::clone(&none),
            root_name: none,
            services: Vec::new(),
            first_row,
        }
    }

    /// Takes up what another segment has of the same trace.
    pub fn merge(&mut self, other: &Self) {
        self.start_nanos = self.start_nanos.min(other.start_nanos);
        self.end_nanos = self.end_nanos.max(other.end_nanos);
        self.spans = self.spans.saturating_add(other.spans);
        self.errors = self.errors.saturating_add(other.errors);
        let is_earlier = match (self.root_start_nanos, other.root_start_nanos) {
            (None, Some(_)) => true,
            (Some(ours), Some(theirs)) => theirs < ours,
            _ => false,
        };
        if is_earlier {
            self.root_start_nanos = other.root_start_nanos;
            self.root_service = Arc::clone(&other.root_service);
            self.root_name = Arc::clone(&other.root_name);
        }
        for service in &other.services {
            if let Err(at) = self.services.binary_search(service) {
                self.services.insert(at, Arc::clone(service));
            }
        }
    }
}

const COLUMNS: [&str; 11] = [
    "trace_id",
    "start_unix_nano",
    "end_unix_nano",
    "span_count",
    "error_count",
    "root_start_unix_nano",
    "root_service",
    "root_name",
    "services",
    "first_row",
    "duration_nano",
];

fn fields() -> Vec<Field> {
    use Field::{Optional, Required};
    let [trace_id, start, end, spans, errors, root_start, service, name, services, first, duration] =
        COLUMNS;
    vec![
        Required(trace_id, Leaf::PlainText, Stats::Pages),
        Required(start, Leaf::Deltas, Stats::Pages),
        Required(end, Leaf::Deltas, Stats::Pages),
        Required(spans, Leaf::Int, Stats::Chunk),
        Required(errors, Leaf::Int, Stats::Chunk),
        Optional(root_start.to_owned(), Leaf::Deltas, Stats::None),
        Required(service, Leaf::Key, Stats::Chunk),
        Required(name, Leaf::Text, Stats::Chunk),
        Field::Values(services, Leaf::Key),
        Required(first, Leaf::Deltas, Stats::None),
        Required(duration, Leaf::Deltas, Stats::Chunk),
    ]
}

/// Writes rows in the order of their trace ids; returns the bytes of the file.
///
/// # Errors
///
/// When the medium fails.
pub fn write_traces(out: impl Write + Send, rows: &[TraceRow]) -> Result<u64, SegmentError> {
    let version = (lens::semconv::FILE_VERSION.to_owned(), VERSION.to_owned());
    let mut table = Table::new(out, "traces", &fields(), &[0], vec![version])?;
    for row in rows {
        let at = table.rows;
        let (columns, counts) = (&mut table.columns, &mut table.counts);
        columns[0].push_text(row.trace_id.to_string().as_bytes());
        columns[1].push_int(row.start_nanos as i64);
        columns[2].push_int(row.end_nanos as i64);
        columns[3].push_int(i64::from(row.spans));
        columns[4].push_int(i64::from(row.errors));
        if let Some(start) = row.root_start_nanos {
            columns[5].push_int(start as i64);
            counts[0].add(at, 1);
        }
        columns[6].push_text(row.root_service.as_bytes());
        columns[7].push_text(row.root_name.as_bytes());
        for service in &row.services {
            columns[8].push_text(service.as_bytes());
            counts[1].add(at, 1);
        }
        columns[9].push_int(row.first_row as i64);
        columns[10].push_int(row.end_nanos.wrapping_sub(row.start_nanos) as i64);
        table.end_row()?;
    }
    table.finish()
}

/// Reads all rows of a file, in the order of their trace ids.
///
/// # Errors
///
/// When the file cannot be read, or is none of traces.
pub fn read_traces(path: &Path) -> Result<Vec<TraceRow>, SegmentError> {
    let file = ColumnFile::open(path)?;
    let mut texts = Texts::default();
    let mut rows = Vec::new();
    let mut batches = file.read_all(BATCH_ROWS)?;
    while let Some(batch) = next_batch(&mut batches)? {
        guarded(|| read_batch(&batch, &mut texts, &mut rows))?;
    }
    Ok(rows)
}

const BATCH_ROWS: usize = 4_096;

fn read_batch(
    batch: &RecordBatch,
    texts: &mut Texts,
    rows: &mut Vec<TraceRow>,
) -> Result<(), SegmentError> {
    let [trace_id, start, end, spans, errors, root_start, service, name, services, first, _] =
        COLUMNS;
    let trace_ids: &StringViewArray = column(batch, trace_id)?;
    let starts: &Int64Array = column(batch, start)?;
    let ends: &Int64Array = column(batch, end)?;
    let span_counts: &Int64Array = column(batch, spans)?;
    let error_counts: &Int64Array = column(batch, errors)?;
    let root_starts: &Int64Array = column(batch, root_start)?;
    let root_services: &StringViewArray = column(batch, service)?;
    let root_names: &StringViewArray = column(batch, name)?;
    let service_lists: &ListArray = column(batch, services)?;
    let service_names: &StringViewArray = typed(service_lists.values(), services)?;
    let first_rows: &Int64Array = column(batch, first)?;
    let offsets = service_lists.value_offsets();
    for row in 0..batch.num_rows() {
        let services = offsets[row] as usize..offsets[row + 1] as usize;
        rows.push(TraceRow {
            trace_id: TraceId::from_bytes(&unhex::<16>(trace_ids.value(row))?)
                .ok_or(SegmentError::Column(trace_id))?,
            start_nanos: starts.value(row) as u64,
            end_nanos: ends.value(row) as u64,
            spans: span_counts.value(row) as u32,
            errors: error_counts.value(row) as u32,
            root_start_nanos: root_starts.is_valid(row).then(|| root_starts.value(row) as u64),
            root_service: texts.get(root_services.value(row)),
            root_name: texts.get(root_names.value(row)),
            services: services.map(|nth| texts.get(service_names.value(nth))).collect(),
            first_row: first_rows.value(row) as u64,
        });
    }
    Ok(())
}
