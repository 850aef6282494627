//! What runs tell about their rollouts through spans, against agents that live in this process.

use std::time::Duration;

use bytes::Bytes;
use gym_telemetry::{groups, semconv};
use lens_otlp::encode::StatusCode;
use lens_testing::{CollectedSpan, collect_groups};
use serde_json::Value;

use super::dispatch::{AgentReply, Dispatch, DispatchError};
use super::run::{CollectOptions, Input};
use super::*;
use crate::printer::Printer;

/// Agents that take their time and answer by the task index.
struct Agents {
    takes: Duration,
    answer: fn(u64) -> (u16, Option<&'static str>),
}

const REPLY: &str = r#"{"responses_create_params":{},"response":{},"reward":0.875}"#;

impl Dispatch for Agents {
    async fn run(
        &self,
        _agent: &str,
        row: Bytes,
        _context: &lens::Context,
    ) -> Result<AgentReply, DispatchError> {
        tokio::time::sleep(self.takes).await;
        let row: Value = serde_json::from_slice(&row).expect("rows are JSON");
        let (status, error_type) = (self.answer)(row["_ng_task_index"].as_u64().expect("an index"));
        let error_type = error_type.map(str::to_owned);
        Ok(AgentReply { status, body: REPLY.into(), error_type })
    }

    async fn aggregate(
        &self,
        _agent: &str,
        _body: Bytes,
        _context: Option<&lens::Context>,
    ) -> Result<AgentReply, DispatchError> {
        Ok(AgentReply { status: 200, body: "{}".into(), error_type: None })
    }
}

fn options(folder: &std::path::Path, rows: usize) -> CollectOptions {
    let input = folder.join("in.jsonl");
    // Rows that are alike are repeats of one task.
    let row = |row| {
        format!(
            "{{\"responses_create_params\":{{\"input\":\"{row}\"}},\"agent_ref\":{{\"name\":\"a\"}}}}\n"
        )
    };
    std::fs::write(&input, (0..rows).map(row).collect::<String>()).expect("rows");
    CollectOptions::new(Some(Input::File(input)), folder.join("out.jsonl"))
}

/// Runs with spans, and gives back those of the dispatches.
fn run(options: &CollectOptions, agents: Agents) -> (CollectSummary, Vec<CollectedSpan>) {
    groups::register();
    lens::promote_baggage_keys(semconv::PROMOTED_BAGGAGE);
    let (summary, mut spans) = collect_groups("job,rollout", || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let printer = Printer::from_terminal().quieted();
        runtime.expect("a runtime").block_on(async {
            let names = ["a".to_owned()];
            let run = PreparedRun::prepare(options.clone(), &names, &printer).expect("prepared");
            let (_canceller, cancel) = cancellation();
            let parent = lens::Context::empty();
            run.collect(agents, true, &parent, &printer, cancel).await.expect("a run")
        })
    });
    // Other tests of this program make rollouts meanwhile.
    spans.retain(|span| {
        span.name == semconv::span::ROLLOUT_ATTEMPT
            && span.text(semconv::COLLECTION_ID) == summary.collection_id
    });
    (summary, spans)
}

fn number(span: &CollectedSpan, key: &str) -> u64 {
    span.attributes.get(key).and_then(Value::as_u64).unwrap_or_default()
}

/// Guarantees: who looks for the slow part of a run finds that rollouts wait, not that they are slow.
#[test]
fn rollouts_that_wait_for_a_slot_wait_longer_and_take_no_longer() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = options(folder.path(), 100);
    options.concurrency = Some(10);
    let takes = Duration::from_millis(50);
    let (summary, spans) = run(&options, Agents { takes, answer: |_| (200, None) });
    assert_eq!((summary.done, spans.len()), (100, 100));
    let millis_of = |span: &CollectedSpan| {
        let wait = number(span, semconv::ADMISSION_WAIT_NANOS);
        let took = (span.end_nanos - span.start_nanos).checked_sub(wait);
        (wait / 1_000_000, took.expect("the wait is a part of the span") / 1_000_000)
    };
    let mut rollouts: Vec<(u64, u64)> = spans.iter().map(millis_of).collect();
    assert!(rollouts.iter().all(|(_, took)| *took >= 49), "{rollouts:?}");
    rollouts.sort_unstable();
    let (at_once, waited): (Vec<_>, Vec<_>) = rollouts.iter().partition(|(wait, _)| *wait < 30);
    // The driver looks a quarter of its slots ahead: two rows wait while ten rollouts are made.
    assert!(waited.len() >= 10, "{rollouts:?}");
    let median = |rollouts: &[(u64, u64)]| {
        let mut took: Vec<u64> = rollouts.iter().map(|(_, took)| *took).collect();
        took.sort_unstable();
        took[took.len() / 2]
    };
    for rollouts in [at_once, waited] {
        let usual = median(&rollouts);
        assert!((49..80).contains(&usual), "whoever waited takes as long: {usual} ms");
    }
    let told = summary.duration_millis.expect("durations").p50;
    assert!((49.0..80.0).contains(&told), "the summary leaves the wait out: {told} ms");
}

