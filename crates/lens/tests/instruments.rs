//! Instruments that lens has for other programs keep their names and units. One test: a process sets telemetry up once.

use std::collections::BTreeMap;
use std::time::Duration;

use lens::config::LensConfig;
use lens::env_vars;
use lens::instruments::{inference, rl};
use lens_testing::{OtlpSink, Signal};

#[test]
fn instruments_of_conventions_arrive_under_their_names() {
    let sink = OtlpSink::start().expect("a sink");
    let variables = [
        (format!("{}{}", env_vars::NEMO_LENS, env_vars::suffix::ENABLED), "true".to_owned()),
        (env_vars::OTEL_EXPORTER_OTLP_PROTOCOL.to_owned(), "http/json".to_owned()),
        (env_vars::OTEL_EXPORTER_OTLP_ENDPOINT.to_owned(), sink.http_endpoint()),
    ];
    let map: BTreeMap<String, String> = variables.into_iter().collect();
    let (config, _) = LensConfig::from_env_map(&map, &[env_vars::NEMO_LENS]);
    let handle = lens::setup_telemetry(config).expect("telemetry starts");

    inference::SERVER_REQUEST_DURATION.record(0.5, &[]);
    inference::CLIENT_TOKEN_USAGE.record(7.0, &[]);
    for gauge in [
        &rl::KL_DIVERGENCE,
        &rl::POLICY_LOSS,
        &rl::VALUE_LOSS,
        &rl::ENTROPY,
        &rl::RESPONSE_LENGTH_MEAN,
        &rl::GRAD_NORM,
        &rl::LEARNING_RATE,
        &rl::TOKENS_PER_SECOND,
    ] {
        gauge.set(0.25, &[]);
    }
    rl::GENERATION_DURATION.record(12.0, &[]);
    rl::ROLLOUT_DURATION.record(13.0, &[]);
    assert!(handle.shutdown(Duration::from_secs(20)));

    let requests = sink.requests();
    let metrics = requests.iter().filter(|request| request.signal == Signal::Metrics);
    let mut arrived = BTreeMap::new();
    for request in metrics {
        let body: serde_json::Value = serde_json::from_slice(&request.body).expect("JSON");
        for scope in body["resourceMetrics"][0]["scopeMetrics"].as_array().into_iter().flatten() {
            for metric in scope["metrics"].as_array().into_iter().flatten() {
                let text = |key: &str| metric[key].as_str().unwrap_or_default().to_owned();
                arrived.insert(text("name"), (text("unit"), metric.clone()));
            }
        }
    }
    for (name, unit) in [
        ("gen_ai.server.request.duration", "s"),
        ("gen_ai.client.token.usage", "{token}"),
        ("rl.kl_divergence", "1"),
        ("rl.policy_loss", "1"),
        ("rl.value_loss", "1"),
        ("rl.entropy", "1"),
        ("rl.response_length.mean", "{token}"),
        ("rl.grad_norm", "1"),
        ("rl.learning_rate", "1"),
        ("rl.tokens_per_sec", "{token}/s"),
        ("rl.generation.duration_ms", "ms"),
        ("rl.rollout.duration_ms", "ms"),
    ] {
        let (arrived, _) = arrived.get(name).unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(arrived, unit, "{name}");
    }
    let bounds =
        &arrived["gen_ai.client.token.usage"].1["histogram"]["dataPoints"][0]["explicitBounds"];
    assert_eq!(bounds[13], 67_108_864.0, "{bounds}");
    assert!(!arrived.keys().any(|name| name.contains("reward")));
}
