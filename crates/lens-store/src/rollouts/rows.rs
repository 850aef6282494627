//! Rows from traces.
//!
//! Whatever lies below the root of a rollout belongs to it, with or without ids of its own; a foreign trace with many
//! rollouts gives many rows. What a rollout says of itself is taken from the first span that says it.

use std::sync::Arc;

use gym_telemetry::semconv;
use gym_telemetry::semconv::value::outcome;
use lens_otlp::view::AnyValue;

use super::row::{Kept, RolloutRow};
use crate::buckets::sort_large;
use crate::raw::{RawSpan, fetch};
use crate::trace::{Reader, Rollout, Said, Span, Status, Traces, bands_of, role};

/// Spans whose messages are fetched into the cache together.
const FETCHED: usize = 64;
const DAY_NANOS: u64 = 86_400_000_000_000;
/// What begins longer than this before it arrives has a time that cannot be believed.
const OLDEST_NANOS: u64 = 30 * DAY_NANOS;

/// Whether times cannot be believed: later than a day after the arrival, or longer than 30 days before it. Where nobody
/// knows when a span arrived only what ends before it begins, has no start or takes longer than 30 days is suspect.
pub fn is_time_suspect(start_nanos: u64, end_nanos: u64, arrived_nanos: Option<u64>) -> bool {
    let takes_too_long = end_nanos.saturating_sub(start_nanos) > OLDEST_NANOS;
    let is_off = arrived_nanos.is_some_and(|arrived| {
        end_nanos > arrived.saturating_add(DAY_NANOS)
            || start_nanos < arrived.saturating_sub(OLDEST_NANOS)
    });
    start_nanos == 0 || end_nanos < start_nanos || takes_too_long || is_off
}

/// The rollouts of one trace. Spans that are malformed are passed over.
pub fn rows_of_spans(
    reader: &mut Reader,
    mut spans: Vec<RawSpan>,
    arrived_nanos: Option<u64>,
) -> Vec<RolloutRow> {
    // The order in which they are put together; they are larger when they are read.
    sort_large(&mut spans, |span| span.span_id.number());
    let mut read = Vec::with_capacity(spans.len());
    let mut spans = spans.into_iter();
    while let Some(last) = spans.len().min(FETCHED).checked_sub(1) {
        fetch(&spans.as_slice()[..=last]);
        for raw in spans.by_ref().take(FETCHED) {
            if let Ok(span) = reader.read(raw) {
                read.push(span);
            }
        }
    }
    rows_of(&Traces::assemble(read), arrived_nanos)
}

/// All rollouts of these traces, in order of time.
pub fn rows_of(traces: &Traces, arrived_nanos: Option<u64>) -> Vec<RolloutRow> {
    traces
        .rollouts()
        .map(|(trace, rollout)| row_of(traces, trace, rollout, arrived_nanos))
        .collect()
}

/// One rollout of an assembled trace.
pub fn row_of(
    traces: &Traces,
    trace: usize,
    rollout: &Rollout,
    arrived_nanos: Option<u64>,
) -> RolloutRow {
    let tree = &traces.traces[trace].tree;
    let root_node = &tree.nodes[rollout.node];
    let root = &traces.spans[root_node.span];
    let partition = bands_of(traces, trace, rollout);
    let bands = partition.bands();
    let mut said = Sayings::default();
    let (mut spans, mut errors, mut retries) = (0_usize, 0_u32, 0_u64);
    let (mut is_truncated, mut clock_corrected, mut ingest_seq) = (false, false, 0);
    for node in &tree.nodes[rollout.node..root_node.end] {
        let span = &traces.spans[node.span];
        spans += 1 + node.folded;
        errors += u32::from(span.status == Status::Error);
        is_truncated |= span.is_truncated;
        clock_corrected |= node.shift_nanos != root_node.shift_nanos;
        ingest_seq = ingest_seq.max(span.raw.ingest_seq);
        if span.said.has(Said::RESENT) {
            retries += span.count(semconv::HTTP_REQUEST_RESEND_COUNT).unwrap_or(0);
        }
        said.hear(span);
    }
    let empty: Arc<str> = Arc::from("");
    let shared = |text: Option<&str>| text.map_or_else(|| Arc::clone(&empty), Arc::from);
    let rollout_id = rollout.id.clone().unwrap_or_else(|| Arc::clone(&empty));
    let in_id = Indices::of_id(&rollout_id);
    let run = said.collection.or_else(|| Some(&*root.resource.run).filter(|run| !run.is_empty()));
    let (outcome, error_type) = ending(root, &said);
    RolloutRow {
        run: shared(run),
        task_index: said.task_index.or(in_id.task),
        rollout_index: said.rollout_index.or(in_id.rollout),
        attempt_index: said.attempt_index.unwrap_or(in_id.attempt),
        agent: shared(said.agent.or(said.called)),
        outcome: shared(Some(outcome)),
        error_type: shared(error_type),
        rollout_id,
        trace_id: root.raw.trace_id,
        root_span_id: root.raw.span_id,
        start_nanos: root.raw.start_nanos,
        wall_nanos: root_node.duration_nanos(),
        admission_nanos: bands[crate::Band::Admission],
        spans: u32::try_from(spans).unwrap_or(u32::MAX),
        errors,
        retries: u32::try_from(retries).unwrap_or(u32::MAX),
        is_truncated,
        timings_scaled: partition.timings_scaled,
        clock_corrected,
        time_suspect: root.ends_before_start
            || is_time_suspect(root.raw.start_nanos, root.end_nanos, arrived_nanos),
        bands,
        ingest_seq,
        kept: Kept::Undecided,
    }
}

