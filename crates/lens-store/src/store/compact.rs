//! Merging small files, since a store that is fed slowly would consist of nothing else.
//!
//! Rows of the same date are merged in the order of (trace id, start), copies of a span count once, and the new files
//! replace the old ones in one commit. Requests go on arriving meanwhile, and are flushed when they are due.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;

use super::commit::Change;
use super::date::Day;
use super::dedup::deduplicate;
use super::error::StoreError;
use super::files::NewFiles;
use super::flush::write_records;
use super::policy::let_go;
use super::rows::newest;
use super::segments::Segment;
use super::{Shared, Snapshot, Store, locked};
use crate::ids::TraceId;
use crate::manifest::Table;
use crate::raw::{RawLog, RawMetric, RawSpan};
use crate::rollouts::RolloutRow;
use crate::segment::SegmentError;

/// After how many starts it looks whether memory has to be written.
const LOOKS_EVERY: usize = 4_096;

/// Segments to be merged into one.
#[derive(Debug)]
struct Plan {
    day: Day,
    segments: Vec<Arc<Segment>>,
}

impl Store {
    /// Merges small files of each date, whether it is due or not; returns how many segments were replaced.
    ///
    /// # Errors
    ///
    /// When the new ones cannot be written; the old ones stay then.
    pub fn compact(&self) -> Result<usize, StoreError> {
        let _turn = locked(&self.shared.turn);
        self.shared.compact(2)
    }
}

impl Shared {
    /// Merges the small files of dates that have at least so many.
    pub(super) fn compact(&self, min_files: usize) -> Result<usize, StoreError> {
        let mut replaced = 0;
        for plan in self.plans(min_files) {
            replaced += plan.segments.len();
            self.merge(&plan)?;
        }
        Ok(replaced)
    }

    fn plans(&self, min_files: usize) -> Vec<Plan> {
        let limits = self.options.compaction;
        let segments = Arc::clone(&self.state().segments);
        let mut days: BTreeMap<Day, Vec<Arc<Segment>>> = BTreeMap::new();
        for segment in segments.iter() {
            let is_small = segment.entry().bytes() < limits.small_bytes;
            if let (true, false, Some(day)) =
                (is_small, segment.is_damaged(), Day::parse(&segment.entry().date))
            {
                days.entry(day).or_default().push(Arc::clone(segment));
            }
        }
        let mut plans = Vec::new();
        for (day, small) in days {
            if small.len() < min_files.max(2) {
                continue;
            }
            let mut segments: Vec<Arc<Segment>> = Vec::new();
            let mut bytes = 0;
            for segment in small {
                bytes += segment.entry().bytes();
                if bytes > limits.max_bytes && segments.len() > 1 {
                    plans.push(Plan { day, segments: std::mem::take(&mut segments) });
                    bytes = segment.entry().bytes();
                }
                segments.push(segment);
            }
            if segments.len() > 1 {
                plans.push(Plan { day, segments });
            }
        }
        plans
    }

    fn merge(&self, plan: &Plan) -> Result<(), StoreError> {
        let mut files = NewFiles::new(&self.options.vfs, &self.folder);
        let level = plan.segments.iter().map(|segment| segment.entry().level).max().unwrap_or(0);
        files.begin(locked(&self.upkeep).take_number(), level + 1, plan.day);
        let newest_arrival = plan.segments.iter().map(|segment| segment.entry().arrived_nanos);
        if let Some(entry) = files.entry() {
            entry.arrived_nanos = newest_arrival.max().unwrap_or(0);
        }
        let mut left_out = LeftOut { traces: self.let_go_at_rest()?, ..LeftOut::default() };
        let mut broken = None;
        let mut written = Ok(());
        if plan.segments.iter().any(|segment| segment.path(Table::Spans).is_some()) {
            written = self.write_spans(&mut files, plan.day, |write| {
                let merged = self.merge_spans(&plan.segments, &mut left_out, write);
                merged.map_err(|(segment, error)| {
                    broken = segment;
                    error
                })
            });
        }
        let written = written.and_then(|()| {
            let records = records_of(&plan.segments).map_err(|(segment, error)| {
                let reason = super::segments::reason(&error);
                broken = Some(segment);
                StoreError::Commit { path: self.folder.clone(), reason }
            })?;
            write_records(&mut files, records.0, records.1, records.2)
        });
        match (written, broken) {
            (Ok(()), _) => {}
            (Err(error), None) => return Err(error),
            (Err(error), Some(segment)) => {
                self.pass_over(&segment, &error);
                return Ok(());
            }
        }
        if plan.segments.iter().any(|segment| segment.is_damaged()) {
            // Found by a reader meanwhile. It is set aside first.
            return Ok(());
        }
        let gone = plan.segments.iter().map(|segment| segment.entry().number).collect();
        let loses_spans = left_out.let_go > 0;
        let change = Change { added: files.finish()?, gone, loses_spans, ..Change::default() };
        self.commit(&mut locked(&self.upkeep), change, |manifest| {
            manifest.removed.spans_repeated += left_out.repeated;
            manifest.removed.spans_let_go += left_out.let_go;
        })
    }

