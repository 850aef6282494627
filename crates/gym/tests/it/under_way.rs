//! Work that is under way is seen while it runs, its end by a signal is told, and so is what Gym warns of.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use gym_telemetry::{env_vars, semconv};
use lens_testing::{CollectedLog, CollectedSpan, OtlpSink, free_port};

use crate::support::{Fleet, Start, weather_rows};

const AGENT: &str = "example_single_tool_call_simple_agent";
const MODEL: &str = "policy_model";
const LIMIT: Duration = Duration::from_secs(30);
const RESOURCES: [&str; 2] = ["--resources-server", "example_single_tool_call"];

fn telemetry(endpoint: &str) -> Vec<(&'static str, &str)> {
    vec![
        (env_vars::ENABLED, "1"),
        (env_vars::SPAN_GROUPS, "all"),
        (env_vars::OTEL_METRICS_EXPORTER, "none"),
        (env_vars::OTEL_EXPORTER_OTLP_ENDPOINT, endpoint),
        (env_vars::OTEL_EXPORTER_OTLP_PROTOCOL, "http/protobuf"),
        (env_vars::OTEL_BSP_SCHEDULE_DELAY, "100"),
        (env_vars::OTEL_BLRP_SCHEDULE_DELAY, "100"),
    ]
}

/// A driver with the telemetry of its fleet.
fn driver(fleet: &Fleet, environment: &[(&str, &str)]) -> Child {
    let rows = weather_rows(fleet.folder.path());
    let out = fleet.folder.path().join("out.jsonl");
    let mut command = fleet.eval_run(&["--agent", AGENT, "--concurrency", "3"]);
    command.arg("--input").arg(rows).arg("--output").arg(out).envs(environment.iter().copied());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
}

