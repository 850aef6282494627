//! Whole runs against agents that live in this process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::Notify;

use super::dispatch::{AgentReply, Dispatch, DispatchError, class};
use super::run::{CollectOptions, Input};
use super::*;
use crate::printer::Printer;

type Answer = Result<(u16, String), DispatchError>;

/// Agents that answer by a function of the task index.
struct FakeAgents {
    answer: Box<dyn Fn(u64) -> Option<Answer> + Send + Sync>,
    running: AtomicUsize,
    most_running: Arc<AtomicUsize>,
    started: Arc<Notify>,
    metrics_body: Arc<std::sync::Mutex<String>>,
}

impl FakeAgents {
    /// `None` is an agent that never answers.
    fn new(answer: impl Fn(u64) -> Option<Answer> + Send + Sync + 'static) -> FakeAgents {
        FakeAgents {
            answer: Box::new(answer),
            running: AtomicUsize::new(0),
            most_running: Arc::default(),
            started: Arc::default(),
            metrics_body: Arc::default(),
        }
    }

    fn good() -> FakeAgents {
        FakeAgents::new(|_| Some(Ok((200, good_reply()))))
    }
}

fn good_reply() -> String {
    r#"{"responses_create_params":{},"response":{"usage":{"total_tokens":2}},"reward":1.0}"#
        .to_owned()
}

impl Dispatch for FakeAgents {
    async fn run(
        &self,
        _agent: &str,
        row: Bytes,
        _context: &lens::Context,
    ) -> Result<AgentReply, DispatchError> {
        let row: Value = serde_json::from_slice(&row).expect("rows are JSON");
        let running = self.running.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_running.fetch_max(running, Ordering::Relaxed);
        self.started.notify_one();
        tokio::task::yield_now().await;
        let answer = (self.answer)(row["_ng_task_index"].as_u64().expect("an index"));
        let Some(answer) = answer else { return std::future::pending().await };
        self.running.fetch_sub(1, Ordering::Relaxed);
        let (status, body) = answer?;
        Ok(AgentReply { status, body: body.into(), error_type: None })
    }

    async fn aggregate(
        &self,
        _agent: &str,
        body: Bytes,
        _context: Option<&lens::Context>,
    ) -> Result<AgentReply, DispatchError> {
        *self.metrics_body.lock().unwrap() = String::from_utf8(body.to_vec()).unwrap();
        let body = r#"{"key_metrics":{"mean/reward":1.0}}"#;
        Ok(AgentReply { status: 200, body: body.into(), error_type: None })
    }
}

struct Fixture {
    dir: tempfile::TempDir,
    options: CollectOptions,
}

impl Fixture {
    fn with_rows(count: usize) -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let input = dir.path().join("in.jsonl");
        let rows: String = (0..count)
            .map(|row| format!("{{\"responses_create_params\":{{\"input\":\"{row}\"}},\"agent_ref\":{{\"name\":\"a\"}}}}\n"))
            .collect();
        std::fs::write(&input, rows).unwrap();
        let options = CollectOptions::new(Some(Input::File(input)), dir.path().join("out.jsonl"));
        Fixture { dir, options }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn rows(&self, name: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path(name)).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'), "{name} ends with a whole line");
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn run(&self, agents: FakeAgents) -> Result<CollectSummary, CollectError> {
        let (_canceller, cancel) = cancellation();
        self.run_cancelled(agents, cancel, async {})
    }

    /// Runs with `beside` going on at the same time.
    fn run_cancelled(
        &self,
        agents: FakeAgents,
        cancel: Cancel,
        beside: impl Future<Output = ()>,
    ) -> Result<CollectSummary, CollectError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let printer = Printer::from_terminal().quieted();
        let names = ["a".to_owned()];
        runtime.block_on(async {
            let prepared = PreparedRun::prepare(self.options.clone(), &names, &printer)?;
            let parent = lens::Context::empty();
            let run = prepared.collect(agents, false, &parent, &printer, cancel);
            tokio::join!(run, beside).0
        })
    }
}

