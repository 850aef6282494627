//! A fleet that is told to end sends what waits, over OTLP.

use std::collections::BTreeMap;

use gym_telemetry::{env_vars, semconv};
use lens_testing::OtlpSink;

use crate::support::{Fleet, Start, output, signal, weather_rows};

/// Spans of one rollout by servers, in the default preset.
const SPANS_OF_SERVERS: usize = 14;
const ROLLOUTS: usize = 25;

fn what_waits_arrives(by: &str) {
    let sink = OtlpSink::start().expect("a sink");
    let endpoint = sink.grpc_endpoint();
    // Nothing leaves by itself for as long as this test lasts.
    let environment = [
        (env_vars::ENABLED, "1"),
        (env_vars::METRICS_ENABLED, "0"),
        (env_vars::OTEL_BSP_SCHEDULE_DELAY, "600000"),
        (env_vars::OTEL_EXPORTER_OTLP_ENDPOINT, endpoint.as_str()),
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
    let mut run = fleet.eval_run(&[
        "--input",
        input.to_str().expect("utf-8"),
        "--output",
        "out.jsonl",
        "--agent",
        "example_single_tool_call_simple_agent",
        "--num-repeats",
        "5",
    ]);
    let run = output(run.envs(environment));
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let of_servers = || {
        let spans = sink.spans().into_iter();
        spans.filter(|span| span.resource.contains_key(semconv::SERVER_TYPE)).filter(|span| {
            span.resource[semconv::SERVER_TYPE] != "orchestrator"
                && span.attributes.contains_key(semconv::ROLLOUT_ID)
        })
    };
    assert_eq!(of_servers().count(), 0, "they wait");
    signal(fleet.child.id(), by);
    assert_eq!(fleet.wait(), Some(0), "{}", fleet.said());
    let mut traces: BTreeMap<String, usize> = BTreeMap::new();
    for span in of_servers() {
        *traces.entry(span.trace_id).or_default() += 1;
    }
    assert_eq!(traces.len(), ROLLOUTS);
    assert!(traces.values().all(|spans| *spans == SPANS_OF_SERVERS), "{traces:?}");
}

#[test]
fn what_waits_at_sigterm_arrives() {
    what_waits_arrives("TERM");
}

#[test]
fn what_waits_at_ctrl_c_arrives() {
    what_waits_arrives("INT");
}
