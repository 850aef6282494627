//! Which rollouts keep their spans. Their rows are kept whatever is decided, so counts, percentiles and bands come from
//! all of them.
//!
//! Everything is stored first. A rollout that failed, was sent again or was cut off is marked as soon as it is complete;
//! the others when their run has ended, since only then it is known which are the slowest of their task. Marks are
//! rows of rollouts that say the same otherwise. Merging leaves the spans of a trace out when all its rollouts were let
//! go; nothing else ever does.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use gym_telemetry::semconv::value::outcome;

use super::commit::Change;
use super::date::Day;
use super::error::StoreError;
use super::files::NewFiles;
use super::flush::write_records;
use super::rows::newest;
use super::{Shared, Snapshot, locked};
use crate::ids::TraceId;
use crate::rollouts::{Filter, Kept, RolloutRow};

/// What is kept of the rollouts of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// Share of those that nothing speaks for, 0 to 1; chosen by their trace ids.
    pub share: f64,
    /// So many of each task, the slowest.
    pub slowest_per_task: usize,
    /// A rollout is complete when its root has ended and nothing of it was received for so long.
    pub quiet: Duration,
    /// A run has ended when nothing of it was received for so long.
    pub run_quiet: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            share: 1.0,
            slowest_per_task: 1,
            quiet: Duration::from_secs(30),
            run_quiet: Duration::from_secs(600),
        }
    }
}

/// A row of a rollout, and when its trace was received last, at the latest; Unix nanoseconds.
#[derive(Clone, Debug)]
struct Known {
    row: RolloutRow,
    arrived_nanos: u64,
}

/// Chosen by the id alone, so that it is chosen everywhere.
fn is_sampled(id: TraceId, share: f64) -> bool {
    let mixed =
        (id.number() as u64 ^ (id.number() >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed >> 11) as f64) < share * (1_u64 << 53) as f64
}

fn is_notable(row: &RolloutRow) -> bool {
    &*row.outcome != outcome::SUCCESS
        || !row.error_type.is_empty()
        || row.retries > 0
        || row.attempt_index > 0
        || row.is_truncated
        || row.time_suspect
}

/// The rows whose marks change, with these.
fn decide(
    policy: &Policy,
    known: &[Known],
    busy: &HashSet<Arc<str>>,
    now_nanos: u64,
) -> Vec<Known> {
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let is_quiet =
        |arrived: u64, for_so_long| now_nanos.saturating_sub(arrived) >= nanos(for_so_long);
    let mut runs: BTreeMap<&str, Vec<&Known>> = BTreeMap::new();
    for one in known {
        runs.entry(&one.row.run).or_default().push(one);
    }
    let mut marked = Vec::new();
    let mut mark = |one: &Known, kept| {
        if one.row.kept == Kept::Undecided {
            marked.push(Known { row: RolloutRow { kept, ..one.row.clone() }, ..one.clone() });
        }
    };
    for (run, of_run) in runs {
        let last = of_run.iter().map(|one| one.arrived_nanos).max().unwrap_or(0);
        let has_ended = is_quiet(last, policy.run_quiet) && !busy.contains(run);
        let mut tasks: BTreeMap<Option<i64>, Vec<&Known>> = BTreeMap::new();
        for one in of_run {
            let is_complete =
                !one.row.outcome.is_empty() && is_quiet(one.arrived_nanos, policy.quiet);
            if is_complete && is_notable(&one.row) || has_ended && !is_complete {
                mark(one, Kept::Notable);
            }
            tasks.entry(one.row.task_index).or_default().push(one);
        }
        if !has_ended {
            continue;
        }
        for mut of_task in tasks.into_values() {
            of_task.sort_by_key(|one| {
                let id = (one.row.trace_id, one.row.root_span_id);
                (std::cmp::Reverse(one.row.duration_nanos()), id)
            });
            for (nth, one) in of_task.into_iter().enumerate() {
                if is_notable(&one.row) {
                    continue;
                }
                mark(
                    one,
                    match () {
                        () if nth < policy.slowest_per_task => Kept::Slow,
                        () if is_sampled(one.row.trace_id, policy.share) => Kept::Sampled,
                        () => Kept::LetGo,
                    },
                );
            }
        }
    }
    marked
}

impl Shared {
    /// Marks rollouts that can be decided; returns how many were let go.
    pub(super) fn mark_rollouts(&self) -> Result<usize, StoreError> {
        let Some(policy) = self.options.policy else { return Ok(0) };
        let snapshot = Snapshot::new(self);
        let now_nanos = self.options.clock.now_nanos();
        let fresh: HashSet<TraceId> = snapshot.memory_traces().into_iter().map(|t| t.0).collect();
        let busy: HashSet<Arc<str>> = match fresh.is_empty() {
            true => HashSet::new(),
            false => (snapshot.rollout_rows(&Filter::default())?.into_iter())
                .filter(|row| fresh.contains(&row.trace_id))
                .map(|row| row.run)
                .collect(),
        };
        let mut arrivals: HashMap<TraceId, u64> = HashMap::new();
        let mut rows = Vec::new();
        for segment in snapshot.segments() {
            let of_segment = segment.rollouts().map(<[_]>::to_vec);
            for row in snapshot.unless_damaged(segment, of_segment)? {
                let arrived = arrivals.entry(row.trace_id).or_default();
                *arrived = (*arrived).max(segment.entry().arrived_nanos);
                rows.push(row);
            }
        }
        let known: Vec<Known> = newest(rows)
            .into_iter()
            .filter(|row| !fresh.contains(&row.trace_id))
            .map(|row| Known { arrived_nanos: arrivals[&row.trace_id], row })
            .collect();
        let marked = decide(&policy, &known, &busy, now_nanos);
        if marked.is_empty() {
            return Ok(0);
        }
        let let_go = marked.iter().filter(|one| one.row.kept == Kept::LetGo).count();
        let arrived_nanos = marked.iter().map(|one| one.arrived_nanos).max().unwrap_or(0);
        let mut days: BTreeMap<Day, Vec<RolloutRow>> = BTreeMap::new();
        for Known { row, arrived_nanos } in marked {
            days.entry(Day::of(row.start_nanos, arrived_nanos)).or_default().push(row);
        }
        let mut files = NewFiles::new(&self.options.vfs, &self.folder);
        for (day, rows) in days {
            files.begin(locked(&self.upkeep).take_number(), 0, day);
            if let Some(entry) = files.entry() {
                // Marking is no arrival.
                entry.arrived_nanos = arrived_nanos;
            }
            write_records(&mut files, rows, Vec::new(), Vec::new())?;
        }
        let change = Change { added: files.finish()?, ..Change::default() };
        self.commit(&mut locked(&self.upkeep), change, |manifest| {
            manifest.removed.rollouts_let_go += let_go as u64;
        })?;
        Ok(let_go)
    }
}

