//! What a fleet tells of its start and its end, and what it never tells.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gym_telemetry::{env_vars, semconv};
use lens_testing::{CollectedSpan, OtlpSink, Signal};
use serde_json::Value;

use crate::support::{Fleet, Start, gym, output, text, weather_rows};

const AGENT: &str = "example_single_tool_call_simple_agent";
const ARGUMENTS: [&str; 4] =
    ["--resources-server", "example_single_tool_call", "--model-type", "scripted_model"];

/// Every point of every metric that arrived, in the order of arrival.
fn points(sink: &OtlpSink) -> Vec<(String, Value)> {
    let items = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let mut points = Vec::new();
    for request in sink.requests() {
        if request.signal != Signal::Metrics {
            continue;
        }
        let json = lens_otlp::json::encode_metrics_request(&request.body).expect("well-formed");
        let json: Value = serde_json::from_str(&json).expect("JSON");
        for resource in items(&json, "resourceMetrics") {
            for scope in items(&resource, "scopeMetrics") {
                for metric in items(&scope, "metrics") {
                    let name = metric["name"].as_str().expect("a name").to_owned();
                    let kinds = ["sum", "gauge", "histogram"];
                    let of_kind = kinds.iter().flat_map(|kind| items(&metric[*kind], "dataPoints"));
                    points.extend(of_kind.map(|point| (name.clone(), point)));
                }
            }
        }
    }
    points
}

fn attributes(point: &Value) -> BTreeMap<String, String> {
    let pairs = point["attributes"].as_array().into_iter().flatten();
    let pair = |pair: &Value| {
        let value = pair["value"]["stringValue"].as_str().unwrap_or_default();
        (pair["key"].as_str().unwrap_or_default().to_owned(), value.to_owned())
    };
    pairs.map(pair).collect()
}

fn check_stages(spans: &[CollectedSpan]) -> Vec<String> {
    let root = spans.iter().find(|span| span.name == semconv::span::STARTUP).expect("a start");
    let mut stages: Vec<_> = spans
        .iter()
        .filter(|span| span.parent_id.as_ref() == Some(&root.span_id))
        .filter(|span| span.name != semconv::span::STARTUP_SERVER)
        .collect();
    stages.sort_by_key(|span| span.start_nanos);
    let mut reached = root.start_nanos;
    for stage in &stages {
        assert_eq!(stage.start_nanos, reached, "{} begins where the last ended", stage.name);
        reached = stage.end_nanos;
    }
    assert_eq!(root.end_nanos, reached, "the stages sum to the whole");
    stages.iter().map(|stage| stage.name.clone()).collect()
}

