//! From memory to segments.
//!
//! Memory is frozen and replaced by an empty one in one step, together with the log's file; what is frozen stays
//! readable until its segments are committed. A flush that fails leaves it so, and is tried again.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use super::carried::{Carried, Carrying};
use super::commit::{Change, Upkeep};
use super::date::Day;
use super::error::StoreError;
use super::files::{NewFiles, describe};
use super::memory::Memory;
use super::rows::{is_left_out, version_of};
use super::segments::Segment;
use super::{Shared, Snapshot, Store, locked};
use crate::ids::TraceId;
use crate::manifest::{SegmentEntry, Table};
use crate::raw::{RawLog, RawMetric, RawSpan};
use crate::rollouts::{RolloutRow, rows_of_spans};
use crate::segment::{
    SegmentError, SpanOptions, SpanWriter, TraceIndex, write_logs, write_points, write_rollouts,
    write_traces,
};
use crate::trace::Reader;

/// How long a flush that failed is not tried again; doubled each time, up to the second.
const RETRY_NANOS: (u64, u64) = (1_000_000_000, 30_000_000_000);
/// Traces that are read from segments together, and are in memory together: a page that several of them lie in is
/// decoded once.
pub(super) const TRACES_AT_ONCE: usize = 64;
/// The part of the memory for requests that spans may take besides, which are kept for the next flush.
const CARRIED_SHARE: u64 = 4;

/// What goes under one date.
#[derive(Debug, Default)]
pub(super) struct OfDay {
    /// Spans in the order of a file.
    positions: Vec<u32>,
    rollouts: Vec<RolloutRow>,
    logs: Vec<RawLog>,
    metrics: Vec<RawMetric>,
}

impl Store {
    /// Writes what is in memory into segments; returns whether there was anything.
    ///
    /// # Errors
    ///
    /// When they cannot be written. Everything stays in memory and in the log then.
    pub fn flush(&self) -> Result<bool, StoreError> {
        self.shared.flush(&mut locked(&self.shared.upkeep))
    }
}

impl Shared {
    pub(super) fn flush(&self, upkeep: &mut Upkeep) -> Result<bool, StoreError> {
        let Some(log) = &self.log else { return Err(StoreError::ReadOnly) };
        let frozen = {
            // Nothing arrives between the last request of this memory and the first of the next.
            let mut log = locked(log);
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            if state.frozen.is_none() && state.active.stats().last_seq > 0 {
                state.frozen = Some(std::mem::take(&mut state.active));
                log.rotate();
            }
            match &state.frozen {
                Some(frozen) => Arc::clone(frozen),
                None => return Ok(false),
            }
        };
        let written = self.write_frozen(upkeep, &frozen).and_then(|(added, carried)| {
            let change = Change { added, is_flush: true, ..Change::default() };
            self.commit(upkeep, change, |_| {})?;
            self.carry(upkeep, carried);
            Ok(())
        });
        match &written {
            Ok(()) => (upkeep.failures, upkeep.retry_at_nanos) = (0, 0),
            Err(_) => {
                let wait = (RETRY_NANOS.0 << upkeep.failures.min(8)).min(RETRY_NANOS.1);
                upkeep.failures += 1;
                upkeep.retry_at_nanos = self.options.clock.now_nanos().saturating_add(wait);
            }
        }
        written.map(|()| true)
    }

    fn write_frozen(
        &self,
        upkeep: &mut Upkeep,
        frozen: &Arc<Memory>,
    ) -> Result<(Vec<SegmentEntry>, Carried), StoreError> {
        let mut files = NewFiles::new(&self.options.vfs, &self.folder);
        let arrived_nanos = frozen.newest_arrival();
        let before = Snapshot::new(self);
        for (day, rows) in days_of(&before, frozen, &upkeep.carried, arrived_nanos)? {
            files.begin(upkeep.take_number(), 0, day);
            if let Some(entry) = files.entry() {
                entry.arrived_nanos = arrived_nanos;
            }
            if !rows.positions.is_empty() {
                self.write_spans(&mut files, day, |write| frozen.at(&rows.positions, write))?;
            }
            write_records(&mut files, rows.rollouts, rows.logs, rows.metrics)?;
        }
        let room = self.options.max_memory_bytes / CARRIED_SHARE;
        let carried = carried(&before, frozen, &upkeep.carried, room);
        Ok((files.finish()?, carried))
    }

    /// Writes spans in the order of a file, the rows of their traces, and the index of these.
    pub(super) fn write_spans(
        &self,
        files: &mut NewFiles<'_>,
        day: Day,
        spans: impl FnOnce(
            &mut dyn FnMut(&[&RawSpan]) -> Result<(), SegmentError>,
        ) -> Result<(), SegmentError>,
    ) -> Result<(), StoreError> {
        let (facts, starts) = files.write(Table::Spans, |out| {
            let buffers = std::mem::take(&mut *locked(&self.buffers));
            let mut writer = SpanWriter::with(buffers, out, &SpanOptions { day: Some(day.0) })?;
            let mut starts = (u64::MAX, 0);
            spans(&mut |spans| {
                for span in spans {
                    starts = (starts.0.min(span.start_nanos), starts.1.max(span.start_nanos));
                }
                writer.push(spans)
            })?;
            let (facts, buffers) = writer.finish_keeping()?;
            *locked(&self.buffers) = buffers;
            Ok((facts.rows, (facts, starts)))
        })?;
        files.write(Table::Traces, |out| {
            write_traces(out, &facts.traces)?;
            Ok((facts.traces.len() as u64, ()))
        })?;
        files.write(Table::Index, |out| {
            TraceIndex::new(facts.traces.iter().map(|row| row.trace_id)).write(out)?;
            Ok((facts.traces.len() as u64, ()))
        })?;
        if let Some(entry) = files.entry() {
            let seqs = (facts.min_ingest_seq, facts.max_ingest_seq);
            describe(entry, facts.trace_ids(), starts, seqs);
        }
        Ok(())
    }
}

