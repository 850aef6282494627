//! Writes a file of spans.

use std::borrow::Borrow;
use std::fmt;
use std::io::Write;
use std::sync::Arc;

use super::SegmentError;
use super::schema::{VERSION, fields, leaf, promoted_json};
use super::span_columns::{Walked, Walker};
use super::table::{Gatherer, Table};
use super::traces::TraceRow;
use crate::ids::TraceId;
use crate::raw::{RawSpan, fetch};

const DAY_NANOS: u64 = 86_400_000_000_000;

/// How a file of spans is written.
#[derive(Clone, Debug, Default)]
pub struct SpanOptions {
    /// Days since the epoch of the `date=` that the file belongs to. Spans that start on another day are there
    /// because their time cannot be believed, and are marked.
    pub day: Option<u64>,
}

/// What a file of spans holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanFacts {
    /// Spans.
    pub rows: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Earliest start, Unix nanoseconds; of spans whose time is believed, if there are any.
    pub min_start_nanos: u64,
    /// Latest end of the same.
    pub max_end_nanos: u64,
    /// Lowest request number.
    pub min_ingest_seq: u64,
    /// Highest request number.
    pub max_ingest_seq: u64,
    /// Traces in the order of the file.
    pub traces: Vec<TraceRow>,
}

impl SpanFacts {
    /// Least and greatest trace id.
    pub fn trace_ids(&self) -> Option<(TraceId, TraceId)> {
        Some((self.traces.first()?.trace_id, self.traces.last()?.trace_id))
    }
}

/// Writes spans that are sorted by (trace id, start).
///
/// # Errors
///
/// When the medium fails, when a span is malformed, and when the order is another one.
pub fn write_spans(
    out: impl Write + Send,
    spans: &[RawSpan],
    options: &SpanOptions,
) -> Result<SpanFacts, SegmentError> {
    let mut writer = SpanWriter::new(out, options)?;
    writer.push(spans)?;
    writer.finish()
}

/// Spans whose messages are fetched into the cache together.
const FETCHED: usize = 16;

/// The memory that writing a file takes, for the next file: that of columns is 192 MiB at most.
#[derive(Default)]
pub struct SpanBuffers {
    gatherer: Option<Gatherer>,
    walker: Walker,
}

impl SpanBuffers {
    /// Whether the next file finds anything there.
    pub fn holds_memory(&self) -> bool {
        self.gatherer.is_some()
    }
}

impl fmt::Debug for SpanBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpanBuffers").field("holds_memory", &self.holds_memory()).finish()
    }
}

/// Writes spans as they come, in the order of (trace id, start). Holds one row group in memory, about 100 MiB at most.
pub struct SpanWriter<W: Write + Send> {
    table: Table<W>,
    walker: Walker,
    options: SpanOptions,
    facts: SpanFacts,
    last: Option<(TraceId, u64)>,
    /// Places in the walker's services of the trace that is being written.
    services: Vec<usize>,
    has_believed: bool,
}

