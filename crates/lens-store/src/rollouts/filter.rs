//! Which rollouts are meant.

use std::cmp::Reverse;

use super::row::RolloutRow;
use crate::trace::is_attempt_of;

/// What rollouts must be like; what is `None` does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Beginning of the id of their run.
    pub run: Option<String>,
    /// Index of their input row.
    pub task: Option<i64>,
    /// Their id, or that of an earlier attempt.
    pub rollout: Option<String>,
    /// Beginning of the id of their trace, hex digits.
    pub trace: Option<String>,
    /// Instance that ran them.
    pub agent: Option<String>,
    /// How they ended.
    pub outcome: Option<String>,
    /// They took at least this long, without the wait for a slot.
    pub min_duration_nanos: Option<u64>,
    /// They took at most this long.
    pub max_duration_nanos: Option<u64>,
}

impl Filter {
    /// Whether a rollout is meant.
    pub fn matches(&self, row: &RolloutRow) -> bool {
        let is = |wanted: &Option<String>, has: &str| wanted.as_deref().is_none_or(|w| w == has);
        self.run.as_deref().is_none_or(|run| row.run.starts_with(run))
            && self.task.is_none_or(|task| row.task_index == Some(task))
            && self.rollout.as_deref().is_none_or(|id| is_attempt_of(&row.rollout_id, id))
            && self.trace.as_deref().is_none_or(|id| row.trace_id.to_string().starts_with(id))
            && is(&self.agent, &row.agent)
            && is(&self.outcome, &row.outcome)
            && self.min_duration_nanos.is_none_or(|least| row.duration_nanos() >= least)
            && self.max_duration_nanos.is_none_or(|most| row.duration_nanos() <= most)
    }

    /// Whether every rollout is meant.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Sorts rollouts from the slowest on; those whose times cannot be believed are the last.
pub fn slowest_first(rows: &mut [RolloutRow]) {
    let id = |row: &RolloutRow| (row.trace_id, row.root_span_id);
    rows.sort_by_key(|row| (row.time_suspect, Reverse(row.duration_nanos()), id(row)));
}
