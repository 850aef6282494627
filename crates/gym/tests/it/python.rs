//! Standard OpenTelemetry to an independent receiver, and rollouts through a foreign server.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::spans;
use crate::support::{Fleet, Start, fixture, output, rows, text, weather_rows};

/// A Python with these modules; says so when a test is skipped for want of one.
pub fn python(modules: &str) -> Option<PathBuf> {
    let chosen = std::env::var_os("GYM_TEST_PYTHON");
    let python = PathBuf::from(chosen.unwrap_or_else(|| "python3".into()));
    let import = format!("import {modules}");
    let found = Command::new(&python).args(["-c", &import]).stderr(Stdio::null()).status();
    if found.is_ok_and(|status| status.success()) {
        return Some(python);
    }
    assert!(
        std::env::var_os("GYM_TEST_REQUIRE_OPTIONAL").is_none(),
        "{} has no {modules}, and optional tools are required",
        python.display()
    );
    eprintln!(
        "SKIPPED: {} has no {modules}; set GYM_TEST_PYTHON to one that has",
        python.display()
    );
    None
}

/// What the receiver needs.
pub const MODULES: &str = "grpc, opentelemetry.proto";

/// The receiver of `fixtures/python/otlp_receiver.py`.
pub struct Receiver {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub ports: Value,
}