/// What is in memory by date, and the rollouts of its traces as they are now.
fn days_of(
    before: &Snapshot,
    frozen: &Arc<Memory>,
    carried: &Carried,
    arrived_nanos: u64,
) -> Result<BTreeMap<Day, OfDay>, StoreError> {
    let mut days: BTreeMap<Day, OfDay> = BTreeMap::new();
    let mut traces: Vec<TraceId> = Vec::new();
    frozen.in_file_order(|position, span, arrived_nanos| {
        let day = Day::of(span.start_nanos, arrived_nanos);
        days.entry(day).or_default().positions.push(position);
        if traces.last() != Some(&span.trace_id) {
            traces.push(span.trace_id);
        }
    });
    // Those whose rows are to be computed. A root that was committed before has left a row, so most traces need not
    // be put together.
    let mut wanted: Vec<TraceId> = Vec::new();
    for id in traces {
        if frozen.may_have_root(id) || before.has_stored_rows(id)? {
            wanted.push(id);
        }
    }
    let view = frozen.view();
    for log in view.logs() {
        let day = Day::of(log.time_nanos, arrived_nanos);
        days.entry(day).or_default().logs.push(log);
    }
    for metric in view.metrics() {
        let day = Day::of(metric.time_nanos, arrived_nanos);
        days.entry(day).or_default().metrics.push(metric);
    }
    let let_go = before.let_go()?;
    let mut reader = Reader::default();
    for wanted in wanted.chunks(TRACES_AT_ONCE) {
        // Spans of a trace that were committed before belong to its rollouts too.
        let unknown: Vec<TraceId> =
            wanted.iter().copied().filter(|id| carried.get(*id).is_none()).collect();
        let mut committed = before.committed_traces(&unknown)?;
        for id in wanted {
            let known = carried.get(*id).map(<[_]>::to_vec);
            let mut spans = known.or_else(|| committed.remove(id)).unwrap_or_default();
            if is_left_out(&let_go, *id, &spans) {
                // Its rows say more than what is left of it.
                continue;
            }
            view.trace(*id, &mut spans);
            let version = version_of(&spans);
            for mut row in rows_of_spans(&mut reader, spans, Some(arrived_nanos)) {
                row.ingest_seq = version;
                let day = Day::of(row.start_nanos, arrived_nanos);
                days.entry(day).or_default().rollouts.push(row);
            }
        }
    }
    Ok(days)
}

/// What is committed now of traces that are likely to go on. Where no rollout was ever seen nothing is computed from
/// their spans.
fn carried(before: &Snapshot, frozen: &Arc<Memory>, carried: &Carried, room_bytes: u64) -> Carried {
    let has_rows = |segment: &Arc<Segment>| segment.path(Table::Rollouts).is_some();
    if !frozen.may_have_roots() && !before.segments().iter().any(has_rows) {
        return Carried::default();
    }
    let mut carrying = Carrying::new(carried, usize::try_from(room_bytes).unwrap_or(usize::MAX));
    let view = frozen.view();
    let mut spans = Vec::new();
    let mut take = |carrying: &mut Carrying<'_>, id| {
        // Of others it is not known what is in segments.
        let is_known =
            carried.get(id).is_some() || matches!(before.may_have_committed(id), Ok(false));
        if is_known {
            spans.clear();
            view.trace(id, &mut spans);
            carrying.take(id, &spans);
        }
    };
    let [without_root, with_root] = frozen.newest_first();
    let is_open =
        |id: &TraceId| !frozen.has_trace(*id) && matches!(before.has_stored_rows(*id), Ok(false));
    let idle = carried.newest_first().into_iter().filter(is_open);
    for id in without_root.into_iter().chain(idle).chain(with_root) {
        if carrying.is_full() {
            break;
        }
        take(&mut carrying, id);
    }
    carrying.finish()
}

impl Upkeep {
    pub(super) fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }
}

/// Writes everything else.
pub(super) fn write_records(
    files: &mut NewFiles<'_>,
    mut rollouts: Vec<RolloutRow>,
    mut logs: Vec<RawLog>,
    metrics: Vec<RawMetric>,
) -> Result<(), StoreError> {
    if !rollouts.is_empty() {
        rollouts.sort_by_key(|row| (row.trace_id, row.root_span_id, row.ingest_seq));
        files.write(Table::Rollouts, |out| {
            write_rollouts(out, &rollouts)?;
            Ok((rollouts.len() as u64, ()))
        })?;
    }
    if !logs.is_empty() {
        logs.sort_by_key(|log| log.time_nanos);
        files.write(Table::Logs, |out| Ok((write_logs(out, &logs)?, ())))?;
    }
    if !metrics.is_empty() {
        files.write(Table::Points, |out| Ok((write_points(out, &metrics)?, ())))?;
    }
    let Some(entry) = files.entry() else { return Ok(()) };
    let of_logs = logs.iter().map(|log| (log.time_nanos, log.ingest_seq));
    let of_metrics = metrics.iter().map(|metric| (metric.time_nanos, metric.ingest_seq));
    let of_rollouts = rollouts.iter().map(|row| (row.start_nanos, row.ingest_seq));
    for (time_nanos, seq) in of_logs.chain(of_metrics).chain(of_rollouts) {
        describe(entry, None, (time_nanos, time_nanos), (seq, seq));
    }
    Ok(())
}
