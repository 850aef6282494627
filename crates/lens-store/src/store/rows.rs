//! Rows of traces and rollouts: those of segments, and those of traces that are still in memory.
//!
//! Rows of a trace's rollouts are computed together, from all its spans, each time some are committed, and carry the
//! highest request number of these as their version. The newest version of a trace counts, as a whole: a rollout that
//! got a topmost span later has another key then, and its old row must not stay beside the new one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use lens_otlp::view::{AnyValue, Attributes};

use super::dedup::deduplicate;
use super::error::StoreError;
use super::flush::TRACES_AT_ONCE;
use super::policy::let_go;
use super::{Snapshot, locked};
use crate::ids::TraceId;
use crate::raw::RawSpan;
use crate::rollouts::{Filter, Kept, RolloutRow, rows_of_spans};
use crate::segment::TraceRow;
use crate::trace::Reader;

/// Rows of traces in memory, so that a query does not compute again what did not change.
#[derive(Debug, Default)]
pub(super) struct RowCache {
    rows: HashMap<TraceId, (Version, Arc<Vec<RolloutRow>>)>,
}

/// Spans of a trace in memory, and the commit that they come on top of.
type Version = (u32, u64);

/// Version of the rows that are computed from these spans of a trace.
pub(super) fn version_of(spans: &[RawSpan]) -> u64 {
    spans.iter().map(|span| span.ingest_seq).max().unwrap_or(0)
}

/// Of each trace the newest rows. Of rows of one version and key those that a policy has marked.
pub(super) fn newest(rows: impl IntoIterator<Item = RolloutRow>) -> Vec<RolloutRow> {
    let mut traces: HashMap<TraceId, Vec<RolloutRow>> = HashMap::new();
    for row in rows {
        let known = traces.entry(row.trace_id).or_default();
        let version = known.first().map_or(0, |row| row.ingest_seq);
        if row.ingest_seq > version {
            known.clear();
        } else if row.ingest_seq < version {
            continue;
        }
        match known.iter_mut().find(|known| known.root_span_id == row.root_span_id) {
            Some(known) if row.kept == Kept::Undecided && known.kept != row.kept => {}
            Some(known) => *known = row,
            None => known.push(row),
        }
    }
    traces.into_values().flatten().collect()
}

/// Whether spans of a trace were let go and are gone already, as far as those show that are in segments.
pub(super) fn is_left_out(
    let_go: &HashMap<TraceId, u64>,
    id: TraceId,
    committed: &[RawSpan],
) -> bool {
    let_go.get(&id).is_some_and(|spans| {
        let mut left = committed.to_vec();
        deduplicate(&mut left);
        (left.len() as u64) < *spans
    })
}

impl Snapshot {
    /// Traces whose rollouts were all let go, with how many spans these had.
    pub(super) fn let_go(&self) -> Result<HashMap<TraceId, u64>, StoreError> {
        match self.manifest().removed.rollouts_let_go {
            0 => Ok(HashMap::new()),
            _ => let_go(self),
        }
    }

    /// The rollouts that a filter means, one row for each, by start. Rows of rollouts whose spans were let go are
    /// among them.
    ///
    /// # Errors
    ///
    /// When a segment cannot be read.
    pub fn rollout_rows(&self, filter: &Filter) -> Result<Vec<RolloutRow>, StoreError> {
        let in_memory = self.memory_traces_with_rows()?;
        let fresh: HashSet<TraceId> = in_memory.iter().map(|(id, _)| *id).collect();
        let stored = self.stored_rows()?;
        let with_rows: HashSet<TraceId> = stored.iter().map(|row| row.trace_id).collect();
        let mut rows = newest(stored.into_iter().filter(|row| !fresh.contains(&row.trace_id)));
        rows.retain(|row| filter.matches(row));
        let mut known = HashMap::with_capacity(in_memory.len());
        let mut unknown = Vec::new();
        for (id, count) in in_memory {
            let version = (count, self.manifest().generation);
            let cached =
                locked(&self.rows).rows.get(&id).filter(|known| known.0 == version).cloned();
            if let Some(cached) = cached {
                known.insert(id, cached);
            } else if with_rows.contains(&id) || self.may_have_root(id) {
                unknown.push((id, version));
            } else {
                known.insert(id, (version, Arc::default()));
            }
        }
        let mut reader = Reader::default();
        for unknown in unknown.chunks(TRACES_AT_ONCE) {
            let ids: Vec<TraceId> = unknown.iter().map(|(id, _)| *id).collect();
            let mut committed = self.committed_traces(&ids)?;
            for (id, version) in unknown {
                let spans = self.with_memory(*id, committed.remove(id).unwrap_or_default());
                let seq = version_of(&spans);
                let mut of_trace = rows_of_spans(&mut reader, spans, Some(self.taken_nanos));
                of_trace.iter_mut().for_each(|row| row.ingest_seq = seq);
                known.insert(*id, (*version, Arc::new(of_trace)));
            }
        }
        let of_memory = known.values().flat_map(|(_, of_trace)| of_trace.iter());
        rows.extend(of_memory.filter(|row| filter.matches(row)).cloned());
        locked(&self.rows).rows = known;
        rows.sort_by_key(|row| (row.start_nanos, row.trace_id, row.root_span_id));
        Ok(rows)
    }

