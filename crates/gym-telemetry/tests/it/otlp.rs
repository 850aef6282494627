//! Where telemetry goes, by the rules of the OTLP exporter specification.

use gym_telemetry::{Resolved, Signal, TelemetryConfig, env_vars, resolve};
use lens::config::LensConfig;
use serde_json::json;

use crate::{block, env};

const HTTP: (&str, &str) = (env_vars::OTEL_EXPORTER_OTLP_PROTOCOL, "http/protobuf");

fn resolved(variables: &[(&str, &str)], config: &TelemetryConfig) -> Resolved {
    resolve(&env(variables), config)
}

fn endpoint(resolved: &Resolved, signal: Signal) -> String {
    resolved.otlp.of(signal).endpoint.expose().to_owned()
}

#[test]
fn a_base_gets_the_path_of_each_signal_with_one_slash_wherever_it_is_said() {
    for (base, path) in [
        ("http://h:4318", "http://h:4318/v1/traces"),
        ("http://h:4318/", "http://h:4318/v1/traces"),
        ("http://h:4318/p", "http://h:4318/p/v1/traces"),
        ("http://h:4318/p/", "http://h:4318/p/v1/traces"),
        ("http://[::1]:4318", "http://[::1]:4318/v1/traces"),
    ] {
        let variable = (env_vars::OTEL_EXPORTER_OTLP_ENDPOINT, base);
        let by_variable = resolved(&[HTTP, variable], &TelemetryConfig::default());
        let by_block =
            resolved(&[], &block(json!({"otlp_endpoint": base, "otlp_protocol": "http/protobuf"})));
        let code = TelemetryConfig {
            otlp_endpoint: by_block.otlp.base_endpoint.value.clone(),
            otlp_protocol: Some(gym_telemetry::Protocol::HttpProtobuf),
            ..TelemetryConfig::default()
        };
        let by_code = resolved(&[], &code);
        for (how, resolved) in [("variable", by_variable), ("block", by_block), ("code", by_code)] {
            assert_eq!(endpoint(&resolved, Signal::Traces), path, "{how}");
            let metrics = path.replace("traces", "metrics");
            assert_eq!(endpoint(&resolved, Signal::Metrics), metrics, "{how}");
        }
        let (lens, _) = LensConfig::from_env_map(&env(&[HTTP, variable]), &[]);
        assert_eq!(lens.traces_otlp.endpoint, path, "lens alone");
    }
}

#[test]
fn a_base_that_holds_a_path_of_its_own_is_told_with_the_fix() {
    let base = (env_vars::OTEL_EXPORTER_OTLP_ENDPOINT, "http://h:4318/v1/traces");
    let told = resolved(&[HTTP, base], &TelemetryConfig::default()).ignored_warnings();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        told[0],
        "OTEL_EXPORTER_OTLP_ENDPOINT ends in /v1/traces, and the path of each signal is added to it, so that nothing \
         arrives: leave /v1/traces out, or give it as OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
    );
    let by_block =
        json!({"otlp_endpoint": "http://h:4318/v1/metrics/", "otlp_protocol": "http/json"});
    let told = resolved(&[], &block(by_block)).ignored_warnings();
    assert!(told.len() == 1 && told[0].starts_with("telemetry.otlp_endpoint ends in"), "{told:?}");
    // gRPC adds no path, and an address of one signal is used as it is.
    assert!(resolved(&[base], &TelemetryConfig::default()).ignored_warnings().is_empty());
    let own = (env_vars::per_signal::ENDPOINT[0], "http://h:4318/v1/traces");
    assert!(resolved(&[HTTP, own], &TelemetryConfig::default()).ignored_warnings().is_empty());
}

#[test]
fn the_scheme_of_an_endpoint_wins_over_insecure_for_every_signal() {
    for signal in Signal::ALL {
        let nth = signal as usize;
        for insecure in [None, Some("true"), Some("false")] {
            for (given, without) in [("http://h:1", None), ("https://h:1", None), ("h:1", Some(()))]
            {
                let mut variables = vec![(env_vars::per_signal::ENDPOINT[nth], given)];
                variables.extend(insecure.map(|text| (env_vars::per_signal::INSECURE[nth], text)));
                let expected = match (without, insecure) {
                    (None, _) => given.to_owned(),
                    (Some(()), Some("true")) => format!("http://{given}"),
                    (Some(()), _) => format!("https://{given}"),
                };
                let resolved = resolved(&variables, &TelemetryConfig::default());
                assert_eq!(endpoint(&resolved, signal), expected, "{signal:?} {insecure:?}");
                let (lens, _) = LensConfig::from_env_map(&env(&variables), &[]);
                let lens = [&lens.traces_otlp, &lens.metrics_otlp, &lens.logs_otlp][nth];
                assert_eq!(lens.endpoint, expected, "lens alone: {signal:?} {insecure:?}");
            }
        }
    }
}

