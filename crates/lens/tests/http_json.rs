//! A process that exports over OTLP/HTTP with JSON. One test: a process sets telemetry up once.

use std::collections::BTreeMap;
use std::time::Duration;

use lens::config::LensConfig;
use lens::metrics::Counter;
use lens::{Group, env_vars, managed_span};
use lens_testing::{OtlpSink, Signal};

static WORK: Group = Group::new("work");
static GROUPS: &[&Group] = &[&WORK];
static REQUESTS: Counter = Counter::new("test.requests", "{request}", "Requests");

#[test]
fn spans_and_metrics_go_as_json() {
    lens::register("test", GROUPS, &[("default", &["work"])]);
    let sink = OtlpSink::start().expect("a sink");
    let variables = [
        (format!("{}{}", env_vars::NEMO_LENS, env_vars::suffix::ENABLED), "true".to_owned()),
        (env_vars::OTEL_EXPORTER_OTLP_PROTOCOL.to_owned(), "http/json".to_owned()),
        (env_vars::OTEL_EXPORTER_OTLP_ENDPOINT.to_owned(), sink.http_endpoint()),
        (env_vars::OTEL_EXPORTER_OTLP_COMPRESSION.to_owned(), "gzip".to_owned()),
    ];
    let map: BTreeMap<String, String> = variables.into_iter().collect();
    let (config, warnings) = LensConfig::from_env_map(&map, &[env_vars::NEMO_LENS]);
    assert_eq!(warnings, []);
    let handle = lens::setup_telemetry(config).expect("telemetry starts");
    assert_eq!(handle.warnings(), Vec::<String>::new());

    drop(managed_span!(WORK, "a span"));
    REQUESTS.add(1, &[]);
    assert!(handle.shutdown(Duration::from_secs(20)));

    let request = |signal: Signal| {
        let requests = sink.requests();
        let request = requests.into_iter().find(|request| request.signal == signal);
        request.expect("it arrived")
    };
    for signal in [Signal::Traces, Signal::Metrics] {
        let kind = ("content-type".to_owned(), "application/json".to_owned());
        assert!(request(signal).headers.contains(&kind), "{signal:?}");
    }
    assert_eq!(sink.spans().len(), 1);
    let metrics: serde_json::Value =
        serde_json::from_slice(&request(Signal::Metrics).body).expect("JSON");
    let scopes = &metrics["resourceMetrics"][0]["scopeMetrics"];
    let all = scopes.as_array().into_iter().flatten();
    let metric = all
        .flat_map(|scope| scope["metrics"].as_array().into_iter().flatten())
        .find(|metric| metric["name"] == "test.requests")
        .expect("the counter");
    assert_eq!(metric["sum"]["dataPoints"][0]["asInt"], "1", "{metric}");
    assert_eq!(metric["sum"]["aggregationTemporality"], 2);
}