    /// Tells the spans of segments in the order of one file, each once.
    fn merge_spans(
        &self,
        segments: &[Arc<Segment>],
        left_out: &mut LeftOut,
        tell: &mut dyn FnMut(&[&RawSpan]) -> Result<(), SegmentError>,
    ) -> Result<(), (Option<Arc<Segment>>, SegmentError)> {
        let of = |(segment, error): Failed| (Some(segment), error);
        let mut merge = Merge::new(segments).map_err(of)?;
        let mut groups = 0;
        while let Some(mut spans) = merge.next_group().map_err(of)? {
            left_out.repeated += deduplicate(&mut spans) as u64;
            if spans.first().is_some_and(|span| left_out.traces.contains_key(&span.trace_id)) {
                left_out.let_go += spans.len() as u64;
                continue;
            }
            let mut told = spans.iter().map(|span| tell(&[span]));
            told.try_for_each(|told| told.map_err(|error| (None, error)))?;
            groups += 1;
            if groups % LOOKS_EVERY == 0 {
                // It is due again in the next upkeep when it fails.
                self.flush_if_due().ok();
            }
        }
        Ok(())
    }

    /// Traces whose spans are left out. One that is in memory too may be judged anew when that is written.
    fn let_go_at_rest(&self) -> Result<HashMap<TraceId, u64>, StoreError> {
        if self.options.policy.is_none() {
            return Ok(HashMap::new());
        }
        let snapshot = Snapshot::new(self);
        let mut traces = let_go(&snapshot)?;
        for (id, _) in snapshot.memory_traces() {
            traces.remove(&id);
        }
        Ok(traces)
    }

    /// A segment that cannot be merged because it cannot be read is set aside by the next upkeep.
    fn pass_over(&self, segment: &Arc<Segment>, error: &StoreError) {
        segment.pass_over();
        self.report(segment.entry(), error);
    }
}

/// Spans that are not in what is merged.
#[derive(Debug, Default)]
struct LeftOut {
    traces: HashMap<TraceId, u64>,
    let_go: u64,
    repeated: u64,
}

/// Spans of several files in the order of one.
struct Merge {
    sources: Vec<Source>,
    /// The next span of each source.
    next: BinaryHeap<Reverse<(TraceId, u64, usize)>>,
}

struct Source {
    segment: Arc<Segment>,
    rest: crate::segment::Spans,
    front: Option<RawSpan>,
}

type Failed = (Arc<Segment>, SegmentError);

impl Merge {
    fn new(segments: &[Arc<Segment>]) -> Result<Self, Failed> {
        let mut merge = Self { sources: Vec::new(), next: BinaryHeap::new() };
        for segment in segments {
            let of = |error| (Arc::clone(segment), error);
            let Some(spans) = segment.spans().map_err(of)? else { continue };
            let rest = spans.spans().map_err(of)?;
            merge.sources.push(Source { segment: Arc::clone(segment), rest, front: None });
            merge.advance(merge.sources.len() - 1)?;
        }
        Ok(merge)
    }

    fn advance(&mut self, source: usize) -> Result<(), Failed> {
        let Source { segment, rest, front } = &mut self.sources[source];
        *front = rest.next().transpose().map_err(|error| (Arc::clone(segment), error))?;
        if let Some(span) = front {
            self.next.push(Reverse((span.trace_id, span.start_nanos, source)));
        }
        Ok(())
    }

    /// The spans of the lowest trace id that start together at its lowest start.
    fn next_group(&mut self) -> Result<Option<Vec<RawSpan>>, Failed> {
        let Some(Reverse((trace_id, start_nanos, _))) = self.next.peek().copied() else {
            return Ok(None);
        };
        let mut group = Vec::new();
        while let Some(Reverse((id, start, source))) = self.next.peek().copied() {
            if (id, start) != (trace_id, start_nanos) {
                break;
            }
            self.next.pop();
            group.extend(self.sources[source].front.take());
            self.advance(source)?;
        }
        Ok(Some(group))
    }
}

type Records = (Vec<RolloutRow>, Vec<RawLog>, Vec<RawMetric>);

/// Everything but spans. Rows of rollouts that are older than others here are left out.
fn records_of(segments: &[Arc<Segment>]) -> Result<Records, Failed> {
    let (mut rollouts, mut logs, mut metrics) = (Vec::new(), Vec::new(), Vec::new());
    for segment in segments {
        let of = |error| (Arc::clone(segment), error);
        rollouts.extend(segment.rollouts().map_err(of)?.iter().cloned());
        logs.extend(segment.logs().map_err(of)?);
        metrics.extend(segment.metrics().map_err(of)?);
    }
    Ok((newest(rollouts), logs, metrics))
}
