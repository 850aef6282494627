//! Runs: what was collected together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::aggregate::Aggregate;
use super::row::RolloutRow;

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Id of the collection, else of the fleet; empty when no rollout says one.
    pub id: Arc<str>,
    /// Start of its first rollout, Unix nanoseconds; zero when no time can be believed.
    pub start_nanos: u64,
    /// End of its last rollout.
    pub end_nanos: u64,
    /// Input rows.
    pub tasks: usize,
    /// Different rollouts; each may have several attempts.
    pub rollouts: usize,
    /// Instances that ran them.
    pub agents: Vec<Arc<str>>,
    /// All attempts summed up.
    pub all: Aggregate,
}

/// The runs of these rollouts, the latest first.
pub fn runs(rows: &[RolloutRow]) -> Vec<Run> {
    let mut of_run: BTreeMap<&Arc<str>, Vec<RolloutRow>> = BTreeMap::new();
    for row in rows {
        of_run.entry(&row.run).or_default().push(row.clone());
    }
    let mut runs: Vec<Run> = of_run.into_iter().map(|(id, rows)| run(id, &rows)).collect();
    runs.sort_by(|one, other| other.start_nanos.cmp(&one.start_nanos).then(one.id.cmp(&other.id)));
    runs
}

fn run(id: &Arc<str>, rows: &[RolloutRow]) -> Run {
    let believed = || rows.iter().filter(|row| !row.time_suspect);
    let tasks: BTreeSet<i64> = rows.iter().filter_map(|row| row.task_index).collect();
    let named: BTreeSet<(i64, i64)> =
        rows.iter().filter_map(|row| row.task_index.zip(row.rollout_index)).collect();
    let nameless =
        rows.iter().filter(|row| row.task_index.zip(row.rollout_index).is_none()).count();
    let agents: BTreeSet<&Arc<str>> =
        rows.iter().map(|row| &row.agent).filter(|agent| !agent.is_empty()).collect();
    let end = |row: &RolloutRow| row.start_nanos.saturating_add(row.wall_nanos);
    Run {
        id: Arc::clone(id),
        start_nanos: believed().map(|row| row.start_nanos).min().unwrap_or(0),
        end_nanos: believed().map(end).max().unwrap_or(0),
        tasks: tasks.len(),
        rollouts: named.len() + nameless,
        agents: agents.into_iter().cloned().collect(),
        all: Aggregate::of(rows),
    }
}
