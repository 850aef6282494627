//! What telemetry costs and how it does is seen from outside, also while a server hangs.

use std::time::{Duration, Instant};

use gym_telemetry::{GymSpanGroup, env_vars};
use lens_testing::OtlpSink;
use serde_json::Value;

use crate::support::{Fleet, Start, gym, output, signal, text, weather_rows};
use crate::trees::FULL_TREE;

const AGENT: &str = "example_single_tool_call_simple_agent";
const ARGUMENTS: [&str; 4] =
    ["--resources-server", "example_single_tool_call", "--model-type", "scripted_model"];
const LIMIT: Duration = Duration::from_secs(20);

fn telemetry(fleet: &Fleet, arguments: &[&str]) -> std::process::Output {
    let mut command = gym();
    command.arg("telemetry").arg("--dir").arg(fleet.spool()).args(arguments);
    command.arg(format!("++head_server={{host: 127.0.0.1, port: {}}}", fleet.head));
    output(command.current_dir(fleet.folder.path()))
}

fn document(fleet: &Fleet) -> Value {
    let shown = telemetry(fleet, &["--json"]);
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    serde_json::from_slice(&shown.stdout).expect("a JSON document")
}

fn counts(document: &Value, service: &str) -> Value {
    let pipelines = document["processes"]["pipelines"].as_array().expect("a list");
    let of = |pipeline: &&Value| pipeline["service_name"] == service;
    pipelines.iter().find(of).map(|pipeline| pipeline["counts"].clone()).unwrap_or_default()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Guarantees: counts of every process are read without asking it.
#[test]
fn counts_of_every_process_are_shown_also_of_one_that_hangs() {
    let sink = OtlpSink::start().expect("a sink");
    let endpoint = sink.http_endpoint();
    let environment = [
        (env_vars::ENABLED, "1"),
        (env_vars::SPAN_GROUPS, "all"),
        (env_vars::OTEL_METRICS_EXPORTER, "none"),
        (env_vars::OTEL_EXPORTER_OTLP_ENDPOINT, endpoint.as_str()),
        (env_vars::OTEL_EXPORTER_OTLP_PROTOCOL, "http/protobuf"),
        (env_vars::OTEL_BSP_SCHEDULE_DELAY, "200"),
    ];
    let fleet = Fleet::start(&Start { arguments: &ARGUMENTS, environment: &environment });
    let input = weather_rows(fleet.folder.path());
    let mut command = fleet.eval_run(&["--agent", AGENT, "--num-repeats", "4"]);
    command.arg("--input").arg(input).args(["--output", "out.jsonl"]);
    let collected = output(command.envs(environment));
    assert_eq!(collected.status.code(), Some(0), "{}", text(&collected.stderr));

    // Of each of 20 rollouts: SERVER run and responses, gym.rollout, gym.agent.responses, 6 CLIENT.
    let agent = format!("nemo-gym/{AGENT}");
    let received = || sink.spans().iter().filter(|span| span.service() == agent).count() as u64;
    let others = ["orchestrator", "policy_model", "example_single_tool_call"]
        .map(|instance| format!("nemo-gym/{instance}"));
    // Each exports in its own time.
    wait_until("everything is exported and counted", || {
        let shown = document(&fleet);
        let is_done = |service: &str, least| {
            let counts = counts(&shown, service);
            counts["exported"].as_u64() > Some(least) && counts["queued"] == 0
        };
        is_done(&agent, 20 * 10) && others.iter().all(|service| is_done(service, 0))
    });
    let pid = fleet.pid(AGENT);
    signal(pid, "STOP");
    let shown = document(&fleet);
    let of_agent = counts(&shown, &agent);
    signal(pid, "CONT");
    assert_eq!(of_agent["ended"], of_agent["exported"], "{of_agent}");
    assert_eq!(of_agent["ended"], received(), "{of_agent}");
    assert_eq!(of_agent["queued"], 0);
    assert_eq!(of_agent["dropped"], serde_json::json!({}));
    for service in &others {
        let counts = counts(&shown, service);
        assert!(counts["exported"].as_u64() > Some(0), "{service}: {shown}");
    }
    assert_eq!(shown["processes"]["without_counts"], serde_json::json!([]));
    let said = text(&telemetry(&fleet, &[]).stdout);
    assert!(said.contains(&agent) && said.contains("EXPORTED"), "{said}");
}

#[test]
fn what_a_receiver_does_not_take_is_seen_as_queued_and_failed() {
    let port = lens_testing::free_port();
    let endpoint = format!("http://127.0.0.1:{port}");
    let environment = [
        (env_vars::ENABLED, "1"),
        (env_vars::OTEL_METRICS_EXPORTER, "none"),
        (env_vars::OTEL_EXPORTER_OTLP_ENDPOINT, endpoint.as_str()),
        (env_vars::OTEL_EXPORTER_OTLP_TIMEOUT, "200"),
        (env_vars::OTEL_BSP_SCHEDULE_DELAY, "50"),
    ];
    let fleet = Fleet::start(&Start { arguments: &ARGUMENTS, environment: &environment });
    wait_until("an export failed", || {
        let counts = counts(&document(&fleet), "nemo-gym/policy_model");
        counts["export_failures"].as_u64() > Some(0) && counts["queued"].as_u64() > Some(0)
    });
    let counts = counts(&document(&fleet), "nemo-gym/policy_model");
    assert_eq!(counts["exported"], 0);
    assert_eq!(counts["ended"], counts["queued"], "{counts}");
}

#[test]
fn an_instance_without_a_shared_buffer_is_named() {
    let environment = [(env_vars::ENABLED, "1"), (env_vars::EXPORTER, "console")];
    let fleet = Fleet::start(&Start { arguments: &ARGUMENTS, environment: &environment });
    std::fs::create_dir_all(fleet.spool()).expect("a folder");
    let shown = document(&fleet);
    assert_eq!(shown["processes"]["pipelines"], serde_json::json!([]));
    let silent = shown["processes"]["without_counts"].as_array().expect("a list").len();
    assert_eq!(silent, fleet.instances().len());
    let said = text(&telemetry(&fleet, &[]).stdout);
    assert!(said.contains("policy_model") && said.contains("shares no counts"), "{said}");
}

#[test]
fn the_spans_that_a_group_is_said_to_make_are_those_of_the_tree() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = gym();
    command.args(["telemetry", "--json", "--dir"]).arg(folder.path()).current_dir(folder.path());
    let shown = output(command.env(env_vars::SPAN_GROUPS, "per_rollout,sandbx"));
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("a JSON document");
    let of = |name: &str| {
        let groups = shown["groups"]["groups"].as_array().expect("a list");
        groups.iter().find(|group| group["group"] == name).expect("a group").clone()
    };
    let lines = |what: &str| FULL_TREE.lines().filter(|line| line.contains(what)).count() as u64;
    for (group, what) in [
        (GymSpanGroup::name::SERVER, " SERVER]"),
        (GymSpanGroup::name::HTTP_CLIENT, " CLIENT]"),
        (GymSpanGroup::name::ROLLOUT, "gym.rollout"),
        (GymSpanGroup::name::AGENT, "gym.agent."),
        (GymSpanGroup::name::MODEL_CALL, "gym.model."),
        (GymSpanGroup::name::VERIFY, "gym.verify"),
    ] {
        assert_eq!(of(group)["example_spans"], lines(what), "{group}");
        assert_eq!(of(group)["on"], true, "{group}");
    }
    assert_eq!(of(GymSpanGroup::name::JOB)["on"], false);
    assert_eq!(of(GymSpanGroup::name::SANDBOX)["on"], false);
    assert!(shown["groups"]["warnings"][0].as_str().is_some_and(|said| said.contains("sandbox")));
}
