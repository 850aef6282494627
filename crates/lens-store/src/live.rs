//! Rollouts that are under way, from log records about open spans and from spans that have ended.
//!
//! A pure state machine: time comes in with every call, and nothing here waits. What is open is what its processes
//! say every few seconds; no entry rests on a single message. An end that was lost is found by the heartbeats that do
//! not come, a begin that was lost by the first one that does.
//!
//! # Guarantees
//!
//! * Memory is bounded by [`Settings`], whatever is sent; what finds no room is counted, and comes in with a later
//!   heartbeat when there is room.
//! * A row keeps its place while it is there: rows are in order of the start that was first known, then of ids.
//! * Ages do not rest on clocks that agree: a process says how old its spans are.
//!
//! # No guarantee
//!
//! * Spans that are open for less than a tenth of a second are not told of.

mod entry;
mod judge;
mod names;
mod process;
mod recent;
mod row;
mod told;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use lens_otlp::DecodeError;
use lens_otlp::view::{Attributes, resources};

use crate::ids::{SpanId, TraceId};
use crate::raw::{Origin, RawSpan};
use entry::{Entry, Gone, Last, Open, Retrying};
use names::Names;
use process::{ProcessId, Processes};
use recent::Recent;
pub use row::{GroupState, Happened, LastEvent, Mark, Row, Stage};
use told::{Alive, Ended, Ids, Retried, Told};

/// The request that an agent runs a rollout for.
const RUN_REQUEST: &str = "POST /run";
/// Rollouts of one trace that are kept; a foreign trace may hold many.
const MAX_ROLLOUTS_OF_TRACE: usize = 1024;
/// Ends that are remembered for records that come after them.
const MAX_RECENT: usize = 65_536;
/// Heartbeats that may be missed.
const HEARTBEATS_MISSED: u64 = 3;

/// Bounds and times.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Time between two heartbeats of a span.
    pub heartbeat_nanos: u64,
    /// A rollout in which nothing begins or ends for so long is stalled.
    pub stalled_after_nanos: u64,
    /// Rollouts of which nothing is heard for so long are forgotten.
    pub forget_after_nanos: u64,
    /// Rollouts that are kept.
    pub max_rollouts: usize,
    /// Processes that are kept.
    pub max_processes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            heartbeat_nanos: 5_000_000_000,
            stalled_after_nanos: 60_000_000_000,
            forget_after_nanos: 300_000_000_000,
            max_rollouts: 65_536,
            max_processes: 4_096,
        }
    }
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counts {
    /// Live events that were understood.
    pub events: u64,
    /// Rollouts that came in.
    pub begun: u64,
    /// Rollouts whose end was seen.
    pub ended: u64,
    /// Rollouts that were forgotten without an end.
    pub expired: u64,
    /// Open spans that their process no longer told of although no end was seen.
    pub healed: u64,
    /// Live events that found no room.
    pub refused: u64,
}

/// All rollouts that are under way.
#[derive(Debug)]
pub struct InFlight {
    settings: Settings,
    traces: HashMap<TraceId, Vec<Entry>>,
    rollouts: usize,
    processes: Processes,
    groups: HashMap<GroupKey, GroupState>,
    recent: Recent,
    names: Names,
    counts: Counts,
}

/// A task of a run.
type GroupKey = (Arc<str>, i64);