/// How it ended, and the class of its failure. Other software says no outcome: its status tells.
fn ending<'a>(root: &'a Span, said: &Sayings<'a>) -> (&'a str, Option<&'a str>) {
    let error_type = |span: &'a Span| {
        span.said.has(Said::FAILURE).then(|| span.text(semconv::ERROR_TYPE)).flatten()
    };
    let error_type = error_type(root).or_else(|| said.ended.and_then(error_type));
    if let Some(outcome) = said.ended.and_then(|span| span.text(semconv::ROLLOUT_OUTCOME)) {
        return (outcome, error_type);
    }
    let is_cancelled = || {
        root.said.has(Said::FAILURE)
            && matches!(root.attribute(semconv::CANCELLED), Some(AnyValue::Bool(true)))
    };
    let outcome = match root.status {
        _ if root.is_truncated => "",
        _ if is_cancelled() => outcome::CANCELLED,
        Status::Error => outcome::FAILURE,
        _ => outcome::SUCCESS,
    };
    (outcome, error_type)
}

/// What the spans of a rollout say of it, each from the first that says it.
#[derive(Default)]
struct Sayings<'a> {
    is_indexed: bool,
    task_index: Option<i64>,
    rollout_index: Option<i64>,
    attempt_index: Option<i64>,
    collection: Option<&'a str>,
    /// The instance of an agent that has a span.
    agent: Option<&'a str>,
    /// The instance that the driver called.
    called: Option<&'a str>,
    /// Says how it ended.
    ended: Option<&'a Span>,
}

impl<'a> Sayings<'a> {
    fn hear(&mut self, span: &'a Span) {
        if !self.is_indexed && span.said.has(Said::INDEX) {
            self.is_indexed = true;
            self.read_indices(span);
        }
        match span.resource.role {
            Some(role::AGENT) if self.agent.is_none() => self.agent = Some(&span.resource.instance),
            Some(role::DRIVER) if self.called.is_none() && span.said.has(Said::DESTINATION) => {
                self.called = span.text(semconv::HTTP_DESTINATION_SERVER_NAME);
            }
            _ => {}
        }
        if self.ended.is_none() && span.said.has(Said::OUTCOME) {
            self.ended = Some(span);
        }
    }

    fn read_indices(&mut self, span: &'a Span) {
        let Ok(view) = span.raw.view() else { return };
        for (key, value) in view.attributes().map_while(Result::ok) {
            match (key, value) {
                (semconv::TASK_INDEX, value) => self.task_index = index(&value),
                (semconv::ROLLOUT_INDEX, value) => self.rollout_index = index(&value),
                (semconv::ATTEMPT_INDEX, value) => self.attempt_index = index(&value),
                (semconv::COLLECTION_ID, AnyValue::String(id)) => self.collection = Some(id),
                _ => {}
            }
        }
    }
}

/// An index; baggage is text, and some forward it as it is.
fn index(value: &AnyValue<'_>) -> Option<i64> {
    match value {
        AnyValue::Int(number) => Some(*number),
        AnyValue::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// The indices in `<task>-<rollout>`, `<task>-<rollout>-a<attempt>`.
#[derive(Default)]
struct Indices {
    task: Option<i64>,
    rollout: Option<i64>,
    attempt: i64,
}

impl Indices {
    fn of_id(id: &str) -> Self {
        let parsed = || {
            let (task, rest) = id.split_once('-')?;
            let (rollout, attempt) = match rest.split_once("-a") {
                Some((rollout, attempt)) => (rollout, attempt.parse().ok()?),
                None => (rest, 0),
            };
            Some(Self {
                task: Some(task.parse().ok()?),
                rollout: Some(rollout.parse().ok()?),
                attempt,
            })
        };
        parsed().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