fn tasks(rows: &[Value]) -> Vec<u64> {
    let mut tasks: Vec<u64> =
        rows.iter().map(|row| row["_ng_task_index"].as_u64().unwrap()).collect();
    tasks.sort_unstable();
    tasks
}

#[test]
fn every_rollout_gets_one_line_and_no_more_than_allowed_are_in_flight() {
    let mut fixture = Fixture::with_rows(50);
    fixture.options.concurrency = Some(7);
    let agents = FakeAgents::good();
    let most_running = Arc::clone(&agents.most_running);
    let metrics_body = Arc::clone(&agents.metrics_body);
    let summary = fixture.run(agents).unwrap();
    assert_eq!(
        (summary.done, summary.failed, summary.unmade, summary.interrupted),
        (50, 0, 0, false)
    );
    assert_eq!(most_running.load(Ordering::Relaxed), 7);
    assert_eq!(tasks(&fixture.rows("out.jsonl")), (0..50).collect::<Vec<_>>());
    assert_eq!(fixture.rows("out_failures.jsonl").len(), 0);
    assert_eq!(fixture.rows("out_materialized_inputs.jsonl").len(), 50);
    let metrics: Value = serde_json::from_str(&metrics_body.lock().unwrap()).unwrap();
    assert_eq!(metrics["verify_responses"].as_array().unwrap().len(), 50);
    assert_eq!(metrics["verify_responses"][49]["_ng_task_index"], 49);
    assert_eq!(metrics["verify_responses"][0]["response"]["usage"]["total_tokens"], 2);
    let written: Value =
        serde_json::from_slice(&std::fs::read(fixture.path("out_aggregate_metrics.json")).unwrap())
            .unwrap();
    assert_eq!(written[0]["key_metrics"]["mean/reward"], 1.0);
}

