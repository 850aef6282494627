//! What queries run over: spans in hand, and one state of a store.

use std::collections::HashSet;
use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use super::columns::{Columns, Gathered};
use super::engine::{Filter, Part, Source};
use super::row::{Row, SpanRow};
use crate::ids::TraceId;
use crate::manifest::Table;
use crate::raw::RawSpan;
use crate::segment::measure::measure;
use crate::store::{Segment, Snapshot, StoreError, deduplicate};

/// A start further ahead of its arrival than this is not believed.
const AHEAD_NANOS: u64 = 86_400_000_000_000;
/// Nor is one from longer before.
const BEHIND_NANOS: u64 = 30 * AHEAD_NANOS;

/// Starts that are believed of spans that arrived then.
fn believed(arrived: Range<u64>) -> Range<u64> {
    let first = arrived.start.saturating_sub(BEHIND_NANOS).max(1);
    first..arrived.end.saturating_add(AHEAD_NANOS)
}

fn part<'a>(spans: impl Iterator<Item = &'a RawSpan>, believed: Range<u64>) -> Part {
    let (mut first, mut last, mut count) = (u64::MAX, 0, 0);
    for span in spans {
        first = first.min(span.start_nanos);
        last = last.max(span.start_nanos);
        count += 1;
    }
    Part { starts: first..=last, spans: count, believed }
}

/// Hands a span over.
fn show(span: &RawSpan, take: &mut dyn FnMut(&dyn Row)) {
    if let Ok(row) = SpanRow::new(span) {
        take(&row);
    }
}

/// Spans that were read from somewhere, all of them in memory. Nobody knows when they arrived.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// By trace and start, each once.
    spans: Vec<RawSpan>,
    now_nanos: u64,
}

impl Loaded {
    /// Spans in any order, copies among them.
    pub fn new(mut spans: Vec<RawSpan>, now_nanos: u64) -> Self {
        deduplicate(&mut spans);
        Self { spans, now_nanos }
    }
}

impl Source for Loaded {
    type Error = Infallible;

    fn parts(&self) -> Vec<Part> {
        vec![part(self.spans.iter(), believed(0..self.now_nanos))]
    }

    fn scan(
        &self,
        _: usize,
        _: Option<usize>,
        _: &Filter,
        take: &mut dyn FnMut(&dyn Row),
    ) -> Result<u64, Infallible> {
        self.spans.iter().for_each(|span| show(span, take));
        Ok(self.spans.len() as u64)
    }

    fn trace(&self, id: TraceId) -> Result<Vec<RawSpan>, Infallible> {
        let first = self.spans.partition_point(|span| span.trace_id < id);
        let of_trace = self.spans[first..].iter().take_while(|span| span.trace_id == id);
        Ok(of_trace.cloned().collect())
    }
}

/// One state of a store, spans that wait for their segment included.
#[derive(Debug)]
pub struct Stored<'a> {
    snapshot: &'a Snapshot,
    now_nanos: u64,
}

impl<'a> Stored<'a> {
    /// What the store held when the snapshot was taken, at `now_nanos`.
    pub fn new(snapshot: &'a Snapshot, now_nanos: u64) -> Self {
        Self { snapshot, now_nanos }
    }

    fn scan_segment(
        &self,
        segment: &Segment,
        piece: Option<usize>,
        filter: &Filter,
        take: &mut dyn FnMut(&dyn Row),
    ) -> Result<u64, StoreError> {
        let spans = self.snapshot.unless_damaged(segment, segment.spans())?;
        let Some(spans) = spans else { return Ok(0) };
        let scanned = spans.scan(piece, filter.fields(), filter.starts(), take);
        self.snapshot.unless_damaged(segment, scanned)
    }
}

impl Source for Stored<'_> {
    type Error = StoreError;

    /// The spans in memory, then each segment.
    fn parts(&self) -> Vec<Part> {
        let (mut first, mut last) = (u64::MAX, 0);
        for span in self.snapshot.memory_spans() {
            first = first.min(span.start_nanos);
            last = last.max(span.start_nanos);
        }
        let spans = self.snapshot.memory_span_count() as u64;
        let now = believed(self.now_nanos..self.now_nanos);
        let mut parts = vec![Part { starts: first..=last, spans, believed: now }];
        parts.extend(self.snapshot.segments().iter().map(|segment| {
            let entry = segment.entry();
            let spans = entry.file(Table::Spans).map_or(0, |file| file.rows);
            let starts = entry.min_start_nanos..=entry.max_start_nanos;
            Part { starts, spans, believed: believed(entry.arrived_nanos..entry.arrived_nanos) }
        }));
        parts
    }

    fn scan(
        &self,
        part: usize,
        piece: Option<usize>,
        filter: &Filter,
        take: &mut dyn FnMut(&dyn Row),
    ) -> Result<u64, StoreError> {
        if let Some(segment) = part.checked_sub(1) {
            return self.scan_segment(&self.snapshot.segments()[segment], piece, filter, take);
        }
        // A request that was sent again is there again.
        let (hasher, mut known) = (RandomState::new(), HashSet::new());
        for span in self.snapshot.memory_spans() {
            if known.insert(hasher.hash_one((span.trace_id, span.span_id, span.start_nanos))) {
                show(&span, take);
            }
        }
        Ok(self.snapshot.memory_span_count() as u64)
    }

    fn count(
        &self,
        parts: &[(usize, Part)],
        columns: &Columns<'_>,
    ) -> Result<Gathered, StoreError> {
        let (mut files, mut others) = (Vec::new(), Vec::new());
        for (at, part) in parts {
            let segment = at.checked_sub(1).map(|nth| &self.snapshot.segments()[nth]);
            match segment.map(|segment| segment.spans()) {
                Some(Ok(Some(spans))) => files.push((*at, spans, part.believed.clone())),
                // What is damaged is found out, and named, by who looks at its spans.
                Some(Err(_)) | None => others.push(*at),
                Some(Ok(None)) => {}
            }
        }
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        match measure(&files, columns, threads) {
            Ok(mut gathered) => {
                gathered.left.extend(others.into_iter().map(|part| (part, None)));
                Ok(gathered)
            }
            Err(_) => Ok(Gathered::left(parts.iter().map(|(at, _)| *at))),
        }
    }

    fn trace(&self, id: TraceId) -> Result<Vec<RawSpan>, StoreError> {
        self.snapshot.trace(id)
    }
}