#[test]
fn what_is_said_of_one_signal_replaces_what_is_said_of_all() {
    use env_vars::per_signal::{COMPRESSION, ENDPOINT, HEADERS, PROTOCOL, TIMEOUT};
    for signal in Signal::ALL {
        let nth = signal as usize;
        let variables = [
            (env_vars::OTEL_EXPORTER_OTLP_ENDPOINT, "http://all:1"),
            (ENDPOINT[nth], "http://own:2/mine"),
            (env_vars::OTEL_EXPORTER_OTLP_HEADERS, "a=all,b=all"),
            (HEADERS[nth], "a=own"),
            (env_vars::OTEL_EXPORTER_OTLP_PROTOCOL, "http/protobuf"),
            (PROTOCOL[nth], "grpc"),
            (env_vars::OTEL_EXPORTER_OTLP_TIMEOUT, "1000"),
            (TIMEOUT[nth], "2000"),
            (env_vars::OTEL_EXPORTER_OTLP_COMPRESSION, "gzip"),
            (COMPRESSION[nth], "none"),
        ];
        let resolved = resolved(&variables, &TelemetryConfig::default());
        assert!(resolved.ignored_warnings().is_empty(), "{:?}", resolved.ignored_warnings());
        let told = |signal: Signal| {
            let of = resolved.otlp.of(signal);
            let headers = of.headers.value.as_ref().map(|headers| headers.expose().to_owned());
            (
                of.endpoint.expose().to_owned(),
                headers.unwrap_or_default(),
                format!("{:?}", of.protocol.value),
                of.timeout_millis.value,
                of.gzip.value,
            )
        };
        let own =
            ("http://own:2/mine".to_owned(), "a=own".to_owned(), "Grpc".to_owned(), 2000, false);
        assert_eq!(told(signal), own);
        for other in Signal::ALL.into_iter().filter(|other| *other != signal) {
            let path = format!("http://all:1/v1/{}", other.as_str());
            let all = (path, "a=all,b=all".to_owned(), "HttpProtobuf".to_owned(), 1000, true);
            assert_eq!(told(other), all, "beside {signal:?}");
        }
    }
}

#[test]
fn compression_is_read_in_any_case_and_an_unknown_one_is_told_once() {
    for (text, gzip, told) in
        [("gzip", true, 0), ("GZIP", true, 0), ("none", false, 0), ("zstd", false, 1)]
    {
        for protocol in ["grpc", "http/protobuf"] {
            let variables = [
                (env_vars::OTEL_EXPORTER_OTLP_COMPRESSION, text),
                (env_vars::OTEL_EXPORTER_OTLP_PROTOCOL, protocol),
            ];
            let resolved = resolved(&variables, &TelemetryConfig::default());
            assert!(Signal::ALL.iter().all(|signal| resolved.otlp.of(*signal).gzip.value == gzip));
            let warnings = resolved.ignored_warnings();
            assert_eq!(warnings.len(), told, "{text}: {warnings:?}");
        }
    }
}

#[test]
fn half_a_client_identity_and_unknown_propagators_are_told() {
    let told = |variables: &[(&str, &str)]| {
        resolved(variables, &TelemetryConfig::default()).ignored_warnings()
    };
    let half = told(&[(env_vars::OTEL_EXPORTER_OTLP_CLIENT_KEY, "key.pem")]);
    assert_eq!(
        half,
        [
            "OTEL_EXPORTER_OTLP_CLIENT_KEY has no effect without OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"
        ]
    );
    let unknown = told(&[(env_vars::OTEL_PROPAGATORS, "tracecontext,b3")]);
    assert!(unknown.len() == 1 && unknown[0].contains("b3"), "{unknown:?}");
    assert!(told(&[(env_vars::OTEL_PROPAGATORS, "Baggage, tracecontext")]).is_empty());
}

#[test]
fn one_bad_resource_attribute_discards_all_with_one_warning() {
    let with = |text: &str| {
        let variables = [(env_vars::OTEL_RESOURCE_ATTRIBUTES, text)];
        let resolved = resolved(&variables, &TelemetryConfig::default());
        (resolved.service_name.value.clone(), resolved.ignored_warnings().len())
    };
    assert_eq!(with("service.name=mine,team=a%2Cb"), ("mine".to_owned(), 0));
    assert_eq!(with("service.name=mine,x=%ZZ"), ("nemo-gym".to_owned(), 1));
}