#[test]
fn a_rollout_that_fails_becomes_a_line_and_the_run_goes_on() {
    let fixture = Fixture::with_rows(5);
    let agents = FakeAgents::new(|task| {
        Some(match task {
            1 => Ok((500, "\"boom\"".to_owned())),
            2 => Ok((200, "<html>".to_owned())),
            3 => Err(DispatchError {
                class: class::TRANSPORT_ERROR,
                error_type: "connection_broken".to_owned(),
                message: "the connection broke".to_owned(),
            }),
            _ => Ok((200, good_reply())),
        })
    });
    let summary = fixture.run(agents).unwrap();
    assert_eq!((summary.done, summary.failed), (2, 3));
    let mut failures = fixture.rows("out_failures.jsonl");
    failures.sort_by_key(|row| row["_ng_task_index"].as_u64());
    let told: Vec<String> = failures
        .iter()
        .map(|row| format!("{}: {}", row["_ng_failure_class"], row["_ng_failure_message"]))
        .collect();
    insta::assert_snapshot!(told.join("\n"), @r#"
    "http_error": "the agent answered 500: boom"
    "invalid_reply": "the reply is not a JSON object (expected value, column 1): <html>"
    "transport_error": "the connection broke"
    "#);
    assert_eq!(failures[0]["responses_create_params"]["input"], "1");
    assert_eq!(failures[0]["agent_ref"]["name"], "a");
    assert_eq!(failures[0]["_ng_rollout_index"], 0);
}

#[test]
fn results_go_where_their_agent_says() {
    let fixture = Fixture::with_rows(3);
    let agents = FakeAgents::new(|task| {
        let more = match task {
            0 => ",\"_ng_failure_class\":\"judge_failed\",\"_ng_failure_judge_error\":\"X: y\"",
            1 => ",\"_ng_no_persist\":true",
            _ => "",
        };
        Some(Ok((200, format!("{{\"reward\":0.0{more}}}"))))
    });
    let summary = fixture.run(agents).unwrap();
    assert_eq!((summary.done, summary.failed, summary.not_kept, summary.unmade), (1, 1, 1, 0));
    assert_eq!(tasks(&fixture.rows("out.jsonl")), [2]);
    assert_eq!(tasks(&fixture.rows("out_failures.jsonl")), [0]);
    assert_eq!(summary.failures[0].first_message.as_deref(), Some("X: y"));
}

#[test]
fn a_resumed_run_makes_what_is_missing_under_the_same_id() {
    let mut fixture = Fixture::with_rows(6);
    let first = fixture.run(FakeAgents::new(|task| {
        Some(if task % 2 == 0 { Ok((200, good_reply())) } else { Ok((503, String::new())) })
    }));
    let first = first.unwrap();
    assert_eq!((first.done, first.failed), (3, 3));
    // An interrupted write leaves part of a line.
    let mut output =
        std::fs::OpenOptions::new().append(true).open(fixture.path("out.jsonl")).unwrap();
    std::io::Write::write_all(&mut output, b"{\"_ng_task_index\":1,\"_ng_ro").unwrap();

    fixture.options.resume = true;
    let agents = FakeAgents::good();
    let metrics_body = Arc::clone(&agents.metrics_body);
    let second = fixture.run(agents).unwrap();
    assert_eq!((second.done, second.failed, second.skipped), (3, 0, 3));
    assert_eq!(second.collection_id, first.collection_id);
    let rows = fixture.rows("out.jsonl");
    assert_eq!(tasks(&rows), [0, 1, 2, 3, 4, 5]);
    let retried = rows.iter().find(|row| row["_ng_task_index"] == 1).unwrap();
    assert_eq!(retried["_ng_attempt_index"], 1);
    let metrics: Value = serde_json::from_str(&metrics_body.lock().unwrap()).unwrap();
    assert_eq!(
        metrics["verify_responses"].as_array().unwrap().len(),
        6,
        "results of both runs count"
    );

    fixture.options.resume = false;
    let third = fixture.run(FakeAgents::good()).unwrap();
    assert_ne!(third.collection_id, first.collection_id);
    assert_eq!(fixture.rows("out.jsonl").len(), 6, "a new run starts with an empty output");
    assert_eq!(fixture.rows("out_failures.jsonl").len(), 3, "and leaves the failures");
}

#[test]
fn a_rollout_that_failed_too_often_is_given_up() {
    let mut fixture = Fixture::with_rows(1);
    let failing = || FakeAgents::new(|_| Some(Ok((500, String::new()))));
    fixture.options.max_attempts = 2;
    assert_eq!(fixture.run(failing()).unwrap().failed, 1);
    fixture.options.resume = true;
    assert_eq!(fixture.run(failing()).unwrap().failed, 1);
    let last = fixture.run(failing()).unwrap();
    assert_eq!((last.done, last.failed, last.skipped), (0, 0, 1));
}

#[test]
fn a_gentle_stop_lets_rollouts_in_flight_finish() {
    let mut fixture = Fixture::with_rows(20);
    fixture.options.concurrency = Some(4);
    let (canceller, cancel) = cancellation();
    let agents = FakeAgents::good();
    let started = Arc::clone(&agents.started);
    let summary = fixture
        .run_cancelled(agents, cancel, async {
            started.notified().await;
            canceller.stop(Stop::Gently);
        })
        .unwrap();
    assert!(summary.interrupted);
    assert!(summary.done >= 4 && summary.done < 20, "{}", summary.done);
    assert_eq!(summary.done + summary.unmade, 20);
    assert_eq!(fixture.rows("out.jsonl").len() as u64, summary.done);
    assert!(!fixture.path("out_aggregate_metrics.json").exists());
}

#[test]
fn rollouts_that_do_not_finish_in_time_are_dropped_and_made_again_later() {
    let mut fixture = Fixture::with_rows(6);
    fixture.options.concurrency = Some(3);
    let (canceller, cancel) = cancellation();
    let agents = FakeAgents::new(|task| (task == 0).then(|| Ok((200, good_reply()))));
    let started = Arc::clone(&agents.started);
    let summary = fixture
        .run_cancelled(agents, cancel, async {
            started.notified().await;
            tokio::time::sleep(std::time::Duration::from_secs(60)).await;
            canceller.stop(Stop::Gently);
        })
        .unwrap();
    assert_eq!(
        (summary.done, summary.failed, summary.unmade, summary.interrupted),
        (1, 0, 5, true)
    );
    fixture.options.resume = true;
    let resumed = fixture.run(FakeAgents::good()).unwrap();
    assert_eq!((resumed.done, resumed.skipped), (5, 1));
}

#[test]
fn a_second_stop_does_not_wait() {
    let fixture = Fixture::with_rows(3);
    let (canceller, cancel) = cancellation();
    let agents = FakeAgents::new(|_| None);
    let started = Arc::clone(&agents.started);
    let begun = std::time::Instant::now();
    let summary = fixture
        .run_cancelled(agents, cancel, async {
            started.notified().await;
            canceller.stop(Stop::Gently);
            canceller.stop(Stop::Now);
        })
        .unwrap();
    assert_eq!((summary.done, summary.unmade), (0, 3));
    assert!(begun.elapsed() < std::time::Duration::from_secs(30));
}

#[test]
fn a_panic_does_not_cost_the_rollouts_that_were_done() {
    let mut fixture = Fixture::with_rows(3);
    fixture.options.concurrency = Some(1);
    let agents = FakeAgents::new(|task| {
        assert!(task < 2, "an agent that panics");
        Some(Ok((200, good_reply())))
    });
    let run = std::panic::AssertUnwindSafe(|| fixture.run(agents));
    let panic = std::panic::catch_unwind(run).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"an agent that panics"));
    assert_eq!(tasks(&fixture.rows("out.jsonl")), [0, 1]);
}

