//! A tool that runs commands in a sandbox is part of its rollout's trace, and its commands are not.

use std::collections::BTreeMap;
use std::time::Duration;

use gym_telemetry::semconv::{self, span};
use gym_telemetry::{GymSpanGroup, env_vars};
use lens_testing::{CollectedSpan, OtlpSink};

use crate::support::{Fleet, Start, output, rows, text};

const AGENT: &str = "example_sandbox_simple_agent";
/// Part of every command, and of nothing else.
const CONTENT: &str = "never-to-be-exported";

#[test]
fn commands_of_a_rollout_are_spans_of_its_trace_without_their_text() {
    let sink = OtlpSink::start().expect("a sink");
    let endpoint = sink.http_endpoint();
    let environment = [
        (env_vars::ENABLED, "1"),
        (env_vars::SPAN_GROUPS, GymSpanGroup::name::ALL),
        (env_vars::LOGS_ENABLED, "1"),
        (env_vars::OTEL_EXPORTER_OTLP_ENDPOINT, endpoint.as_str()),
        (env_vars::OTEL_EXPORTER_OTLP_PROTOCOL, "http/protobuf"),
    ];
    let arguments = ["--resources-server", "example_sandbox", "--model-type", "scripted_model"];
    let mut fleet = Fleet::start(&Start { arguments: &arguments, environment: &environment });
    let input = fleet.folder.path().join("rows.jsonl");
    let row = |command: &str, expected: &str| {
        serde_json::json!({
            "responses_create_params": {
                "input": [{"role": "user", "content": "Run it."}],
                "tools": [{
                    "type": "function", "name": "run_command", "description": "Runs a command",
                    "parameters": {
                        "type": "object",
                        "properties": {"command": {"type": "string", "enum": [command]}},
                        "required": ["command"], "additionalProperties": false,
                    },
                    "strict": true,
                }],
            },
            "expected_output": expected,
        })
        .to_string()
    };
    let commands = [
        row(&format!("echo {CONTENT} | tr a-z A-Z"), "NEVER-TO-BE"),
        row(&format!("echo {CONTENT} >&2; exit 41"), "no such output"),
    ];
    std::fs::write(&input, commands.join("\n")).expect("rows");
    let mut command = fleet.eval_run(&["--agent", AGENT, "--output", "out.jsonl"]);
    let collected = output(command.arg("--input").arg(&input).envs(environment));
    assert_eq!(collected.status.code(), Some(0), "{}", text(&collected.stderr));
    let rewards: Vec<f64> = rows(&fleet.folder.path().join("out.jsonl"))
        .iter()
        .map(|row| row["reward"].as_f64().expect("a reward"))
        .collect();
    assert_eq!(rewards.iter().sum::<f64>(), 1.0, "{rewards:?}");
    assert_eq!(fleet.stop(), Some(0), "{}", fleet.said());
    assert!(sink.wait_for_spans(2 * 21, Duration::from_secs(10)), "{:?}", sink.counts());

    let spans = sink.spans();
    let by_id: BTreeMap<&str, &CollectedSpan> =
        spans.iter().map(|span| (span.span_id.as_str(), span)).collect();
    let mut codes = Vec::new();
    for exec in spans.iter().filter(|span| span.name == span::SANDBOX_EXEC) {
        let parent = by_id[exec.parent_id.as_deref().expect("a parent")];
        assert_eq!(parent.name, "POST /run_command");
        assert_eq!(exec.text(semconv::SANDBOX_PROVIDER), "local_process");
        assert!(!exec.text(semconv::ROLLOUT_ID).is_empty(), "it is of a rollout");
        let start = |span: &&CollectedSpan| {
            span.name == span::SANDBOX_START && span.parent_id == exec.parent_id
        };
        assert_eq!(spans.iter().filter(start).count(), 1);
        let root = spans
            .iter()
            .find(|span| span.trace_id == exec.trace_id && span.name == span::ROLLOUT_ATTEMPT);
        assert!(root.is_some(), "the trace is that of the rollout");
        codes.push(exec.attributes[semconv::SANDBOX_RETURN_CODE].as_i64().expect("a code"));
    }
    codes.sort_unstable();
    assert_eq!(codes, [0, 41]);
    let names = sink.metric_names();
    for name in [semconv::metric::SANDBOX_ACTIVE, semconv::metric::SANDBOX_EXEC_DURATION] {
        assert!(names.iter().any(|known| known == name), "{names:?}");
    }
    for request in sink.requests() {
        let content = request.body.to_ascii_lowercase();
        assert!(!content.windows(CONTENT.len()).any(|part| part == CONTENT.as_bytes()));
    }
}
