//! What model servers say about their calls: names, counts and times.

use std::net::TcpListener;

use serde_json::Value;

use crate::exchange::{answer, post, read_request};
use crate::spans;
use crate::support::{Fleet, Start};

/// An engine that answers every chat completion alike, with its timings.
fn engine() -> u16 {
    const BODY: &str = r#"{"id":"c","object":"chat.completion","created":1,"model":"m-large",
        "choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"topsecret"}}],
        "usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}"#;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            if read_request(&mut stream).is_some() {
                let timings = "server-timing: queue;dur=10, prefill;dur=20, decode;dur=70";
                answer(&mut stream, &format!("200 OK\r\n{timings}"), BODY);
            }
        }
    });
    port
}

/// Lines of a fleet whose model server was asked once in each dialect.
fn lines_of(span_groups: &str) -> String {
    let url = format!("http://127.0.0.1:{}/v1", engine());
    let mut fleet = Fleet::start(&Start {
        arguments: &[
            "--resources-server",
            "example_single_tool_call",
            "--model-type",
            "vllm_model",
            "--model-url",
            &url,
            "--model",
            "m",
            "--model-api-key",
            "k",
        ],
        environment: &[
            ("NEMO_GYM_OTEL_ENABLED", "1"),
            ("NEMO_GYM_OTEL_EXPORTER", "console"),
            ("NEMO_GYM_OTEL_SPAN_GROUPS", span_groups),
        ],
    });
    let model = ("127.0.0.1", fleet.port("policy_model"));
    post(model, "/v1/responses", &[], r#"{"input":"hush","model":"asked"}"#);
    post(
        model,
        "/v1/chat/completions",
        &[],
        r#"{"messages":[{"role":"user","content":"hush"}],"model":"asked"}"#,
    );
    post(
        model,
        "/v1/messages",
        &[],
        r#"{"messages":[{"role":"user","content":"hush"}],"model":"asked","max_tokens":9}"#,
    );
    assert_eq!(fleet.stop(), Some(0), "{}", fleet.said());
    fleet.stdout()
}

#[test]
fn a_model_call_says_who_answered_with_how_many_tokens_and_when() {
    let lines = lines_of("per_rollout");
    let spans = spans::parse(&lines);
    let calls: Vec<_> = spans.iter().filter(|span| span.name.starts_with("gym.model.")).collect();
    let names: Vec<&str> = calls.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["gym.model.responses", "gym.model.chat_completions", "gym.model.messages"]);
    for span in calls {
        let dialect = span.name.trim_start_matches("gym.model.");
        // A converted reply bears the configured name, as in the reference.
        let answered = if dialect == "chat_completions" { "m-large" } else { "m" };
        for (key, value) in [
            ("nemo.gym.model.dialect", Value::from(dialect)),
            ("nemo.gym.server.name", "policy_model".into()),
            ("gen_ai.operation.name", "chat".into()),
            ("gen_ai.provider.name", "vllm".into()),
            ("gen_ai.request.model", "asked".into()),
            ("gen_ai.response.model", answered.into()),
            ("gen_ai.usage.input_tokens", 7.into()),
            ("gen_ai.usage.output_tokens", 3.into()),
            ("nemo.gym.model.queue_nanos", 10_000_000.into()),
            ("nemo.gym.model.prefill_nanos", 20_000_000.into()),
            ("nemo.gym.model.decode_nanos", 70_000_000.into()),
        ] {
            assert_eq!(span.attribute(key), &value, "{}: {key}\n{}", span.name, span.line);
        }
        let reasons = span.attribute("gen_ai.response.finish_reasons");
        let expected = if dialect == "chat_completions" { "stop" } else { "completed" };
        assert_eq!(reasons, &serde_json::json!([expected]), "{}", span.line);
        let first_byte = span.attribute("nemo.gym.model.time_to_first_byte_nanos").as_f64();
        let whole = span.line["duration_ms"].as_f64().expect("a duration");
        let first_byte = first_byte.expect("a time") / 1e6;
        assert!(first_byte > 0.0 && first_byte <= whole, "{first_byte} of {whole} ms");
    }
    for content in ["hush", "topsecret"] {
        assert!(!lines.contains(content), "content is told");
    }
}

#[test]
fn a_model_call_is_measured_in_every_dialect() {
    let lines = lines_of("default");
    let metric = |name: &str| -> Vec<Value> {
        let lines = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut found = lines.filter(|line| line["type"] == "metric" && line["name"] == name);
        found.next_back().map(|line| line["points"].as_array().cloned()).expect(name).expect(name)
    };
    for name in ["gym.model.call_duration_ms", "gym.model.time_to_first_byte_ms"] {
        let mut dialects: Vec<String> = metric(name)
            .iter()
            .map(|point| {
                assert_eq!(point["count"], 1, "{name}: {point}");
                assert_eq!(point["attributes"]["nemo.gym.server.name"], "policy_model");
                point["attributes"]["nemo.gym.model.dialect"].as_str().unwrap_or("?").to_owned()
            })
            .collect();
        dialects.sort_unstable();
        assert_eq!(dialects, ["chat_completions", "messages", "responses"], "{name}");
    }
    let of_model = |point: &Value| {
        point["attributes"]["gen_ai.operation.name"] == "chat"
            && point["attributes"]["gen_ai.provider.name"] == "vllm"
            && point["attributes"]["gen_ai.request.model"] == "asked"
    };
    let count =
        |points: &[Value]| points.iter().filter_map(|point| point["count"].as_u64()).sum::<u64>();
    let durations = metric("gen_ai.server.request.duration");
    assert!(durations.iter().all(of_model), "{durations:?}");
    assert_eq!(count(&durations), 3);
    let tokens = metric("gen_ai.client.token.usage");
    assert!(tokens.iter().all(of_model), "{tokens:?}");
    for (kind, sum) in [("input", 21.0), ("output", 9.0)] {
        let points = tokens.iter().filter(|point| point["attributes"]["gen_ai.token.type"] == kind);
        assert_eq!(points.filter_map(|point| point["sum"].as_f64()).sum::<f64>(), sum, "{kind}");
    }
    // Without the group of model calls the engine's timings are on the request's own span.
    let spans = spans::parse(&lines);
    let served =
        spans.iter().filter(|span| span.process() == "policy_model" && span.kind == "SERVER");
    let queued: Vec<_> = served.map(|span| span.attribute("nemo.gym.model.queue_nanos")).collect();
    assert_eq!(queued, [&Value::from(10_000_000); 3]);
}
