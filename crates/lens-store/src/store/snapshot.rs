//! One state of a store, for as long as somebody looks at it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::dedup::deduplicate;
use super::error::{Damage, StoreError};
use super::memory::MemoryView;
use super::rows::RowCache;
use super::segments::Segment;
use super::{Shared, locked};
use crate::ids::TraceId;
use crate::manifest::Manifest;
use crate::raw::{RawLog, RawMetric, RawSpan};
use crate::segment::SegmentError;

/// What a store held at one moment. It stays as it is while the store goes on.
#[derive(Clone, Debug)]
pub struct Snapshot {
    manifest: Arc<Manifest>,
    segments: Arc<Vec<Arc<Segment>>>,
    /// Oldest first.
    memory: Vec<MemoryView>,
    damage: Arc<Mutex<Vec<Damage>>>,
    /// When it was taken, Unix nanoseconds.
    pub(super) taken_nanos: u64,
    pub(super) rows: Arc<Mutex<RowCache>>,
}

impl Snapshot {
    pub(super) fn new(shared: &Shared) -> Self {
        let state = shared.state();
        Self {
            manifest: Arc::clone(&state.manifest),
            segments: Arc::clone(&state.segments),
            memory: state.frozen.iter().chain([&state.active]).map(|part| part.view()).collect(),
            damage: Arc::clone(&shared.damage),
            taken_nanos: shared.options.clock.now_nanos(),
            rows: Arc::clone(&shared.rows),
        }
    }

    /// The segments that can be read, oldest first.
    pub fn segments(&self) -> &[Arc<Segment>] {
        &self.segments
    }

    /// The result of a look into a segment. One that turns out to be damaged is named, passed over, and counts as
    /// having had nothing.
    ///
    /// # Errors
    ///
    /// When the file system fails: another look may succeed.
    pub fn unless_damaged<T: Default>(
        &self,
        segment: &Segment,
        looked: Result<T, SegmentError>,
    ) -> Result<T, StoreError> {
        looked.or_else(|error| {
            let damage = segment.sort_out(error)?;
            let mut known = locked(&self.damage);
            if !known.contains(&damage) {
                known.push(damage);
            }
            Ok(T::default())
        })
    }

    /// What was found to be damaged, here or by others of this store.
    pub fn damage(&self) -> Vec<Damage> {
        locked(&self.damage).clone()
    }

    /// What says which segments count.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The spans of a trace, each once, by start; empty when it is unknown.
    ///
    /// # Errors
    ///
    /// When a segment cannot be read.
    pub fn trace(&self, id: TraceId) -> Result<Vec<RawSpan>, StoreError> {
        let committed = self.committed_traces(&[id])?.remove(&id);
        Ok(self.with_memory(id, committed.unwrap_or_default()))
    }

    /// The parts of memory that it shows.
    pub(super) fn memory(&self) -> impl Iterator<Item = &MemoryView> {
        self.memory.iter()
    }

    /// The spans of a trace, each once, by start: those that were committed and those in memory.
    pub(super) fn with_memory(&self, id: TraceId, committed: Vec<RawSpan>) -> Vec<RawSpan> {
        let mut spans = committed;
        for memory in &self.memory {
            memory.trace(id, &mut spans);
        }
        deduplicate(&mut spans);
        spans
    }

    /// The spans of some traces, each once, a trace's by start, the traces in the order of their ids.
    ///
    /// # Errors
    ///
    /// When a segment cannot be read.
    pub fn traces(&self, ids: &[TraceId]) -> Result<Vec<RawSpan>, StoreError> {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        let mut committed = self.committed_traces(&ids)?;
        let spans_of = |id| self.with_memory(id, committed.remove(&id).unwrap_or_default());
        Ok(ids.into_iter().flat_map(spans_of).collect())
    }