impl<W: Write + Send> fmt::Debug for SpanWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpanWriter").field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl<W: Write + Send> SpanWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    ///
    /// When the medium fails.
    pub fn new(out: W, options: &SpanOptions) -> Result<Self, SegmentError> {
        Self::with(SpanBuffers::default(), out, options)
    }

    /// Begins a file with the memory of another that is finished.
    ///
    /// # Errors
    ///
    /// When the medium fails.
    pub fn with(buffers: SpanBuffers, out: W, options: &SpanOptions) -> Result<Self, SegmentError> {
        let metadata = vec![
            (lens::semconv::FILE_VERSION.to_owned(), VERSION.to_owned()),
            (lens::semconv::FILE_PROMOTED.to_owned(), promoted_json()),
        ];
        let sorted_by = [leaf::TRACE_ID as i32, leaf::START as i32];
        let fields = fields();
        let gatherer = buffers.gatherer.map_or_else(|| Gatherer::new(&fields), Ok)?;
        Ok(Self {
            table: Table::with(gatherer, out, "spans", &fields, &sorted_by, metadata)?,
            walker: buffers.walker,
            options: options.clone(),
            facts: SpanFacts { min_ingest_seq: u64::MAX, ..SpanFacts::default() },
            last: None,
            services: Vec::new(),
            has_believed: false,
        })
    }

    /// Adds spans; several are quicker than one by one.
    ///
    /// # Errors
    ///
    /// When the medium fails, when a span is malformed, and when one belongs before the one before it.
    pub fn push(&mut self, spans: &[impl Borrow<RawSpan>]) -> Result<(), SegmentError> {
        for spans in spans.chunks(FETCHED) {
            fetch(spans);
            for span in spans {
                self.add(span.borrow())?;
            }
        }
        Ok(())
    }

    fn add(&mut self, span: &RawSpan) -> Result<(), SegmentError> {
        let place = (span.trace_id, span.start_nanos);
        if self.last.is_some_and(|last| last > place) {
            return Err(SegmentError::Order);
        }
        let is_new = self.last.is_none_or(|(trace_id, _)| trace_id != span.trace_id);
        self.last = Some(place);
        let is_suspect = self.options.day.is_some_and(|day| span.start_nanos / DAY_NANOS != day);
        if is_new {
            self.end_trace();
            self.facts.traces.push(TraceRow::starting(span, self.table.total_rows()));
        }
        let walked = self.walker.walk(span, is_suspect, &mut self.table)?;
        self.add_to_trace(span, &walked);
        self.add_to_facts(span, &walked, is_suspect);
        if self.table.end_row()? {
            self.walker.end_row_group();
        }
        Ok(())
    }

    fn add_to_trace(&mut self, span: &RawSpan, walked: &Walked) {
        let Some(row) = self.facts.traces.last_mut() else { return };
        row.end_nanos = row.end_nanos.max(walked.end_nanos);
        row.spans = row.spans.saturating_add(1);
        row.errors = row.errors.saturating_add(u32::from(walked.is_error));
        if walked.is_root && row.root_start_nanos.is_none() {
            row.root_start_nanos = Some(span.start_nanos);
            row.root_name = self.walker.name.as_str().into();
            row.root_service = Arc::clone(&self.walker.services[walked.service_nth]);
        }
        if !self.services.contains(&walked.service_nth) {
            self.services.push(walked.service_nth);
        }
    }

    fn add_to_facts(&mut self, span: &RawSpan, walked: &Walked, is_suspect: bool) {
        let facts = &mut self.facts;
        if !is_suspect && !self.has_believed {
            // What unbelievable spans said before is worth nothing now.
            (facts.min_start_nanos, facts.max_end_nanos) = (span.start_nanos, walked.end_nanos);
            self.has_believed = true;
        }
        if !is_suspect || !self.has_believed {
            let is_first = facts.rows == 0;
            if is_first || span.start_nanos < facts.min_start_nanos {
                facts.min_start_nanos = span.start_nanos;
            }
            facts.max_end_nanos = facts.max_end_nanos.max(walked.end_nanos);
        }
        facts.rows += 1;
        facts.min_ingest_seq = facts.min_ingest_seq.min(span.ingest_seq);
        facts.max_ingest_seq = facts.max_ingest_seq.max(span.ingest_seq);
    }

    fn end_trace(&mut self) {
        if let Some(row) = self.facts.traces.last_mut() {
            let services = self.services.drain(..);
            row.services = services.map(|nth| Arc::clone(&self.walker.services[nth])).collect();
            row.services.sort_unstable();
        }
    }

    /// Writes what is left, and the footer.
    ///
    /// # Errors
    ///
    /// Those of [`push`](Self::push).
    pub fn finish(self) -> Result<SpanFacts, SegmentError> {
        Ok(self.finish_keeping()?.0)
    }

    /// As [`finish`](Self::finish); returns also the memory that the next file can use.
    ///
    /// # Errors
    ///
    /// Those of [`push`](Self::push).
    pub fn finish_keeping(mut self) -> Result<(SpanFacts, SpanBuffers), SegmentError> {
        self.end_trace();
        let (bytes, gatherer) = self.table.finish_keeping()?;
        self.facts.bytes = bytes;
        if self.facts.rows == 0 {
            self.facts.min_ingest_seq = 0;
        }
        if !gatherer.is_small() {
            return Ok((self.facts, SpanBuffers::default()));
        }
        self.walker.end_file();
        Ok((self.facts, SpanBuffers { gatherer: Some(gatherer), walker: self.walker }))
    }
}
