//! Reading the `telemetry:` block.

use gym_telemetry::{
    Exporter, LiveEvents, Protocol, TelemetryConfig, telemetry_config_from_global_config,
};
use serde_json::{Value, json};

use crate::block;

#[test]
fn a_config_without_a_block_is_all_defaults_and_off() {
    let config = telemetry_config_from_global_config(&json!({"policy": {}})).unwrap();
    assert_eq!(config, TelemetryConfig::default());
    assert!(!config.enabled);
    assert_eq!(telemetry_config_from_global_config(&json!({"telemetry": null})).unwrap(), config);
}

#[test]
fn every_field_of_the_block_is_read() {
    let read = telemetry_config_from_global_config(&json!({"telemetry": {
        "enabled": true,
        "service_name": "s",
        "service_name_per_server": false,
        "span_groups": "default,sandbox",
        "exporter": "console",
        "traces_enabled": false,
        "metrics_enabled": false,
        "logs_enabled": true,
        "instrument_aiohttp": false,
        "otlp_endpoint": "http://c:1",
        "otlp_protocol": "http/protobuf",
        "otlp_headers": "x-team=t",
        "export_strategy": "single_rank",
        "export_rank": 2,
        "run_id": "night-7",
        "live_events": "off",
        "propagate_to_models": false,
        "propagate_to": ["judge.example"],
        "memory_profiling": {"enabled": true, "interval_seconds": 0.5},
        "cpu_sampling_enabled": true,
        "cpu_min_resample_interval_s": 2.5,
        "memory_sampling_enabled": true,
        "memory_min_resample_interval_s": 3,
        "gpu_sampling_enabled": true,
        "gpu_sample_interval_s": 4
    }}))
    .unwrap();
    let expected = TelemetryConfig {
        enabled: true,
        service_name: "s".to_owned(),
        service_name_per_server: false,
        span_groups: "default,sandbox".to_owned(),
        exporter: Exporter::Console,
        traces_enabled: false,
        metrics_enabled: false,
        logs_enabled: true,
        instrument_aiohttp: false,
        otlp_endpoint: Some(gym_telemetry::secret::SecretUrl::new("http://c:1")),
        otlp_protocol: Some(Protocol::HttpProtobuf),
        otlp_headers: Some(gym_telemetry::secret::Secret::new("x-team=t")),
        export_strategy: "single_rank".to_owned(),
        export_rank: 2,
        run_id: Some("night-7".to_owned()),
        live_events: LiveEvents::Off,
        propagate_to_models: false,
        propagate_to: vec!["judge.example".to_owned()],
        memory_profiling: gym_telemetry::MemoryProfilingConfig {
            enabled: true,
            interval_seconds: 0.5,
        },
        cpu_sampling_enabled: true,
        cpu_min_resample_interval_s: 2.5,
        memory_sampling_enabled: true,
        memory_min_resample_interval_s: 3.0,
        gpu_sampling_enabled: true,
        gpu_sample_interval_s: 4.0,
        written: read.written.clone(),
        warnings: Vec::new(),
    };
    assert_eq!(read, expected);
    assert_eq!(read.written.len(), 26, "{:?}", read.written);
}

#[test]
fn what_interpolation_and_yaml_make_of_a_value_is_read() {
    let config = block(json!({
        "enabled": "true",
        "logs_enabled": 1,
        "export_rank": "2",
        "gpu_sample_interval_s": "2.5",
        "live_events": true,
        "run_id": "",
        "otlp_endpoint": null,
        "propagate_to": "a, b"
    }));
    assert!(config.enabled && config.logs_enabled);
    assert_eq!(config.export_rank, 2);
    assert_eq!(config.gpu_sample_interval_s, 2.5);
    assert_eq!(config.live_events, LiveEvents::On);
    assert_eq!(config.run_id, None);
    assert_eq!(config.propagate_to, ["a", "b"]);
    assert!(!config.written.contains("run_id") && !config.written.contains("otlp_endpoint"));
}

#[test]
fn the_alias_of_instrument_aiohttp_is_read_and_the_name_itself_wins() {
    let config = block(json!({"instrument_http_client": false}));
    assert!(!config.instrument_aiohttp);
    assert!(config.written.contains("instrument_aiohttp"));
    assert!(config.warnings.is_empty());

    let both = block(json!({"instrument_http_client": false, "instrument_aiohttp": true}));
    assert!(both.instrument_aiohttp);
    assert_eq!(both.warnings.len(), 1);
}

#[test]
fn an_unknown_key_loads_with_a_warning_that_names_the_closest() {
    let config = block(json!({
        "enabled": true,
        "span_group": "all",
        "sample_everything": 3,
        "memory_profiling": {"interval": 2}
    }));
    assert!(config.enabled);
    assert_eq!(config.span_groups, "default");
    assert_eq!(
        config.warnings,
        [
            "`telemetry.memory_profiling.interval` is no known setting and has no effect",
            "`telemetry.span_group` is no known setting and has no effect \
             (did you mean `span_groups`?)",
            "`telemetry.sample_everything` is no known setting and has no effect",
        ]
    );
}

#[test]
fn a_value_of_the_wrong_type_is_an_error_with_key_expectation_and_value() {
    let error = |json: Value| {
        telemetry_config_from_global_config(&json!({"telemetry": json})).unwrap_err().to_string()
    };
    for (json, message) in [
        (json!("on"), "`telemetry`: expected a mapping, got \"on\""),
        (json!({"enabled": "maybe"}), "`telemetry.enabled`: expected true or false, got \"maybe\""),
        (json!({"enabled": 2}), "`telemetry.enabled`: expected true or false, got 2"),
        (json!({"span_groups": ["a"]}), "`telemetry.span_groups`: expected a string, got [\"a\"]"),
        (
            json!({"exporter": "jaeger"}),
            "`telemetry.exporter`: expected `otlp` or `console`, got \"jaeger\"",
        ),
        (json!({"export_rank": 1.5}), "`telemetry.export_rank`: expected an integer, got 1.5"),
        (json!({"run_id": 7}), "`telemetry.run_id`: expected a string, got 7"),
        (
            json!({"memory_profiling": {"interval_seconds": 0}}),
            "`telemetry.memory_profiling.interval_seconds`: expected a number of seconds above 0, \
             got 0",
        ),
        (
            json!({"otlp_headers": {"x-api-key": "s3cr3t"}}),
            "`telemetry.otlp_headers`: expected a string `name=value,…`, got ****",
        ),
    ] {
        assert_eq!(error(json), message);
    }
}

#[test]
fn serde_reads_the_same_block() {
    let config: TelemetryConfig =
        serde_json::from_value(json!({"enabled": true, "span_groups": "all"})).unwrap();
    assert_eq!(config, block(json!({"enabled": true, "span_groups": "all"})));
    let error =
        serde_json::from_value::<TelemetryConfig>(json!({"enabled": []})).unwrap_err().to_string();
    assert!(error.contains("telemetry.enabled"), "{error}");
}