/// Traces whose rollouts were all let go, with how many spans these had.
pub(super) fn let_go(snapshot: &Snapshot) -> Result<HashMap<TraceId, u64>, StoreError> {
    let mut traces: HashMap<TraceId, u64> = HashMap::new();
    let mut kept: HashSet<TraceId> = HashSet::new();
    for row in newest(snapshot.stored_rows()?) {
        match row.kept {
            Kept::LetGo => *traces.entry(row.trace_id).or_default() += u64::from(row.spans),
            _ => drop(kept.insert(row.trace_id)),
        }
    }
    traces.retain(|id, _| !kept.contains(id));
    Ok(traces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(trace: u8, task: i64, millis: u64, outcome: &str) -> RolloutRow {
        RolloutRow {
            run: "run".into(),
            task_index: Some(task),
            rollout_index: Some(i64::from(trace)),
            attempt_index: 0,
            rollout_id: "".into(),
            agent: "".into(),
            outcome: outcome.into(),
            error_type: "".into(),
            trace_id: TraceId::from_bytes(&[trace; 16]).unwrap(),
            root_span_id: crate::ids::SpanId::from_bytes(&[trace; 8]).unwrap(),
            start_nanos: 1,
            wall_nanos: millis * 1_000_000,
            admission_nanos: 0,
            spans: 3,
            errors: 0,
            retries: 0,
            is_truncated: false,
            timings_scaled: false,
            clock_corrected: false,
            time_suspect: false,
            bands: crate::Bands::default(),
            ingest_seq: 1,
            kept: Kept::Undecided,
        }
    }

    fn marks(rows: &[RolloutRow], busy: &[&str], seconds: u64) -> Vec<(u8, Kept)> {
        let policy = Policy { share: 0.0, ..Policy::default() };
        let known: Vec<Known> =
            rows.iter().map(|row| Known { row: row.clone(), arrived_nanos: 1_000 }).collect();
        let busy = busy.iter().map(|run| Arc::from(*run)).collect();
        let mut marks: Vec<_> = decide(&policy, &known, &busy, 1_000 + seconds * 1_000_000_000)
            .into_iter()
            .map(|one| (one.row.trace_id.to_bytes()[0], one.row.kept))
            .collect();
        marks.sort_by_key(|mark| mark.0);
        marks
    }

    #[test]
    fn what_is_notable_is_marked_when_it_is_complete_and_the_rest_when_the_run_has_ended() {
        let rows = [
            row(1, 0, 5, outcome::SUCCESS),
            row(2, 0, 9, outcome::SUCCESS),
            row(3, 0, 50, outcome::FAILURE),
            RolloutRow { retries: 1, ..row(4, 1, 1, outcome::SUCCESS) },
            RolloutRow { is_truncated: true, ..row(5, 1, 1, outcome::SUCCESS) },
            row(6, 1, 2, outcome::SUCCESS),
            row(7, 1, 3, ""),
            row(8, 1, 2, outcome::SUCCESS),
        ];
        assert_eq!(marks(&rows, &[], 29), []);
        let notable = [(3, Kept::Notable), (4, Kept::Notable), (5, Kept::Notable)];
        assert_eq!(marks(&rows, &[], 30), notable);
        assert_eq!(marks(&rows, &["run"], 600), notable, "more of the run is in memory");
        let (slow, gone) = (Kept::Slow, Kept::LetGo);
        let mut all = notable.to_vec();
        // The slowest of both tasks are notable already; what never ended is so too.
        all.extend([(1, gone), (2, gone), (6, gone), (7, Kept::Notable), (8, gone)]);
        all.sort_by_key(|mark| mark.0);
        assert_eq!(marks(&rows, &[], 600), all);
        let rows = &rows[..2];
        assert_eq!(marks(rows, &[], 600), [(1, gone), (2, slow)]);
        let decided = rows.iter().map(|row| RolloutRow { kept: Kept::Sampled, ..row.clone() });
        assert_eq!(marks(&decided.collect::<Vec<_>>(), &[], 600), [], "once is enough");
    }

    #[test]
    fn the_share_is_chosen_by_the_id_alone() {
        let ids = |nth: u64| {
            let bytes = (u128::from(nth) << 64 | u128::from(nth.wrapping_mul(77))).to_be_bytes();
            TraceId::from_bytes(&bytes).unwrap()
        };
        let chosen = |share| (1..10_000).filter(|nth| is_sampled(ids(*nth), share)).count();
        assert_eq!((chosen(0.0), chosen(1.0)), (0, 9_999));
        let tenth = chosen(0.1);
        assert!((900..1_100).contains(&tenth), "{tenth}");
    }
}
