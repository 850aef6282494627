//! One rollout in one row.

use std::sync::Arc;

use crate::Bands;
use crate::ids::{SpanId, TraceId};

/// What a policy has said of a rollout's spans. Its row stays whatever was said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kept {
    /// Nothing yet: they stay.
    #[default]
    Undecided,
    /// It failed, was repeated or was cut off.
    Notable,
    /// One of the slowest of its group.
    Slow,
    /// One of the share of the rest that is kept.
    Sampled,
    /// They are left out when files are merged.
    LetGo,
}

/// One attempt of a rollout.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutRow {
    /// Id of the run: of the collection, else of the fleet, else empty.
    pub run: Arc<str>,
    /// Index of the input row.
    pub task_index: Option<i64>,
    /// Index of the repeat.
    pub rollout_index: Option<i64>,
    /// Index of the dispatch, 0 for the first.
    pub attempt_index: i64,
    /// Wire form of its id; empty when no span has one.
    pub rollout_id: Arc<str>,
    /// Instance that ran it; empty when unknown.
    pub agent: Arc<str>,
    /// `success`, `failure`, `timeout`, `cancelled`, or empty while its root is missing or open.
    pub outcome: Arc<str>,
    /// Class of its failure, or empty.
    pub error_type: Arc<str>,
    /// Its trace, which may hold other rollouts too.
    pub trace_id: TraceId,
    /// Its topmost span; with the trace id the key of the row.
    pub root_span_id: SpanId,
    /// Start of its root, Unix nanoseconds.
    pub start_nanos: u64,
    /// Wall clock of its root: what the bands add up to.
    pub wall_nanos: u64,
    /// Waited for a slot; the duration of a rollout is its wall clock without this.
    pub admission_nanos: u64,
    /// Spans at and below its root.
    pub spans: u32,
    /// Those with status ERROR.
    pub errors: u32,
    /// Requests that were sent again.
    pub retries: u32,
    /// A span of it was not ended by its own code.
    pub is_truncated: bool,
    /// Engine timings did not fit into the call that they belong to.
    pub timings_scaled: bool,
    /// Clocks of its processes were corrected.
    pub clock_corrected: bool,
    /// Its times cannot be believed; it is in no percentile.
    pub time_suspect: bool,
    /// Where its time went.
    pub bands: Bands,
    /// Highest request number of its spans; a store puts that of all spans of its trace here, since of the rows of a
    /// trace those with the highest count.
    pub ingest_seq: u64,
    /// What the policy said.
    pub kept: Kept,
}

impl RolloutRow {
    /// Wall clock without the wait for a slot.
    pub fn duration_nanos(&self) -> u64 {
        self.wall_nanos.saturating_sub(self.admission_nanos)
    }
}