#[test]
fn a_rollout_that_failed_says_so_on_its_root_and_the_summary_names_its_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(folder.path(), 4);
    let answer = |task| match task {
        1 => (500, None),
        2 => (500, Some("idle_timeout")),
        _ => (200, None),
    };
    let (summary, spans) = run(&options, Agents { takes: Duration::ZERO, answer });
    let told = |task: u64| {
        let span = spans.iter().find(|span| number(span, semconv::TASK_INDEX) == task);
        let span = span.expect("a root");
        assert!(span.parent_id.is_none());
        let text = |key| span.text(key).to_owned();
        (text(semconv::ROLLOUT_OUTCOME), text(semconv::ERROR_TYPE), span.status, &span.trace_id)
    };
    let (outcome, error_type, status, _) = told(0);
    assert_eq!((&*outcome, &*error_type, status), ("success", "", StatusCode::Unset));
    let (outcome, error_type, status, failed) = told(1);
    assert_eq!((&*outcome, &*error_type, status), ("failure", "500", StatusCode::Error));
    let (outcome, error_type, status, late) = told(2);
    assert_eq!((&*outcome, &*error_type, status), ("timeout", "idle_timeout", StatusCode::Error));
    let text = summary.text();
    for (trace, rollout) in [(failed, "1-0"), (late, "2-0")] {
        assert!(text.contains(&format!("  trace     {trace} of {rollout}\n")), "{text}");
    }
    let named = summary.failed_traces.iter().map(|failed| &failed.trace_id);
    assert_eq!(named.collect::<std::collections::BTreeSet<_>>(), [failed, late].into());
    for span in &spans {
        let text = format!("{span:?}");
        assert!(!text.contains("reward") && !text.contains("0.875"), "{text}");
    }
}

#[test]
fn a_later_attempt_links_to_the_trace_of_the_one_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = options(folder.path(), 2);
    let fails = |task| if task == 1 { (503, None) } else { (200, None) };
    let (_, first) = run(&options, Agents { takes: Duration::ZERO, answer: fails });
    let failed = first.iter().find(|span| number(span, semconv::TASK_INDEX) == 1);
    let failed = failed.expect("a root");
    options.resume = true;
    let (_, second) = run(&options, Agents { takes: Duration::ZERO, answer: fails });
    // The first run's dispatches have the same collection, but are not received again.
    let [again] = &second[..] else { panic!("one rollout is made again: {second:#?}") };
    assert_eq!(again.text(semconv::ROLLOUT_ID), "1-0-a1");
    assert_ne!(again.trace_id, failed.trace_id);
    let links = |to: &CollectedSpan| {
        let is_it = |link: &&lens_testing::CollectedLink| {
            (&link.trace_id, &link.span_id) == (&to.trace_id, &to.span_id)
        };
        again.links.iter().filter(is_it).count()
    };
    assert_eq!((links(failed), again.links.len()), (1, 2), "to it, and to the job");
    let (_, third) = run(&options, Agents { takes: Duration::ZERO, answer: |_| (200, None) });
    let [last] = &third[..] else { panic!("made once more: {third:#?}") };
    assert_eq!(last.text(semconv::ROLLOUT_ID), "1-0-a2");
    assert!(last.links.iter().any(|link| link.trace_id == again.trace_id), "the latest before it");
}