#[test]
fn a_fleet_tells_the_stages_of_its_start_and_that_no_server_is_left_and_never_a_reward() {
    let sink = OtlpSink::start().expect("a sink");
    let endpoint = sink.http_endpoint();
    let environment = [
        (env_vars::ENABLED, "1"),
        (env_vars::SPAN_GROUPS, "all"),
        (env_vars::OTEL_EXPORTER_OTLP_ENDPOINT, endpoint.as_str()),
        (env_vars::OTEL_EXPORTER_OTLP_PROTOCOL, "http/protobuf"),
    ];
    let mut fleet = Fleet::start(&Start { arguments: &ARGUMENTS, environment: &environment });
    fleet.wait_for("Capacity: 1,024 rollouts in flight");
    let rows = weather_rows(fleet.folder.path());
    let out = fleet.folder.path().join("out.jsonl");
    let mut command = fleet.eval_run(&["--agent", AGENT, "--concurrency", "16000"]);
    command.arg("--input").arg(rows).arg("--output").arg(&out).envs(environment);
    let run = output(&mut command);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let said = text(&run.stderr);
    assert!(
        said.contains(
            "16,000 rollouts are to be in flight, but global_aiohttp_connector_limit_per_host"
        ),
        "{said}"
    );
    assert!(said.contains("++global_aiohttp_connector_limit_per_host=16000"), "{said}");
    assert_eq!(fleet.stop(), Some(0), "{}", fleet.said());

    let spans = sink.spans();
    let stages = check_stages(&spans);
    let points = points(&sink);
    let of = |name: &str| -> Vec<&Value> {
        points.iter().filter(|(known, _)| known == name).map(|(_, point)| point).collect()
    };
    let orchestrator = semconv::value::ORCHESTRATOR;
    let measured: BTreeSet<String> = of("gym.server.startup_stage_duration_ms")
        .iter()
        .map(|point| {
            let attributes = attributes(point);
            assert_eq!(attributes[semconv::SERVER_NAME], orchestrator);
            assert_eq!(attributes[semconv::SERVER_TYPE], orchestrator);
            attributes[semconv::STARTUP_STAGE].clone()
        })
        .collect();
    assert_eq!(measured, stages.into_iter().collect());
    let started: BTreeSet<(String, String)> = of("gym.server.startup_duration_ms")
        .iter()
        .map(|point| {
            let attributes = attributes(point);
            (attributes[semconv::SERVER_NAME].clone(), attributes[semconv::SERVER_TYPE].clone())
        })
        .collect();
    let server = |name: &str, kind: &str| (name.to_owned(), kind.to_owned());
    assert_eq!(
        started,
        BTreeSet::from([
            server(AGENT, "responses_api_agents"),
            server("example_single_tool_call", "resources_servers"),
            server("policy_model", "responses_api_models"),
        ])
    );
    let active: Vec<f64> =
        of("gym.servers.active").iter().filter_map(|point| point["asDouble"].as_f64()).collect();
    assert_eq!(active.last(), Some(&0.0), "{active:?}");

    let rewarded = std::fs::read_to_string(&out).expect("rows");
    assert!(rewarded.contains("\"reward\":"), "the rows have one");
    let mut names: BTreeSet<String> = points.iter().map(|(name, _)| name.clone()).collect();
    names.extend(points.iter().flat_map(|(_, point)| attributes(point).into_keys()));
    for span in &spans {
        names.insert(span.name.clone());
        names.extend(span.attributes.keys().cloned());
        for event in &span.events {
            names.insert(event.name.clone());
            names.extend(event.attributes.keys().cloned());
        }
    }
    assert!(names.contains("gym.verify.duration_ms") && names.contains(semconv::span::VERIFY));
    for name in names {
        let lower = name.to_ascii_lowercase();
        assert!(!lower.contains("reward") && !lower.contains("accuracy"), "{name}");
    }
}

/// Guarantees: fleets that start at the same time do not take each other's ports silently.
#[test]
fn many_fleets_that_start_at_once_each_come_up_or_say_which_port_is_busy() {
    // Each is a supervisor, a head server and three servers: twenty servers in all.
    let mut fleets: Vec<Fleet> =
        (0..5).map(|_| Fleet::spawn(&Start { arguments: &ARGUMENTS, environment: &[] })).collect();
    for fleet in &mut fleets {
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        let is_over =
            |said: &str| said.contains("servers ready! Polling") || said.contains("error:");
        while !is_over(&fleet.said()) {
            assert!(std::time::Instant::now() < deadline, "{}", fleet.said());
            std::thread::sleep(Duration::from_millis(20));
        }
        let said = fleet.said();
        if said.contains("error:") {
            assert!(said.contains(" cannot listen on 127.0.0.1:"), "{said}");
        } else {
            assert_eq!(fleet.stop(), Some(0), "{}", fleet.said());
        }
    }
}

/// Guarantees: a run with servers of its own says once what binds, although its fleet starts inside of it.
#[test]
fn a_run_that_wants_more_than_a_limit_allows_is_told_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let rows = weather_rows(folder.path());
    let mut command = gym();
    command.args(["eval", "run", "--agent", AGENT, "--concurrency", "16000", "--limit", "1"]);
    command.args(ARGUMENTS).arg("--input").arg(rows).args(["--output", "out.jsonl"]);
    let run = output(command.current_dir(folder.path()));
    let said = text(&run.stderr);
    assert_eq!(run.status.code(), Some(0), "{said}");
    assert_eq!(said.matches("16,000 rollouts are to be in flight").count(), 1, "{said}");
    assert!(said.contains("the others wait for a connection"), "{said}");
}
