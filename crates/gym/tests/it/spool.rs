//! Spans outlive the process that ended them, and long ones the process that died inside them.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use gym_telemetry::{env_vars, semconv};
use lens_testing::{CollectedSpan, OtlpSink};
use serde_json::Value;

use crate::support::{Fleet, Start, gym, output, signal, text, weather_rows};

const AGENT: &str = "example_single_tool_call_simple_agent";
const ARGUMENTS: [&str; 5] = [
    "--resources-server",
    "example_single_tool_call",
    "--model-type",
    "scripted_model",
    // Long enough for a rollout to be in it whenever its server is killed.
    "++policy_model.responses_api_models.scripted_model.latency={kind: fixed, ms: 400}",
];
const LIMIT: Duration = Duration::from_secs(20);

fn telemetry(endpoint: &str) -> Vec<(&'static str, &str)> {
    vec![
        (env_vars::ENABLED, "1"),
        (env_vars::SPAN_GROUPS, "all"),
        (env_vars::OTEL_METRICS_EXPORTER, "none"),
        (env_vars::OTEL_EXPORTER_OTLP_ENDPOINT, endpoint),
        (env_vars::OTEL_EXPORTER_OTLP_PROTOCOL, "http/protobuf"),
        (env_vars::OTEL_EXPORTER_OTLP_TIMEOUT, "2000"),
        // What has ended is still in the buffer when its process dies.
        (env_vars::OTEL_BSP_SCHEDULE_DELAY, "60000"),
    ]
}