impl Receiver {
    pub fn start(python: &Path) -> Self {
        let mut child = Command::new(python)
            .arg(fixture("python/otlp_receiver.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the receiver starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("ports");
        Self { child, stdout, ports: serde_json::from_str(&line).expect("ports") }
    }

    /// Everything it received.
    pub fn finish(mut self) -> Value {
        drop(self.child.stdin.take());
        let mut document = String::new();
        self.stdout.read_to_string(&mut document).expect("reads");
        assert!(self.child.wait().expect("ends").success());
        serde_json::from_str(&document).expect("a document")
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

fn receive(protocol: &str, port: &str, compression: &str) {
    let Some(python) = python(MODULES) else { return };
    let receiver = Receiver::start(&python);
    let endpoint = format!("http://127.0.0.1:{}", receiver.ports[port]);
    let environment = [
        ("NEMO_LENS_ENABLED", "1"),
        ("NEMO_GYM_OTEL_SPAN_GROUPS", "all"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", compression),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-team=rl%20gym"),
    ];
    let mut fleet = Fleet::start(&Start {
        arguments: &[
            "--resources-server",
            "example_single_tool_call",
            "--model-type",
            "scripted_model",
        ],
        environment: &environment,
    });
    let input = weather_rows(fleet.folder.path());
    let input = input.to_str().expect("utf-8");
    let agent = "example_single_tool_call_simple_agent";
    let mut command = fleet.eval_run(&["--input", input, "--output", "o.jsonl", "--agent", agent]);
    let collected = output(command.envs(environment));
    assert_eq!(collected.status.code(), Some(0), "{}", text(&collected.stderr));
    assert_eq!(fleet.stop(), Some(0), "{}", fleet.said());
    let received = receiver.finish();
    check_spans(received["spans"].as_array().expect("spans"));
    check_metrics(received["metrics"].as_array().expect("metrics"));
    for headers in received["headers"].as_array().expect("headers") {
        assert_eq!(headers["x-team"], "rl gym", "{headers}");
    }
}

fn check_spans(spans: &[Value]) {
    let string = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let by_id: HashMap<String, &Value> =
        spans.iter().map(|span| (string(&span["span_id"]), span)).collect();
    assert_eq!(by_id.len(), spans.len(), "an id occurs twice");
    let job = spans.iter().find(|span| span["name"] == "gym.job").expect("the job's span");
    let (mut attempts, mut instances, mut runs) = (0, BTreeMap::new(), BTreeSet::new());
    for span in spans {
        let name = string(&span["name"]);
        let kind = span["kind"].as_u64().expect("a kind");
        let resource = &span["resource"];
        if let Some(parent) = by_id.get(&string(&span["parent_id"])) {
            assert_eq!(parent["trace_id"], span["trace_id"], "{name}");
            assert!(parent["start"].as_u64() <= span["start"].as_u64(), "{name} before its parent");
            if kind == 2 {
                assert_eq!(parent["kind"], 3, "{name} is below {}", parent["name"]);
                assert_ne!(parent["span_id"], span["span_id"]);
            }
        } else {
            assert_eq!(span["parent_id"], "", "{name} has a parent that did not arrive");
        }
        let attributes = &span["attributes"];
        match kind {
            2 => {
                assert_eq!(
                    attributes["http.request.method"],
                    name.split(' ').next().expect("a word")
                );
                assert_eq!(attributes["http.route"], name.split(' ').nth(1).expect("a route"));
                assert_eq!(attributes["http.response.status_code"], 200);
                assert_eq!(attributes["url.scheme"], "http");
            }
            3 => {
                let url = string(&attributes["url.full"]);
                assert!(url.starts_with("http://127.0.0.1:") && !url.contains('?'), "{url}");
                assert!(attributes["server.port"].is_u64(), "{attributes}");
                let events = span["events"].as_array().expect("events");
                assert_eq!(events.len(), 1, "{events:?}");
                assert_eq!(events[0]["name"], "nemo.gym.http.attempt");
            }
            1 => assert!(name.starts_with("gym.") || !name.contains(' '), "{name}"),
            other => panic!("{name} has kind {other}"),
        }
        if name == "gym.rollout.attempt" {
            attempts += 1;
            assert_eq!(span["parent_id"], "");
            let links = span["links"].as_array().expect("links");
            assert_eq!(links.len(), 1, "{links:?}");
            assert_eq!(links[0]["trace_id"], job["trace_id"]);
            assert_eq!(links[0]["span_id"], job["span_id"]);
            assert_ne!(span["trace_id"], job["trace_id"]);
        }
        let service = string(&resource["service.name"]);
        let instance = string(&resource["service.instance.id"]);
        assert!(service.starts_with("nemo-gym/"), "{service}");
        assert_eq!(resource["telemetry.sdk.language"], "rust");
        assert_eq!(resource["nemo.gym.service_group"], "nemo-gym");
        let known = instances.entry(service.clone()).or_insert_with(|| instance.clone());
        assert_eq!(*known, instance, "{service} has two instance ids");
        runs.insert(string(&resource["nemo.run.id"]));
    }
    assert_eq!(attempts, 5);
    assert_eq!(runs.len(), 1, "{runs:?}");
    let unique: BTreeSet<_> = instances.values().collect();
    assert_eq!(unique.len(), instances.len(), "{instances:?}");
    for service in ["orchestrator", "policy_model", "example_single_tool_call"] {
        assert!(instances.contains_key(&format!("nemo-gym/{service}")), "{instances:?}");
    }
}

fn check_metrics(metrics: &[Value]) {
    let of = |name: &str| {
        metrics.iter().find(|metric| metric["name"] == name).unwrap_or_else(|| {
            panic!(
                "{name} did not arrive: {:?}",
                metrics.iter().map(|m| &m["name"]).collect::<Vec<_>>()
            )
        })
    };
    for (name, kind, unit) in [
        ("gym.rollout.duration_ms", "histogram", "ms"),
        ("gym.rollout.completed_total", "sum", "{rollout}"),
        ("gym.rollout.in_flight", "sum", "{rollout}"),
        ("gym.verify.duration_ms", "histogram", "ms"),
        ("gym.verify.success_rate", "gauge", "1"),
        ("gym.servers.active", "gauge", "{server}"),
        ("http.server.request.duration", "histogram", "s"),
    ] {
        assert_eq!(of(name)["kind"], kind, "{name}");
        assert_eq!(of(name)["unit"], unit, "{name}");
    }
    let routes: BTreeSet<_> = metrics
        .iter()
        .filter(|metric| metric["name"] == "http.server.request.duration")
        .flat_map(|metric| metric["points"].as_array().expect("points"))
        .map(|point| point["http.route"].as_str().expect("a route").to_owned())
        .collect();
    assert!(routes.contains("/get_weather") && routes.contains("/verify"), "{routes:?}");
    assert!(!routes.contains("/"), "health checks are measured: {routes:?}");
    let completed = &of("gym.rollout.completed_total")["points"][0];
    assert_eq!(completed["nemo.gym.rollout.outcome"], "success");
}

#[test]
fn an_independent_receiver_understands_grpc() {
    receive("grpc", "grpc", "none");
}

#[test]
fn an_independent_receiver_understands_http() {
    receive("http/protobuf", "http", "gzip");
}

/// Guarantees: a server that is not ours takes part in a rollout and in its trace, and its
/// console lines come out in our form.
#[test]
fn a_python_server_takes_part_in_one_trace() {
    let Some(python) = python("json") else { return };
    let root = fixture("python/search_root");
    let root = root.to_str().expect("utf-8");
    // The fleet runs `python3`: put the chosen one first.
    let path = format!(
        "{}:{}",
        python.parent().map(|dir| dir.display().to_string()).unwrap_or_default(),
        std::env::var("PATH").unwrap_or_default()
    );
    let environment = [
        ("NEMO_GYM_OTEL_ENABLED", "1"),
        ("NEMO_GYM_OTEL_EXPORTER", "console"),
        ("NEMO_GYM_OTEL_LOGS_ENABLED", "1"),
        ("OTEL_METRICS_EXEMPLAR_FILTER", "always_on"),
        ("PATH", path.trim_start_matches(':')),
    ];
    let mut fleet = Fleet::start(&Start {
        arguments: &[
            "--search-dir",
            root,
            "--resources-server",
            "py_calculator",
            "--model-type",
            "scripted_model",
        ],
        environment: &environment,
    });
    let input = fixture("python/search_root/resources_servers/py_calculator/data/example.jsonl");
    let input = input.to_str().expect("utf-8");
    let agent = "py_calculator_simple_agent";
    let mut command = fleet.eval_run(&["--input", input, "--output", "o.jsonl", "--agent", agent]);
    let collected = output(command.envs(environment));
    assert_eq!(collected.status.code(), Some(0), "{}", text(&collected.stderr));
    let collected_rows = rows(&fleet.folder.path().join("o.jsonl"));
    assert_eq!(collected_rows.len(), 5);
    assert!(collected_rows.iter().all(|row| row["reward"] == 1.0), "{collected_rows:?}");
    assert_eq!(fleet.stop(), Some(0), "{}", fleet.said());
    let mut all = spans::parse(&text(&collected.stdout));
    all.extend(spans::parse(&fleet.stdout()));
    let mut rollouts = 0;
    for (trace, spans) in spans::by_trace(all) {
        if !spans.iter().any(|span| span.name == "gym.rollout.attempt") {
            continue;
        }
        rollouts += 1;
        let tree = spans::render(&spans);
        for name in ["POST /seed_session", "POST /add", "POST /verify"] {
            let span =
                spans.iter().find(|span| span.name == name && span.process() == "py_calculator");
            assert!(span.is_some(), "{name} is not in {trace}:\n{tree}");
        }
        assert!(!tree.contains("orphan"), "{tree}");
    }
    assert_eq!(rollouts, 5);
    // What `grep '"trace_id"'` finds in the logs of both kinds of server is JSON with an id and a name.
    let mut found = 0;
    for log in std::fs::read_dir(fleet.logs()).expect("logs").flatten() {
        let log = std::fs::read_to_string(log.path()).expect("a log");
        for line in log.lines().filter(|line| line.contains("\"trace_id\"")) {
            let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let id = value["trace_id"].as_str().unwrap_or_default();
            assert!(id.len() == 32 && value["name"].is_string(), "{line}");
            found += 1;
        }
    }
    assert!(found >= 5 * 8, "{found} lines");
}