impl InFlight {
    /// Nothing is under way.
    pub fn new(settings: Settings) -> Self {
        Self {
            traces: HashMap::new(),
            rollouts: 0,
            processes: Processes::new(settings.max_processes),
            groups: HashMap::new(),
            recent: Recent::new(MAX_RECENT),
            names: Names::default(),
            counts: Counts::default(),
            settings,
        }
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// How many rollouts are under way.
    pub fn len(&self) -> usize {
        self.rollouts
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.rollouts == 0
    }

    /// Takes in an export request of log records that came at `now_nanos`.
    ///
    /// # Errors
    ///
    /// When the request cannot be walked to its end; what came before counts.
    pub fn logs(&mut self, request: &[u8], now_nanos: u64) -> Result<(), DecodeError> {
        for resource in resources(request) {
            let resource = resource?;
            let mut process = None;
            for scope in resource.scopes() {
                for message in scope?.items() {
                    let told = Told::read(message?)?;
                    if matches!(told, Told::Other) {
                        continue;
                    }
                    let process = *process.get_or_insert_with(|| {
                        self.processes.heard(resource.attributes(), now_nanos)
                    });
                    self.told(&told, process, now_nanos);
                }
            }
        }
        Ok(())
    }

    fn told(&mut self, told: &Told<'_>, process: ProcessId, now_nanos: u64) {
        match told {
            Told::Alive(alive) => {
                self.counts.events += 1;
                self.processes.compare_clocks(process, alive.said_nanos, now_nanos);
                self.alive(alive, process, now_nanos);
            }
            Told::Retried(retried) => {
                self.counts.events += 1;
                self.processes.compare_clocks(process, retried.said_nanos, now_nanos);
                self.retried(retried, process, now_nanos);
            }
            Told::Notice { trace_id, said_nanos, text } => {
                // A warning names its trace, not its rollout.
                if let Some([entry]) = self.traces.get_mut(trace_id).map(Vec::as_mut_slice) {
                    let source = self.processes.get(process);
                    let at_nanos = source.at(*said_nanos, now_nanos);
                    if at_nanos >= entry.last.at_nanos {
                        let (what, server) = (Happened::Warned, Arc::clone(&source.server));
                        entry.last = Last { what, name: Arc::from(*text), server, at_nanos };
                    }
                }
            }
            Told::Other => {}
        }
    }

    fn retried(&mut self, retried: &Retried<'_>, process: ProcessId, now_nanos: u64) {
        let (trace_id, span_id) = (retried.trace_id, retried.span_id);
        if self.is_over(trace_id, span_id, &retried.ids) {
            return;
        }
        let Some(entries) = self.traces.get_mut(&trace_id) else { return };
        // Of a rollout that is not known yet it comes in with the next retry: counts are absolute.
        let at = find(entries, retried.ids.rollout).or(match entries.as_slice() {
            [only] if retried.ids.rollout.is_none() || only.rollout.is_none() => Some(0),
            _ => None,
        });
        let Some(entry) = at.and_then(|at| entries.get_mut(at)) else { return };
        let source = self.processes.get(process);
        let at_nanos = source.at(retried.said_nanos, now_nanos);
        if !entry.repeats(span_id, retried.resent) {
            self.counts.refused += 1;
        }
        if at_nanos >= entry.last.at_nanos {
            let (text, server) = (Arc::from(retried.text), Arc::clone(&source.server));
            let (name, until_nanos) =
                (Arc::clone(&text), at_nanos.saturating_add(retried.wait_nanos));
            entry.last = Last { what: Happened::Retried, name, server, at_nanos };
            entry.retrying = Some(Retrying { span_id, text, at_nanos, until_nanos });
        }
    }

    fn alive(&mut self, alive: &Alive<'_>, process: ProcessId, now_nanos: u64) {
        if self.is_over(alive.trace_id, alive.span_id, &alive.ids) {
            return;
        }
        let source = self.processes.get(process);
        let said_nanos = source.at(alive.said_nanos, now_nanos);
        let begun_nanos = said_nanos.saturating_sub(alive.age_nanos);
        let fleet = Arc::clone(&source.fleet);
        let Some(at) = self.find_or_add(alive, &fleet, begun_nanos) else { return };
        let open = Open {
            span_id: alive.span_id,
            parent_id: alive.parent_id,
            name: self.names.share(alive.name),
            process,
            begun_nanos,
            heard_nanos: now_nanos,
            stage: alive.stage.map(|stage| self.names.share(stage)),
        };
        let entries = self.traces.get_mut(&alive.trace_id);
        if let Some(entry) = entries.and_then(|entries| entries.get_mut(at))
            && !entry.alive(open, &self.processes)
        {
            self.counts.refused += 1;
        }
    }

    /// Whether a span or its rollout is known to have ended.
    fn is_over(&self, trace_id: TraceId, span_id: SpanId, ids: &Ids<'_>) -> bool {
        self.recent.contains((trace_id, span_id))
            || ids.rollout.is_some_and(|id| self.recent.contains((trace_id, id)))
    }

    /// Place of the rollout among those of its trace; nothing when there is no room, or the span is of none.
    fn find_or_add(&mut self, alive: &Alive<'_>, fleet: &Arc<str>, begun: u64) -> Option<usize> {
        let entries = self.traces.get(&alive.trace_id).map_or(&[][..], Vec::as_slice);
        if let Some(at) = find(entries, alive.ids.rollout) {
            return Some(at);
        }
        if alive.ids.rollout.is_none() && told::root_rank(alive.name).is_none() {
            return None;
        }
        if self.rollouts >= self.settings.max_rollouts || entries.len() >= MAX_ROLLOUTS_OF_TRACE {
            self.counts.refused += 1;
            return None;
        }
        let entry = self.begin(&alive.ids, fleet, begun);
        let entries = self.traces.entry(alive.trace_id).or_default();
        entries.push(entry);
        Some(entries.len() - 1)
    }

    fn begin(&mut self, ids: &Ids<'_>, fleet: &Arc<str>, begun_nanos: u64) -> Entry {
        let run = ids.run.map_or_else(|| Arc::clone(fleet), |run| self.names.share(run));
        self.rollouts += 1;
        self.counts.begun += 1;
        if let Some(task) = ids.task {
            self.groups.entry((Arc::clone(&run), task)).or_default().running += 1;
        }
        let nothing = self.names.share("");
        let last = Last {
            what: Happened::Began,
            name: Arc::clone(&nothing),
            server: nothing,
            at_nanos: 0,
        };
        Entry {
            order_nanos: begun_nanos,
            rollout: ids.rollout.map(|id| names::cut(id).into()),
            run,
            task: ids.task,
            index: ids.index,
            attempt: ids.attempt.unwrap_or(0),
            agent: None,
            open: Vec::new(),
            begun_nanos,
            heard_nanos: 0,
            moved_nanos: 0,
            last,
            retries: 0,
            repeated: Vec::new(),
            retrying: None,
            gone: None,
        }
    }

    /// Takes in spans that have ended and came at `now_nanos`.
    pub fn ended(&mut self, spans: &[RawSpan], now_nanos: u64) {
        if self.counts.events == 0 {
            return;
        }
        let mut source: Option<(*const Origin, ProcessId)> = None;
        for span in spans {
            let Ok(view) = span.view() else { continue };
            if told::may_have_been_told(&view) {
                self.recent.insert((span.trace_id, span.span_id));
            }
            if !self.traces.contains_key(&span.trace_id) {
                continue;
            }
            let origin = Arc::as_ptr(&span.origin);
            let process = match source {
                Some((known, process)) if known == origin => process,
                _ => {
                    let attributes = Attributes::new(&span.origin.resource.message, 1);
                    self.processes.heard(attributes, now_nanos)
                }
            };
            source = Some((origin, process));
            if let Ok(ended) = Ended::read(&view) {
                self.end(span, (view.name, view.end_nanos), &ended, (process, now_nanos));
            }
        }
    }

    fn end(
        &mut self,
        span: &RawSpan,
        (name, end_nanos): (&str, u64),
        ended: &Ended<'_>,
        (process, now_nanos): (ProcessId, u64),
    ) {
        let Some(entries) = self.traces.get_mut(&span.trace_id) else { return };
        let has = |entry: &Entry| entry.open.iter().any(|open| open.span_id == span.span_id);
        let at = find(entries, ended.ids.rollout).or_else(|| entries.iter().position(has)).or(
            match entries.as_slice() {
                [only] if ended.ids.rollout.is_none() || only.rollout.is_none() => Some(0),
                _ => None,
            },
        );
        let Some(entry) = at.and_then(|at| entries.get_mut(at)) else { return };
        let source = self.processes.get(process);
        let at_nanos = source.at(end_nanos, now_nanos);
        // Once, however often it arrives. Of one that was given up a retry may still be told of.
        let key = (span.trace_id, span.span_id);
        let is_given_up = ended.is_error || ended.is_cancelled;
        if ended.is_client
            && !self.recent.contains(key)
            && (entry.repeated(span.span_id, ended.resent) || is_given_up)
        {
            self.recent.insert(key);
        }
        // The serving side says more of a request than the asking one, unless it failed to reach it.
        if !ended.is_client || ended.is_error {
            let what = match () {
                () if ended.is_truncated => Happened::CutOff,
                () if ended.is_error => Happened::Failed,
                () => Happened::Ended,
            };
            let (name, server) = (self.names.share(name), Arc::clone(&source.server));
            entry.happened(Last { what, name, server, at_nanos });
        } else {
            entry.moved_nanos = entry.moved_nanos.max(at_nanos);
        }
        let is_over = entry.is_over_with(span.span_id, name);
        entry.open.retain(|open| open.span_id != span.span_id);
        if ended.is_truncated {
            entry.gone = Some(Gone {
                name: self.names.share(name),
                process,
                server: Arc::clone(&source.server),
                at_nanos,
                is_root: is_over,
            });
        } else if is_over {
            let entry = entries.swap_remove(at.unwrap_or(0));
            if entries.is_empty() {
                self.traces.remove(&span.trace_id);
            }
            if let Some(id) = entry.rollout.as_deref() {
                self.recent.insert((span.trace_id, id));
            }
            self.counts.ended += 1;
            self.left(&entry, true);
        }
    }

    /// A rollout is no longer among those under way.
    fn left(&mut self, entry: &Entry, has_ended: bool) {
        self.rollouts -= 1;
        let key = entry.task.map(|task| (Arc::clone(&entry.run), task));
        if let Some(group) = key.and_then(|key| self.groups.get_mut(&key)) {
            group.running = group.running.saturating_sub(1);
            group.ended = group.ended.saturating_add(u32::from(has_ended));
        }
        // A group at rest may go on: it is forgotten only when there are too many.
        if self.groups.len() > 2 * self.settings.max_rollouts.max(64) {
            self.groups.retain(|_, group| group.running > 0);
        }
    }

    fn missed_nanos(&self) -> u64 {
        self.settings.heartbeat_nanos.saturating_mul(HEARTBEATS_MISSED)
    }

    /// Takes out what is over although nobody said so. To be called every second or so.
    pub fn tick(&mut self, now_nanos: u64) {
        let missed_before = now_nanos.saturating_sub(self.missed_nanos());
        let forget_before = now_nanos.saturating_sub(self.settings.forget_after_nanos);
        let mut traces = std::mem::take(&mut self.traces);
        traces.retain(|_, entries| {
            entries.retain_mut(|entry| {
                self.counts.healed += heal(entry, &self.processes, missed_before);
                let gone_nanos = entry.gone.as_ref().map_or(0, |gone| gone.at_nanos);
                let stays = entry.heard_nanos.max(gone_nanos) >= forget_before;
                if !stays {
                    self.counts.expired += 1;
                    self.left(entry, false);
                }
                stays
            });
            !entries.is_empty()
        });
        self.traces = traces;
        let needed: std::collections::HashSet<ProcessId> = self
            .traces
            .values()
            .flatten()
            .flat_map(|entry| entry.open.iter().map(|open| open.process))
            .collect();
        self.processes.forget(forget_before, |id| needed.contains(&id));
        self.names.forget_unused();
    }
}

fn find(entries: &[Entry], rollout: Option<&str>) -> Option<usize> {
    let rollout = rollout.map(names::cut);
    entries.iter().position(|entry| entry.rollout.as_deref() == rollout)
}

/// Takes out spans that their process, which is heard, tells of no longer; the last one stays and becomes unknown.
fn heal(entry: &mut Entry, processes: &Processes, missed_before: u64) -> u64 {
    let before = entry.open.len();
    if entry.heard_nanos < missed_before {
        return 0;
    }
    entry.open.retain(|open| {
        open.heard_nanos >= missed_before || processes.get(open.process).heard_nanos < missed_before
    });
    (before - entry.open.len()) as u64
}