#[test]
fn a_rollout_over_its_time_is_a_failure() {
    let mut fixture = Fixture::with_rows(2);
    fixture.options.rollout_timeout = Some(std::time::Duration::from_secs(5));
    let summary =
        fixture.run(FakeAgents::new(|task| (task == 0).then(|| Ok((200, good_reply()))))).unwrap();
    assert_eq!((summary.done, summary.failed), (1, 1));
    assert_eq!(fixture.rows("out_failures.jsonl")[0]["_ng_failure_class"], "timeout");
}

#[test]
fn a_full_output_ends_the_run_with_the_name_of_the_file() {
    let mut fixture = Fixture::with_rows(500);
    fixture.options.concurrency = Some(2);
    let output = fixture.path("full.jsonl");
    std::os::unix::fs::symlink("/dev/full", &output).unwrap();
    fixture.options.output = output.clone();
    let agents = FakeAgents::good();
    let error = fixture.run(agents).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot write {output:?}"));
    assert!(error.hint().unwrap().contains("--resume"));
}

#[test]
fn a_bad_input_does_not_cost_an_earlier_run_its_rows() {
    let mut fixture = Fixture::with_rows(2);
    fixture.run(FakeAgents::good()).unwrap();
    let bad = fixture.path("bad.jsonl");
    std::fs::write(&bad, "{\"responses_create_params\":{}}\nnot json\n").unwrap();
    fixture.options.input = Some(Input::File(bad));
    let error = fixture.run(FakeAgents::good()).unwrap_err();
    assert!(error.to_string().contains("bad.jsonl\", line 2: "), "{error}");
    assert_eq!(fixture.rows("out.jsonl").len(), 2);
    assert_eq!(fixture.rows("out_materialized_inputs.jsonl").len(), 2);
    assert!(!Path::new(&fixture.path("out_materialized_inputs.jsonl.partial")).exists());
}

#[test]
fn an_agent_that_does_not_exist_is_found_before_anything_is_sent() {
    let mut fixture = Fixture::with_rows(1);
    let input = fixture.path("in2.jsonl");
    std::fs::write(&input, "{\"responses_create_params\":{},\"agent_ref\":{\"name\":\"b\"}}\n")
        .unwrap();
    fixture.options.input = Some(Input::File(input));
    let error = fixture.run(FakeAgents::new(|_| panic!("nothing is sent"))).unwrap_err();
    assert_eq!(error.to_string(), "no agent is called \"b\"");
}
