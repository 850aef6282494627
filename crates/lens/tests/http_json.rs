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
fn spans_go_as_json_and_metrics_as_protobuf() {
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
    assert_eq!(handle.warnings().len(), 1, "{:?}", handle.warnings());

    drop(managed_span!(WORK, "a span"));
    REQUESTS.add(1, &[]);
    assert!(handle.shutdown(Duration::from_secs(20)));

    let content_type = |signal: Signal| {
        let requests = sink.requests();
        let request = requests.into_iter().find(|request| request.signal == signal);
        let headers = request.expect("it arrived").headers;
        headers.into_iter().find(|(name, _)| name == "content-type").map(|(_, value)| value)
    };
    assert_eq!(sink.spans().len(), 1);
    assert_eq!(content_type(Signal::Traces).as_deref(), Some("application/json"));
    assert!(sink.metric_names().contains(&"test.requests".to_owned()));
    assert_eq!(content_type(Signal::Metrics).as_deref(), Some("application/x-protobuf"));
}
