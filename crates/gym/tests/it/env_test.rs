//! `gym env test`, on shipped environments and on one of a user's own.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::spans;
use crate::support::{built_example, gym, text};

/// `env test` in an empty folder.
fn env_test(folder: &Path, arguments: &[&str]) -> Output {
    env_test_in(folder, arguments, &[])
}

/// `env test` with these variables.
fn env_test_in(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = gym();
    command.args(["env", "test"]).args(arguments).current_dir(folder);
    command.envs(environment.iter().copied());
    // A fleet of a neighbouring test may have the default port of the head server.
    command.arg(format!("++head_server={{host: 127.0.0.1, port: {}}}", lens_testing::free_port()));
    command.output().expect("the program runs")
}

/// The report of a run with `--json`.
fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}\n{}", text(&output.stdout), text(&output.stderr))
    })
}

/// The search root of the example server, with the built program in it.
fn calculator(folder: &Path) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = built_example("calculator");
    let source = here.join("examples/calculator/resources_servers/calculator");
    let target = folder.join("root/resources_servers/calculator");
    for (directory, file) in [("configs", "calculator.yaml"), ("data", "example.jsonl")] {
        std::fs::create_dir_all(target.join(directory)).expect("a directory");
        let path = Path::new(directory).join(file);
        std::fs::copy(source.join(&path), target.join(&path)).expect("a copy");
    }
    std::os::unix::fs::symlink(program, target.join("calculator")).expect("a link");
    folder.join("root")
}

#[test]
fn shipped_environments_keep_the_contract() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = env_test(folder.path(), &["--resources-server", "example_single_tool_call"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    insta::assert_snapshot!(text(&output.stdout), @r"
    row  seed  tools  verify  reward  rollout  result
    1    ok    1/1    ok      1.0     ok       pass
    2    ok    1/1    ok      1.0     ok       pass
    3    ok    1/1    ok      1.0     ok       pass
    4    ok    1/1    ok      1.0     ok       pass
    5    ok    1/1    ok      1.0     ok       pass
    ");
    for name in ["example_multi_step", "example_session_state_mgmt"] {
        let output = env_test(folder.path(), &["--resources-server", name, "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let report = report(&output);
        assert_eq!(report["rows"].as_array().map(Vec::len), Some(5), "{report}");
        assert_eq!(report["rows"][0]["tools"], serde_json::json!({"called": 2, "passed": 2}));
    }
}

#[test]
fn a_server_of_ones_own_runs_as_an_instance_of_a_fleet() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = calculator(folder.path());
    let script = folder.path().join("script.jsonl");
    let replies = concat!(
        r#"{"tool_calls":[{"name":"add","arguments":{"a":17,"b":25}}]}"#,
        "\n",
        r#"{"text":"17 plus 25 is 42."}"#,
        "\n",
    );
    std::fs::write(&script, replies).expect("a file");
    let arguments = [
        "--resources-server",
        "calculator",
        "--search-dir",
        root.to_str().expect("a path"),
        "--script",
        script.to_str().expect("a path"),
        "--log-dir",
        "logs",
    ];
    let output = env_test(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    insta::assert_snapshot!(text(&output.stdout), @r"
    row  seed  tools  verify  reward  rollout  result
    1    ok    1/1    ok      1.0     ok       pass
    2    ok    1/1    ok      0.0     ok       pass
    3    ok    1/1    ok      0.0     ok       pass
    4    ok    1/1    ok      0.0     ok       pass
    ");
    assert!(folder.path().join("logs/calculator.log").exists());
}

/// Its group is in the preset `per_rollout` because the server says so; nobody else knows of it.
#[test]
fn spans_and_metrics_of_ones_own_join_the_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = calculator(folder.path());
    let arguments = [
        "--resources-server",
        "calculator",
        "--search-dir",
        root.to_str().expect("a path"),
        "--limit",
        "1",
        "--log-dir",
        "logs",
    ];
    let environment = [
        ("NEMO_GYM_OTEL_ENABLED", "1"),
        ("NEMO_GYM_OTEL_EXPORTER", "console"),
        ("NEMO_GYM_OTEL_SPAN_GROUPS", "per_rollout"),
    ];
    let output = env_test_in(folder.path(), &arguments, &environment);
    let log = std::fs::read_to_string(folder.path().join("logs/calculator.log"))
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    let all = spans::parse(&log);
    for (name, parent) in
        [("calculator.compute", "POST /add"), ("calculator.read_answer", "gym.verify")]
    {
        let span = all.iter().find(|span| span.name == name).expect(name);
        let above = all.iter().find(|above| Some(&above.id) == span.parent.as_ref());
        assert_eq!(above.map(|above| &*above.name), Some(parent), "{log}");
        assert_eq!(span.line["scope"]["name"], "calculator");
    }
    let metrics: Vec<Value> =
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let count = metrics.iter().rfind(|line| line["name"] == "calculator.operations_total");
    let point = &count.expect("the metric")["points"][0];
    assert_eq!(point["attributes"]["calculator.operation"], "add");
    assert!(!text(&output.stderr).contains("unknown span group"), "{}", text(&output.stderr));
}

#[test]
fn each_fault_of_an_environment_is_named_at_its_hop() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = calculator(folder.path());
    let rows = concat!(
        r#"{"responses_create_params":{"input":"x","tools":[{"type":"function","name":"divide","parameters":{"type":"object","properties":{}}}]},"expected_value":1}"#,
        "\n",
        r#"{"responses_create_params":{"input":"x"}}"#,
        "\n",
        r#"{"nope":1}"#,
        "\n",
    );
    std::fs::write(folder.path().join("rows.jsonl"), rows).expect("a file");
    let root = root.to_str().expect("a path");
    let arguments = [
        "--resources-server",
        "calculator",
        "--search-dir",
        root,
        "--input",
        "rows.jsonl",
        "--json",
    ];
    let output = env_test(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report = report(&output);
    assert_eq!(report["passed"], false);
    let faults = |row: usize| -> Vec<String> {
        let faults = report["rows"][row]["faults"].as_array().expect("a list");
        faults.iter().map(|fault| fault.as_str().expect("a text").to_owned()).collect()
    };
    assert_eq!(faults(0), [r#"tool "divide": status 404, expected 2xx: {"detail":"Not Found"}"#]);
    let verify = "verify: status 422, expected 2xx: {\"detail\":[{\"type\":\"missing\",\"loc\":[\"body\",\"expected_value\"]";
    assert!(faults(1)[0].starts_with(verify), "{:?}", faults(1));
    assert!(faults(1)[1].starts_with("run: status 500"), "{:?}", faults(1));
    assert!(faults(2)[0].starts_with("row: the body does not have the required shape"));
    assert_eq!(report["rows"][2]["seed"], Value::Null);
}

#[test]
fn an_unknown_environment_is_a_usage_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = env_test(folder.path(), &["--resources-server", "example_single_toolcall"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("example_single_toolcall"), "{said}");
    assert!(said.contains("hint:"), "{said}");
}