    /// The spans of some traces that are in segments, copies among them. Their ids are in order.
    pub(super) fn committed_traces(
        &self,
        ids: &[TraceId],
    ) -> Result<HashMap<TraceId, Vec<RawSpan>>, StoreError> {
        let mut traces: HashMap<TraceId, Vec<RawSpan>> = HashMap::new();
        for segment in self.segments.iter() {
            for span in self.unless_damaged(segment, segment.spans_of(ids))? {
                traces.entry(span.trace_id).or_default().push(span);
            }
        }
        Ok(traces)
    }

    /// Whether spans of a trace may be in segments; `false` is always right.
    pub(super) fn may_have_committed(&self, id: TraceId) -> Result<bool, StoreError> {
        for segment in self.segments.iter() {
            if self.unless_damaged(segment, segment.may_have(id))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ids of traces that begin with these hex digits, ascending, no more than `limit`.
    ///
    /// # Errors
    ///
    /// When a segment cannot be read.
    pub fn find_by_prefix(&self, digits: &str, limit: usize) -> Result<Vec<TraceId>, StoreError> {
        let digits = digits.strip_prefix("0x").unwrap_or(digits).to_ascii_lowercase();
        let Some((low, high)) = prefix_range(&digits) else { return Ok(Vec::new()) };
        let traces = self.memory.iter().flat_map(MemoryView::traces);
        let mut found: Vec<TraceId> =
            traces.map(|(id, _)| id).filter(|id| (low..=high).contains(&id.number())).collect();
        for segment in self.segments.iter() {
            let looked = segment.trace_ids(&digits, limit);
            found.extend(self.unless_damaged(segment, looked)?);
        }
        found.sort_unstable();
        found.dedup();
        found.truncate(limit);
        Ok(found)
    }

    /// The spans that are in no segment yet, in the order of their arrival; repeated ones are repeated.
    pub fn memory_spans(&self) -> impl Iterator<Item = RawSpan> + use<'_> {
        self.memory.iter().flat_map(MemoryView::spans)
    }

    /// How many [`Self::memory_spans`] there are.
    pub fn memory_span_count(&self) -> usize {
        self.memory.iter().map(MemoryView::span_count).sum()
    }

    /// Traces with spans in memory, and how many each has there, in no order.
    pub fn memory_traces(&self) -> Vec<(TraceId, u32)> {
        let mut traces: Vec<_> = self.memory.iter().flat_map(MemoryView::traces).collect();
        if self.memory.len() > 1 {
            traces.sort_unstable();
            traces.dedup_by(|later, kept| {
                let is_same = later.0 == kept.0;
                kept.1 += if is_same { later.1 } else { 0 };
                is_same
            });
        }
        traces
    }

    /// All log records, in no order.
    ///
    /// # Errors
    ///
    /// When a segment cannot be read.
    pub fn logs(&self) -> Result<Vec<RawLog>, StoreError> {
        let mut logs = self.memory_logs();
        for segment in self.segments.iter() {
            logs.extend(self.unless_damaged(segment, segment.logs())?);
        }
        Ok(logs)
    }

    /// All metrics, in no order.
    ///
    /// # Errors
    ///
    /// When a segment cannot be read.
    pub fn metrics(&self) -> Result<Vec<RawMetric>, StoreError> {
        let mut metrics = self.memory_metrics();
        for segment in self.segments.iter() {
            metrics.extend(self.unless_damaged(segment, segment.metrics())?);
        }
        Ok(metrics)
    }

    /// Log records that are in no segment yet, in the order of their arrival.
    pub fn memory_logs(&self) -> Vec<RawLog> {
        self.memory.iter().flat_map(MemoryView::logs).collect()
    }

    /// Metrics that are in no segment yet, in the order of their arrival.
    pub fn memory_metrics(&self) -> Vec<RawMetric> {
        self.memory.iter().flat_map(MemoryView::metrics).collect()
    }
}

/// The lowest and highest id that begin with some hex digits.
fn prefix_range(digits: &str) -> Option<(u128, u128)> {
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if digits.is_empty() || digits.len() > 32 || !is_hex {
        return None;
    }
    let low = u128::from_str_radix(&format!("{digits:0<32}"), 16).ok()?;
    let high = u128::from_str_radix(&format!("{digits:f<32}"), 16).ok()?;
    Some((low, high))
}