fn driver(fleet: &Fleet) -> Child {
    let rows = weather_rows(fleet.folder.path());
    let out = fleet.folder.path().join("out.jsonl");
    let mut command = fleet.eval_run(&["--agent", AGENT, "--concurrency", "8"]);
    command.args(["--num-repeats", "200", "--input"]).arg(rows).arg("--output").arg(out);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn spool(action: &str, fleet: &Fleet, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command: Command = gym();
    command.args(["spool", action, "--json", "--dir"]).arg(fleet.spool()).args(arguments);
    output(command.current_dir(fleet.folder.path()).envs(variables.iter().copied()))
}

fn buffers(fleet: &Fleet) -> Vec<Value> {
    let listed = spool("list", fleet, &[], &[]);
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("a JSON document");
    listed["buffers"].as_array().expect("a list").clone()
}

fn is_truncated(span: &CollectedSpan) -> bool {
    span.attributes.get(lens::semconv::TRUNCATED) == Some(&Value::Bool(true))
}

#[test]
fn spans_of_a_killed_server_arrive_through_its_supervisor() {
    let sink = OtlpSink::start().expect("a sink");
    let endpoint = sink.http_endpoint();
    let mut fleet =
        Fleet::start(&Start { arguments: &ARGUMENTS, environment: &telemetry(&endpoint) });
    let agent = fleet.pid(AGENT);
    let mut driver = driver(&fleet);
    let buffer_of_agent = || {
        let listed = buffers(&fleet);
        listed.into_iter().find(|buffer| buffer["pid"] == agent).expect("it has a buffer")
    };
    wait_until("rollouts have ended and others are open", || {
        let buffer = buffer_of_agent();
        buffer["waiting"].as_u64() >= Some(50) && buffer["open"].as_u64() >= Some(8)
    });
    let before = buffer_of_agent();
    assert_eq!(before["alive"], true);
    signal(agent, "KILL");

    assert_eq!(fleet.wait(), Some(1), "{}", fleet.said());
    driver.kill().expect("it can be killed");
    driver.wait().expect("it can be waited for");
    assert_eq!(buffers(&fleet).iter().filter(|buffer| buffer["pid"] == agent).count(), 0);

    let spans = sink.spans();
    let of_agent: Vec<&CollectedSpan> =
        spans.iter().filter(|span| span.service().ends_with(AGENT)).collect();
    let (open, ended): (Vec<&CollectedSpan>, Vec<&CollectedSpan>) =
        of_agent.iter().partition(|span| is_truncated(span));
    assert!(ended.len() as u64 >= before["waiting"].as_u64().expect("a number"));
    let names: BTreeSet<&str> = open.iter().map(|span| span.name.as_str()).collect();
    for name in [semconv::span::ROLLOUT, "POST /run"] {
        assert!(names.contains(name), "{name} was open: {names:?}");
    }
    for span in &open {
        assert!(span.end_nanos >= span.start_nanos);
    }
    // A truncated span is in the trace of the rollout it belongs to, and says whose it was.
    let rollout = open.iter().find(|span| span.name == semconv::span::ROLLOUT).expect("seen above");
    assert!(!rollout.text(semconv::ROLLOUT_ID).is_empty(), "{rollout:?}");
    let ids: BTreeSet<&String> = of_agent.iter().map(|span| &span.span_id).collect();
    assert_eq!(ids.len(), of_agent.len(), "nothing came twice");
}

#[test]
fn what_a_killed_supervisor_left_is_listed_and_recovered_by_hand() {
    let sink = OtlpSink::start().expect("a sink");
    let up = sink.http_endpoint();
    let fleet = Fleet::start(&Start { arguments: &ARGUMENTS, environment: &telemetry(&up) });
    let supervisor = fleet.child.id();
    signal(supervisor, "KILL");
    wait_until("its servers have ended", || buffers(&fleet).len() == 1);
    let left = &buffers(&fleet)[0];
    assert_eq!(left["pid"], supervisor, "{left}");
    assert_eq!(left["alive"], false, "{left}");
    let waiting = left["waiting"].as_u64().expect("a number");
    assert!(waiting >= 5, "the spans of its start: {left}");

    let nobody = format!("http://127.0.0.1:{}", lens_testing::free_port());
    let failed = spool("recover", &fleet, &telemetry(&nobody), &[]);
    assert_eq!(failed.status.code(), Some(1), "{}", text(&failed.stderr));
    let told: Value = serde_json::from_slice(&failed.stdout).expect("a JSON document");
    assert_eq!(told["spans"], 0);
    assert_eq!(told["left"], waiting);
    assert!(text(&failed.stderr).contains(&nobody), "{}", text(&failed.stderr));
    assert_eq!(buffers(&fleet).len(), 1, "it is still there");

    let before = sink.counts().spans;
    // Telemetry need not be on for that.
    let settings: Vec<_> =
        telemetry(&up).into_iter().filter(|(name, _)| *name != env_vars::ENABLED).collect();
    let recovered = spool("recover", &fleet, &settings, &[]);
    assert_eq!(recovered.status.code(), Some(0), "{}", text(&recovered.stderr));
    let told: Value = serde_json::from_slice(&recovered.stdout).expect("a JSON document");
    assert_eq!(told["spans"], waiting);
    assert_eq!(told["left"], 0);
    assert_eq!(sink.counts().spans - before, waiting);
    assert!(buffers(&fleet).is_empty());

    let again = spool("recover", &fleet, &settings, &[]);
    assert_eq!(again.status.code(), Some(0));
    assert!(text(&again.stderr).contains("no dead process left anything"));
}

/// Guarantees: a collector that is not there costs a command neither its exit code nor the time of an export, and
/// what was not delivered can be.
#[test]
fn with_a_closed_port_commands_end_as_ever_and_say_where_the_spans_are() {
    let nobody = format!("http://127.0.0.1:{}", lens_testing::free_port());
    let environment: Vec<_> = telemetry(&nobody)
        .into_iter()
        .filter(|(name, _)| {
            ![env_vars::OTEL_METRICS_EXPORTER, env_vars::OTEL_EXPORTER_OTLP_TIMEOUT].contains(name)
        })
        .collect();
    let arguments = &ARGUMENTS[..4];
    let mut fleet = Fleet::start(&Start { arguments, environment: &environment });
    let rows = weather_rows(fleet.folder.path());
    let mut run = fleet.eval_run(&["--agent", AGENT, "--output", "out.jsonl"]);
    let before = Instant::now();
    let run = output(run.arg("--input").arg(rows).envs(environment.iter().copied()));
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    assert!(before.elapsed() < Duration::from_secs(8), "{:?}", before.elapsed());
    let said = text(&run.stderr);
    assert_eq!(said.matches("`gym spool recover`").count(), 1, "{said}");

    let before = Instant::now();
    assert_eq!(fleet.stop(), Some(0), "{}", fleet.said());
    // Its servers flush, then the supervisor for them all.
    assert!(before.elapsed() < Duration::from_secs(8), "{:?}", before.elapsed());
    let said = fleet.said();
    assert_eq!(said.matches("`gym spool recover`").count(), 1, "{said}");

    let sink = OtlpSink::start().expect("a sink");
    let recovered = spool("recover", &fleet, &telemetry(&sink.http_endpoint()), &[]);
    assert_eq!(recovered.status.code(), Some(0), "{}", text(&recovered.stderr));
    let spans = sink.spans();
    let of = |name: &str| spans.iter().filter(|span| span.name == name).count();
    assert!(of(semconv::span::ROLLOUT) > 0, "of the agent");
    assert_eq!(of(semconv::span::ROLLOUT), of(semconv::span::ROLLOUT_ATTEMPT), "of the driver");
}

#[test]
fn a_folder_that_is_not_there_is_an_error_where_it_was_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing");
    let run = |action: &str, dir: &Path| {
        let mut command = gym();
        output(command.args(["spool", action, "--dir"]).arg(dir).current_dir(folder.path()))
    };
    for action in ["list", "recover"] {
        let refused = run(action, &missing);
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains("missing"), "{}", text(&refused.stderr));
        assert!(refused.stdout.is_empty());
        assert_eq!(run(action, folder.path()).status.code(), Some(0), "an empty one is none");
    }
}