/// Waits for log records that are enough.
fn logs_until(
    sink: &OtlpSink,
    what: &str,
    is_enough: impl Fn(&[CollectedLog]) -> bool,
) -> Vec<CollectedLog> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let logs = sink.logs();
        if is_enough(&logs) {
            return logs;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}: {logs:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_truncated(span: &CollectedSpan) -> bool {
    let key = lens::semconv::TRUNCATED;
    let is_marked = span.attributes.get(key) == Some(&true.into());
    assert_eq!(span.events.iter().any(|event| event.name == key), is_marked, "{span:?}");
    is_marked
}

#[test]
fn rollouts_in_flight_are_seen_and_a_fleet_that_is_stopped_inside_them_tells_what_it_was_in() {
    let sink = OtlpSink::start().expect("a sink");
    sink.observe(true);
    let endpoint = sink.http_endpoint();
    let environment = telemetry(&endpoint);
    let slow =
        "++policy_model.responses_api_models.scripted_model.latency={kind: fixed, ms: 60000}";
    let arguments = [&RESOURCES[..], &["--model-type", "scripted_model", slow]].concat();
    let mut fleet = Fleet::start(&Start { arguments: &arguments, environment: &environment });
    let mut driver = driver(&fleet, &environment);

    // Three at a time, in every process that has long-lived spans of theirs.
    let names =
        [semconv::span::ROLLOUT_ATTEMPT, semconv::span::ROLLOUT, semconv::span::MODEL_RESPONSES];
    let is_open = |log: &CollectedLog, name: &str| {
        log.event_name == lens::semconv::live::OPEN_EVENT && log.body == name
    };
    let count =
        |logs: &[CollectedLog], name: &str| logs.iter().filter(|log| is_open(log, name)).count();
    let logs = logs_until(&sink, "rollouts in flight", |logs| {
        names.iter().all(|name| count(logs, name) >= 3)
    });
    let mut rollouts: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    // The driver has a span of those that wait for a slot, too.
    for log in logs.iter().filter(|log| names[1..].iter().any(|name| is_open(log, name))) {
        let id = log.attributes[semconv::ROLLOUT_ID].as_str().expect("text");
        rollouts.entry(id).or_default().insert(&log.trace_id);
    }
    assert_eq!(rollouts.len(), 3, "{rollouts:?}");
    assert!(rollouts.values().all(|traces| traces.len() == 1), "{rollouts:?}");
    let attempts = logs.iter().filter(|log| is_open(log, semconv::span::ROLLOUT_ATTEMPT));
    let attempts: BTreeSet<&str> = attempts.map(|log| log.trace_id.as_str()).collect();
    assert!(rollouts.values().all(|traces| traces.is_subset(&attempts)), "{rollouts:?}");
    assert!(!sink.spans().iter().any(|span| names.contains(&span.name.as_str())), "none ended");

    assert_eq!(fleet.stop(), Some(0), "{}", fleet.said());
    driver.kill().expect("it can be killed");
    driver.wait().expect("it can be waited for");
    let spans = sink.spans();
    let ids: BTreeSet<&String> = spans.iter().map(|span| &span.span_id).collect();
    assert_eq!(ids.len(), spans.len(), "nothing came twice");
    let cut: Vec<&CollectedSpan> = spans.iter().filter(|span| is_truncated(span)).collect();
    // Whose caller is stopped a moment earlier is cancelled by that, not by its own end.
    let is_cancelled =
        |span: &CollectedSpan| span.attributes.get(semconv::CANCELLED) == Some(&true.into());
    let of = |name: &str, server: &str| {
        let is_cut = |span: &CollectedSpan| match server {
            MODEL => is_cancelled(span),
            _ => is_truncated(span),
        };
        let is = |span: &&CollectedSpan| {
            span.name == name && span.service().ends_with(server) && is_cut(span)
        };
        spans.iter().filter(is).count()
    };
    for (name, server) in [
        (semconv::span::ROLLOUT, AGENT),
        ("POST /run", AGENT),
        (semconv::span::AGENT_RESPONSES, AGENT),
        (semconv::span::MODEL_RESPONSES, MODEL),
        ("POST /v1/responses", MODEL),
    ] {
        assert_eq!(of(name, server), 3, "{name} of {server}: {cut:?}");
    }
    for span in &cut {
        assert_ne!(span.status.as_str(), "OK", "{span:?}");
        let inside = cut.iter().filter(|inner| inner.parent_id.as_ref() == Some(&span.span_id));
        for inner in inside.filter(|inner| inner.service() == span.service()) {
            assert!(inner.end_nanos <= span.end_nanos, "innermost first: {inner:?} in {span:?}");
        }
    }
}

#[test]
fn a_request_that_is_being_repeated_is_told_while_it_is() {
    let sink = OtlpSink::start().expect("a sink");
    sink.observe(true);
    let endpoint = sink.http_endpoint();
    let environment = telemetry(&endpoint);
    let url = format!("http://127.0.0.1:{}/v1", free_port());
    let model = ["--model-type", "vllm_model", "--model", "m", "--model-api-key", "k"];
    let rest = ["--model-url", url.as_str(), "++model_endpoint_readiness_timeout_seconds=0"];
    let arguments = [&RESOURCES[..], &model[..], &rest[..]].concat();
    let mut fleet = Fleet::start(&Start { arguments: &arguments, environment: &environment });
    let mut driver = driver(&fleet, &environment);

    // What happened before the process knew that somebody watches was not told.
    let is_repeated = |log: &CollectedLog| {
        let count = log.attributes.get(semconv::HTTP_REQUEST_RESEND_COUNT);
        log.event_name == semconv::event::RETRY
            && count.and_then(serde_json::Value::as_u64) >= Some(2)
    };
    let logs = logs_until(&sink, "a second retry", |logs| logs.iter().any(is_repeated));
    let retry = logs.iter().find(|log| is_repeated(log)).expect("it was there");
    let host = url.trim_start_matches("http://").trim_end_matches("/v1");
    assert_eq!(retry.body, format!("request to {host} (refused)"));
    assert_eq!(retry.attributes[semconv::HTTP_ATTEMPT_REASON], "refused");
    assert!(retry.attributes[semconv::HTTP_BACKOFF_NANOS].as_u64() > Some(0), "{retry:?}");
    let rollout = &retry.attributes[semconv::ROLLOUT_ID];
    let call = logs.iter().find(|log| {
        log.event_name == lens::semconv::live::OPEN_EVENT
            && log.body == semconv::span::MODEL_RESPONSES
            && log.trace_id == retry.trace_id
    });
    assert_eq!(&call.expect("its model call is open").attributes[semconv::ROLLOUT_ID], rollout);
    let ended = sink.spans().iter().any(|span| span.span_id == retry.span_id);
    assert!(!ended, "its span has not ended");
    driver.kill().expect("it can be killed");
    driver.wait().expect("it can be waited for");
    assert_eq!(fleet.stop(), Some(0), "{}", fleet.said());
}

#[test]
fn what_gym_warns_of_is_a_log_record_in_the_trace_of_its_rollout() {
    let sink = OtlpSink::start().expect("a sink");
    let endpoint = sink.http_endpoint();
    let mut environment = telemetry(&endpoint);
    environment.push((env_vars::LOGS_ENABLED, "1"));
    let url = format!("http://127.0.0.1:{}/v1", free_port());
    let model = ["--model-type", "vllm_model", "--model", "m", "--model-api-key", "k"];
    let rest = [
        "--model-url",
        url.as_str(),
        "++model_retry_timeout_seconds=4",
        "++model_endpoint_readiness_timeout_seconds=0",
    ];
    let arguments = [&RESOURCES[..], &model[..], &rest[..]].concat();
    let mut fleet = Fleet::start(&Start { arguments: &arguments, environment: &environment });
    let mut driver = driver(&fleet, &environment);
    driver.wait().expect("it ends");

    let logs = logs_until(&sink, "a failed rollout", |logs| {
        logs.iter().any(|log| log.event_name == semconv::event::ROLLOUT_FAILED)
    });
    assert_eq!(fleet.stop(), Some(0), "{}", fleet.said());
    let traces: BTreeSet<String> = (sink.spans().into_iter())
        .filter(|span| span.name == semconv::span::ROLLOUT_ATTEMPT)
        .map(|span| span.trace_id)
        .collect();
    assert_eq!(traces.len(), 5);
    let failed: Vec<_> =
        logs.iter().filter(|log| log.event_name == semconv::event::ROLLOUT_FAILED).collect();
    assert!(failed.iter().all(|log| traces.contains(&log.trace_id)), "{failed:?}");
    assert!(failed.iter().all(|log| log.attributes.contains_key(semconv::ERROR_TYPE)));
    // The model server says that it repeats its request.
    let repeated = logs
        .iter()
        .find(|log| log.event_name == semconv::event::NOTICE && traces.contains(&log.trace_id));
    let repeated = repeated.expect("a notice in a rollout");
    assert_eq!((repeated.severity.as_str(), repeated.scope.0.as_str()), ("WARN", semconv::SCOPE));
    assert!(fleet.said().contains(&repeated.body), "on stderr, too: {}", fleet.said());
}
