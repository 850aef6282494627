//! The one-liners of the README over the logs of a real fleet, and what the driver's settings do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::spans;
use crate::support::{Fleet, Start, output, text, weather_rows};

const TELEMETRY: [(&str, &str); 2] =
    [("NEMO_LENS_ENABLED", "1"), ("NEMO_GYM_OTEL_EXPORTER", "console")];
const AGENT: &str = "example_single_tool_call_simple_agent";
const ROLLOUTS: usize = 5;

/// Whether `jq` is there; says so when a test is skipped for want of it.
fn has_jq() -> bool {
    let found = Command::new("jq").arg("--version").stdout(Stdio::null()).status();
    if found.is_ok_and(|status| status.success()) {
        return true;
    }
    assert!(
        std::env::var_os("GYM_TEST_REQUIRE_OPTIONAL").is_none(),
        "there is no jq, and optional tools are required"
    );
    eprintln!("SKIPPED: there is no jq");
    false
}

fn fleet() -> Fleet {
    Fleet::start(&Start {
        arguments: &[
            "--resources-server",
            "example_single_tool_call",
            "--model-type",
            "scripted_model",
        ],
        environment: &TELEMETRY,
    })
}

/// Makes five rollouts; returns what the driver wrote to stdout.
fn collect(fleet: &Fleet, environment: &[(&str, &str)]) -> String {
    let input = weather_rows(fleet.folder.path());
    let input = input.to_str().expect("utf-8");
    let mut command =
        fleet.eval_run(&["--input", input, "--output", "out.jsonl", "--agent", AGENT]);
    let collected = output(command.envs(TELEMETRY).envs(environment.iter().copied()));
    assert_eq!(collected.status.code(), Some(0), "{}", text(&collected.stderr));
    text(&collected.stdout)
}

/// What a pipeline prints, line by line.
fn shell(folder: &Path, pipeline: &str) -> Vec<String> {
    let mut command = Command::new("sh");
    command.args(["-c", pipeline]).current_dir(folder).stdin(Stdio::null());
    let printed = output(&mut command);
    assert!(printed.status.success(), "{pipeline}: {}", text(&printed.stderr));
    assert_eq!(text(&printed.stderr), "", "{pipeline}");
    text(&printed.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn grep_and_jq_over_the_logs_show_every_rollout_crossing_all_three_servers() {
    if !has_jq() {
        return;
    }
    let mut fleet = fleet();
    collect(&fleet, &[]);
    assert_eq!(fleet.stop(), Some(0), "{}", fleet.said());
    let folder = fleet.folder.path();

    let lines = shell(
        folder,
        r#"grep -h '"trace_id"' logs/*.log | jq -r '"\(.trace_id) \(.name)"' | sort"#,
    );
    assert!(lines.is_sorted(), "{lines:#?}");
    let mut traces: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in &lines {
        let (trace, name) = line.split_once(' ').expect("a trace and a name");
        assert!(trace.len() == 32 && trace.bytes().all(|b| b.is_ascii_hexdigit()), "{line}");
        traces.entry(trace).or_default().insert(name);
    }
    let rollouts: BTreeSet<&str> = traces
        .iter()
        .filter(|(_, names)| names.contains("gym.rollout"))
        .map(|(id, _)| *id)
        .collect();
    assert_eq!(rollouts.len(), ROLLOUTS, "{traces:#?}");
    let in_log = |instance: &str| -> BTreeSet<String> {
        let recipe = format!(r#"grep -h '"trace_id"' logs/{instance}.log | jq -r .trace_id"#);
        shell(folder, &recipe).into_iter().collect()
    };
    for instance in [AGENT, "policy_model", "example_single_tool_call"] {
        let here = in_log(instance);
        for trace in &rollouts {
            assert!(here.contains(*trace), "{trace} does not reach {instance}");
        }
    }

    let mut ids = shell(
        folder,
        "grep -h '\"trace_id\"' logs/*.log | jq -r \
         'select(.attributes.\"nemo.gym.rollout.id\") | .attributes.\"nemo.gym.rollout.id\"'",
    );
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), ROLLOUTS, "{ids:?}");
}

#[test]
fn a_driver_that_is_told_not_to_trace_its_requests_makes_no_client_spans() {
    let mut fleet = fleet();
    let driver = collect(&fleet, &[("NEMO_GYM_OTEL_INSTRUMENT_AIOHTTP", "false")]);
    assert_eq!(fleet.stop(), Some(0), "{}", fleet.said());
    let spans = spans::parse(&driver);
    let attempts = spans.iter().filter(|span| span.name == "gym.rollout.attempt");
    assert_eq!(attempts.count(), ROLLOUTS, "{driver}");
    assert!(spans.iter().all(|span| span.kind != "CLIENT"), "{driver}");
    // The trace goes on all the same: the servers join it.
    let run = spans::parse(&fleet.stdout()).into_iter().find(|span| span.name == "POST /run");
    let trace = run.expect("the agent's span").trace;
    assert!(spans.iter().any(|span| span.trace == trace));
}