    /// Traces in memory whose rows are computed, by id: all but those whose rows say more than what is left of them.
    fn memory_traces_with_rows(&self) -> Result<Vec<(TraceId, u32)>, StoreError> {
        let mut in_memory = self.memory_traces();
        in_memory.sort_unstable();
        let let_go = self.let_go()?;
        if let_go.is_empty() {
            return Ok(in_memory);
        }
        let ids = in_memory.iter().map(|(id, _)| *id).filter(|id| let_go.contains_key(id));
        let doubtful: Vec<TraceId> = ids.collect();
        let mut left_out: HashSet<TraceId> = HashSet::new();
        for ids in doubtful.chunks(TRACES_AT_ONCE) {
            let committed = self.committed_traces(ids)?;
            let spans_of = |id| committed.get(id).map_or(&[][..], Vec::as_slice);
            left_out.extend(ids.iter().filter(|id| is_left_out(&let_go, **id, spans_of(*id))));
        }
        in_memory.retain(|(id, _)| !left_out.contains(id));
        Ok(in_memory)
    }

    /// Rows of all versions.
    pub(super) fn stored_rows(&self) -> Result<Vec<RolloutRow>, StoreError> {
        let mut rows = Vec::new();
        for segment in self.segments() {
            let of_segment = segment.rollouts().map(<[_]>::to_vec);
            rows.extend(self.unless_damaged(segment, of_segment)?);
        }
        Ok(rows)
    }

    /// Whether a trace has rows in segments.
    pub(super) fn has_stored_rows(&self, id: TraceId) -> Result<bool, StoreError> {
        for segment in self.segments() {
            if self.unless_damaged(segment, segment.has_rollouts_of(id))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a root of a rollout may be among the spans of a trace that are in memory.
    fn may_have_root(&self, id: TraceId) -> bool {
        self.memory().any(|memory| memory.may_have_root(id))
    }

    /// One row for each trace, by start, newest last.
    ///
    /// # Errors
    ///
    /// When a segment cannot be read.
    pub fn trace_rows(&self) -> Result<Vec<TraceRow>, StoreError> {
        let mut traces: HashMap<TraceId, TraceRow> = HashMap::new();
        let mut add = |row: TraceRow| match traces.entry(row.trace_id) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut().merge(&row),
            std::collections::hash_map::Entry::Vacant(place) => drop(place.insert(row)),
        };
        for segment in self.segments() {
            self.unless_damaged(segment, segment.traces())?.into_iter().for_each(&mut add);
        }
        self.memory_spans().for_each(|span| add(row_of(&span)));
        let mut rows: Vec<TraceRow> = traces.into_values().collect();
        rows.sort_by_key(|row| (row.start_nanos, row.trace_id));
        Ok(rows)
    }
}

/// A trace of one span.
fn row_of(span: &RawSpan) -> TraceRow {
    let view = span.view().ok();
    let service = Attributes::new(&span.origin.resource.message, 1)
        .filter_map(Result::ok)
        .find(|(key, _)| *key == gym_telemetry::semconv::SERVICE_NAME);
    let service: Arc<str> = match service {
        Some((_, AnyValue::String(name))) => name.into(),
        _ => "".into(),
    };
    let is_root = view.as_ref().is_some_and(|view| view.parent_id.is_empty());
    let none: Arc<str> = "".into();
    let is_error =
        |view: &lens_otlp::view::SpanView<'_>| view.status == lens_otlp::encode::StatusCode::Error;
    TraceRow {
        trace_id: span.trace_id,
        start_nanos: span.start_nanos,
        end_nanos: view.as_ref().map_or(span.start_nanos, |view| view.end_nanos),
        spans: 1,
        errors: u32::from(view.as_ref().is_some_and(is_error)),
        root_start_nanos: is_root.then_some(span.start_nanos),
        root_service: if is_root { Arc::clone(&service) } else { Arc::clone(&none) },
        root_name: view.as_ref().filter(|_| is_root).map_or(none, |view| view.name.into()),
        services: vec![service],
        first_row: 0,
    }
}
