//! Who decides a setting.

use gym_telemetry::{Origin, Resolved, env_vars, resolve};
use serde_json::{Value, json};

use crate::{block, env};

/// One setting: its layers from strongest to weakest, each with a value of its own.
struct Case {
    row: &'static str,
    /// Variable, value as written, value as shown.
    variables: &'static [(&'static str, &'static str, &'static str)],
    /// Key and value in the block, value as shown.
    block: Option<(&'static str, Value, &'static str)>,
    default: &'static str,
}

fn cases() -> Vec<Case> {
    macro_rules! own {
        ($row:literal, $name:ident, $gym:expr, $lens:expr, $block:expr, $default:expr) => {
            Case {
                row: $row,
                variables: &[
                    (env_vars::$name, $gym.0, $gym.1),
                    (env_vars::lens::$name, $lens.0, $lens.1),
                ],
                block: Some(($row, $block.0, $block.1)),
                default: $default,
            }
        };
    }
    macro_rules! switch {
        ($row:literal, $name:ident, true) => {
            own!($row, $name, ("no", "false"), ("ON", "true"), (json!(false), "false"), "true")
        };
        ($row:literal, $name:ident, false) => {
            own!($row, $name, (" Yes ", "true"), ("0", "false"), (json!(true), "true"), "false")
        };
    }
    vec![
        switch!("enabled", ENABLED, false),
        switch!("service_name_per_server", SERVICE_NAME_PER_SERVER, true),
        own!("span_groups", SPAN_GROUPS, ("a", "a"), ("b", "b"), (json!("c"), "c"), "default"),
        switch!("traces_enabled", TRACES_ENABLED, true),
        switch!("metrics_enabled", METRICS_ENABLED, true),
        switch!("logs_enabled", LOGS_ENABLED, false),
        switch!("instrument_aiohttp", INSTRUMENT_AIOHTTP, true),
        own!(
            "export_strategy",
            EXPORT_STRATEGY,
            ("single_rank", "single_rank"),
            ("sampled", "sampled"),
            (json!("first_rank_per_node"), "first_rank_per_node"),
            "all_ranks"
        ),
        own!("export_rank", EXPORT_RANK, ("3", "3"), ("4", "4"), (json!(5), "5"), "-1"),
        own!("run_id", RUN_ID, ("x", "x"), ("y", "y"), (json!("z"), "z"), "(new for every fleet)"),
        own!("live_events", LIVE_EVENTS, ("on", "on"), ("off", "off"), (json!("on"), "on"), "auto"),
        switch!("propagate_to_models", PROPAGATE_TO_MODELS, true),
        own!(
            "propagate_to",
            PROPAGATE_TO,
            ("a, b", "a,b"),
            ("c", "c"),
            (json!(["d", "e"]), "d,e"),
            "-"
        ),
        switch!("cpu_sampling_enabled", CPU_SAMPLING_ENABLED, false),
        own!(
            "cpu_min_resample_interval_s",
            CPU_MIN_RESAMPLE_INTERVAL_S,
            ("2", "2"),
            ("3", "3"),
            (json!(4), "4"),
            "1"
        ),
        switch!("memory_sampling_enabled", MEMORY_SAMPLING_ENABLED, false),
        own!(
            "memory_min_resample_interval_s",
            MEMORY_MIN_RESAMPLE_INTERVAL_S,
            ("0.5", "0.5"),
            ("3", "3"),
            (json!(4), "4"),
            "1"
        ),
        switch!("gpu_sampling_enabled", GPU_SAMPLING_ENABLED, false),
        own!(
            "gpu_sample_interval_s",
            GPU_SAMPLE_INTERVAL_S,
            ("2", "2"),
            ("3", "3"),
            (json!(4.5), "4.5"),
            "10"
        ),
        Case {
            row: "service_name",
            variables: &[
                (env_vars::OTEL_SERVICE_NAME, "a", "a"),
                (env_vars::OTEL_RESOURCE_ATTRIBUTES, "x=1,service.name=b", "b"),
            ],
            block: Some(("service_name", json!("c"), "c")),
            default: "nemo-gym",
        },
        Case {
            row: "traces.exporter",
            variables: &[
                (env_vars::EXPORTER, "console", "console"),
                (env_vars::lens::EXPORTER, "otlp", "otlp"),
                (env_vars::OTEL_TRACES_EXPORTER, "console", "console"),
            ],
            block: Some(("exporter", json!("console"), "console")),
            default: "otlp",
        },
        Case {
            row: "traces.otlp_protocol",
            variables: &[
                (env_vars::per_signal::PROTOCOL[0], "http/json", "http/json"),
                (env_vars::OTEL_EXPORTER_OTLP_PROTOCOL, "http/protobuf", "http/protobuf"),
            ],
            block: Some(("otlp_protocol", json!("http/json"), "http/json")),
            default: "grpc",
        },
        Case {
            row: "metrics.otlp_endpoint",
            variables: &[
                (env_vars::per_signal::ENDPOINT[1], "http://a:1", "http://a:1"),
                (env_vars::OTEL_EXPORTER_OTLP_ENDPOINT, "http://b:2", "http://b:2"),
            ],
            block: Some(("otlp_endpoint", json!("http://c:3"), "http://c:3")),
            default: "http://localhost:4317",
        },
        Case {
            row: "logs.otlp_headers",
            variables: &[
                (env_vars::per_signal::HEADERS[2], "a=1", "a=****"),
                (env_vars::OTEL_EXPORTER_OTLP_HEADERS, "b=2", "b=****"),
            ],
            block: Some(("otlp_headers", json!("c=3"), "c=****")),
            default: "-",
        },
        Case {
            row: "traces.otlp_timeout_millis",
            variables: &[
                (env_vars::per_signal::TIMEOUT[0], "7", "7"),
                (env_vars::OTEL_EXPORTER_OTLP_TIMEOUT, "8", "8"),
            ],
            block: None,
            default: "10000",
        },
    ]
}

fn row(resolved: &Resolved, name: &str) -> (String, Origin) {
    let row = resolved
        .rows()
        .into_iter()
        .find(|row| row.name == name)
        .unwrap_or_else(|| panic!("no row {name}"));
    (row.value, row.origin)
}

/// Guarantees: with all layers set the strongest decides; each time it is taken away, the next
/// one does; a blank variable counts as taken away.
#[test]
fn every_setting_is_decided_by_its_strongest_layer() {
    for case in cases() {
        let json = match &case.block {
            Some((key, value, _)) => json!({ *key: value }),
            None => json!({}),
        };
        for strongest in 0..case.variables.len() {
            let mut variables = Vec::new();
            for (nth, (name, value, _)) in case.variables.iter().enumerate() {
                variables.push((*name, if nth < strongest { " " } else { *value }));
            }
            let (name, _, shown) = case.variables[strongest];
            assert_eq!(
                row(&resolve(&env(&variables), &block(json.clone())), case.row),
                (shown.to_owned(), Origin::Variable(name)),
                "{} by {name}",
                case.row
            );
        }
        if let Some((_, _, shown)) = case.block {
            assert_eq!(
                row(&resolve(&env(&[]), &block(json)), case.row),
                (shown.to_owned(), Origin::Block),
                "{} by the block",
                case.row
            );
        }
        let (value, origin) = row(&resolve(&env(&[]), &block(json!({}))), case.row);
        assert_eq!(value, case.default, "{} by default", case.row);
        assert!(matches!(origin, Origin::Default | Origin::Generated), "{}", case.row);
    }
}

#[test]
fn kill_switches_beat_everything() {
    let off = resolve(
        &env(&[(env_vars::OTEL_SDK_DISABLED, "true"), (env_vars::ENABLED, "1")]),
        &block(json!({"enabled": true})),
    );
    assert!(!off.is_enabled());
    assert_eq!(off.enabled.origin, Origin::Variable(env_vars::OTEL_SDK_DISABLED));
    assert_eq!(off.off_warning(), None);

    let only_metrics = resolve(
        &env(&[
            (env_vars::OTEL_TRACES_EXPORTER, "none"),
            (env_vars::TRACES_ENABLED, "1"),
            (env_vars::EXPORTER, "console"),
        ]),
        &block(json!({"enabled": true})),
    );
    assert!(!only_metrics.traces.enabled.value);
    assert_eq!(
        only_metrics.traces.enabled.origin,
        Origin::Variable(env_vars::OTEL_TRACES_EXPORTER)
    );
    assert!(only_metrics.metrics.enabled.value);
    assert!(only_metrics.is_enabled());
}

#[test]
fn booleans_are_read_in_every_spelling() {
    let enabled = |text: &str| resolve(&env(&[(env_vars::ENABLED, text)]), &block(json!({})));
    for text in ["1", "true", "TRUE", "yes", "On", " true\n"] {
        assert!(enabled(text).is_enabled(), "{text:?}");
    }
    for text in ["0", "false", "No", "OFF", "", "  "] {
        let resolved = enabled(text);
        assert!(!resolved.is_enabled(), "{text:?}");
        assert_eq!(resolved.off_warning(), None, "{text:?}");
    }
}

#[test]
fn an_unreadable_variable_switches_telemetry_off_with_one_warning_that_names_it() {
    let resolved = resolve(
        &env(&[(env_vars::ENABLED, "1"), (env_vars::METRICS_ENABLED, "maybe")]),
        &block(json!({})),
    );
    assert!(!resolved.is_enabled());
    assert_eq!(
        resolved.off_warning().unwrap(),
        "telemetry is off: NEMO_GYM_OTEL_METRICS_ENABLED is \"maybe\", \
         expected one of 1, true, yes, on, 0, false, no, off"
    );
    let (value, origin) = row(&resolved, "enabled");
    assert_eq!((value.as_str(), origin), ("false", Origin::Variable(env_vars::METRICS_ENABLED)));

    let misspelt_switch = resolve(&env(&[(env_vars::ENABLED, "ja")]), &block(json!({})));
    assert!(misspelt_switch.off_warning().unwrap().contains(env_vars::ENABLED));

    let off_anyway = resolve(&env(&[(env_vars::EXPORT_RANK, "last")]), &block(json!({})));
    assert_eq!(off_anyway.off_warning(), None);
}

#[test]
fn a_ratio_that_is_none_is_ignored_and_one_that_nobody_reads_is_not_looked_at() {
    let resolved = |sampler: &str, ratio: &str| {
        let variables = env(&[
            (env_vars::OTEL_TRACES_SAMPLER, sampler),
            (env_vars::OTEL_TRACES_SAMPLER_ARG, ratio),
        ]);
        resolve(&variables, &block(json!({"enabled": true})))
    };
    for ratio in ["NaN", "inf", "-0.1", "1.5", "abc"] {
        let resolved = resolved("parentbased_traceidratio", ratio);
        assert!(resolved.is_enabled());
        assert_eq!(resolved.standard.traces_sampler_arg.value, None, "{ratio}");
        let warnings = resolved.ignored_warnings();
        assert!(warnings.len() == 1 && warnings[0].contains(ratio), "{warnings:?}");
    }
    assert!(resolved("always_on", "abc").ignored.is_empty());
    let unset = resolved("traceidratio", " ");
    assert_eq!((unset.standard.traces_sampler_arg.value, unset.ignored.len()), (None, 0));
    let unknown = resolved("sometimes", "0.5");
    assert_eq!(unknown.standard.traces_sampler.value, "parentbased_always_on");
    assert_eq!(unknown.ignored.len(), 1);
}

#[test]
fn an_unreadable_standard_variable_is_ignored() {
    let resolved = resolve(
        &env(&[
            (env_vars::ENABLED, "1"),
            (env_vars::OTEL_EXPORTER_OTLP_PROTOCOL, "carrier-pigeon"),
            (env_vars::OTEL_BSP_SCHEDULE_DELAY, "soon"),
        ]),
        &block(json!({"otlp_protocol": "http/protobuf"})),
    );
    assert!(resolved.is_enabled());
    assert_eq!(row(&resolved, "traces.otlp_protocol").0, "http/protobuf");
    let warnings = resolved.ignored_warnings();
    for name in [env_vars::OTEL_EXPORTER_OTLP_PROTOCOL, env_vars::OTEL_BSP_SCHEDULE_DELAY] {
        assert_eq!(
            warnings.iter().filter(|warning| warning.contains(name)).count(),
            1,
            "{name}: {warnings:?}"
        );
    }
}

#[test]
fn the_run_id_is_given_then_that_of_slurm_then_generated() {
    let slurm = (env_vars::SLURM_JOB_ID, "4711");
    let id = |variables: &[(&str, &str)], json: Value| {
        let resolved = resolve(&env(variables), &block(json));
        (resolved.run_id.value.map(|id| id.to_string()), resolved.run_id.origin)
    };
    assert_eq!(
        id(&[slurm, (env_vars::lens::RUN_ID, "l")], json!({"run_id": "b"})),
        (Some("l".to_owned()), Origin::Variable(env_vars::lens::RUN_ID))
    );
    assert_eq!(id(&[slurm], json!({"run_id": "b"})), (Some("b".to_owned()), Origin::Block));
    assert_eq!(
        id(&[slurm], json!({})),
        (Some("4711".to_owned()), Origin::Variable(env_vars::SLURM_JOB_ID))
    );
    assert_eq!(id(&[(env_vars::RUN_ID, " ")], json!({"run_id": ""})), (None, Origin::Generated));
}

#[test]
fn http_endpoints_get_the_signals_path_and_grpc_ones_do_not() {
    let at = |variables: &[(&str, &str)], json: Value| {
        let resolved = resolve(&env(variables), &block(json));
        (
            resolved.otlp.traces.endpoint.expose().to_owned(),
            resolved.otlp.metrics.endpoint.expose().to_owned(),
        )
    };
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(
        at(&[], json!({"otlp_endpoint": "http://c:4318/", "otlp_protocol": "http/protobuf"})),
        pair("http://c:4318/v1/traces", "http://c:4318/v1/metrics")
    );
    assert_eq!(
        at(&[], json!({"otlp_protocol": "http/json"})),
        pair("http://localhost:4318/v1/traces", "http://localhost:4318/v1/metrics")
    );
    assert_eq!(
        at(
            &[
                (env_vars::per_signal::ENDPOINT[0], "http://t:1/mine"),
                (env_vars::OTEL_EXPORTER_OTLP_PROTOCOL, "http/protobuf")
            ],
            json!({"otlp_endpoint": "http://c:4318"})
        ),
        pair("http://t:1/mine", "http://c:4318/v1/metrics")
    );
    assert_eq!(
        at(&[(env_vars::OTEL_EXPORTER_OTLP_ENDPOINT, "collector:4317")], json!({})),
        pair("https://collector:4317", "https://collector:4317")
    );
    assert_eq!(
        at(
            &[
                (env_vars::OTEL_EXPORTER_OTLP_ENDPOINT, "collector:4317"),
                (env_vars::OTEL_EXPORTER_OTLP_INSECURE, "true")
            ],
            json!({})
        )
        .0,
        "http://collector:4317"
    );
}

#[test]
fn the_service_name_gets_the_instances_name_unless_it_is_told_not_to() {
    let resolved = resolve(&env(&[]), &block(json!({})));
    assert_eq!(resolved.service_name_of(Some("policy_model")), "nemo-gym/policy_model");
    assert_eq!(resolved.service_name_of(None), "nemo-gym");
    let plain = resolve(&env(&[]), &block(json!({"service_name_per_server": false})));
    assert_eq!(plain.service_name_of(Some("policy_model")), "nemo-gym");
}

#[test]
fn a_block_made_in_code_says_what_differs_from_the_default() {
    let made = gym_telemetry::TelemetryConfig {
        enabled: true,
        span_groups: "all".to_owned(),
        ..Default::default()
    };
    let resolved = resolve(&env(&[]), &made);
    assert_eq!(resolved.enabled.origin, Origin::Block);
    assert_eq!(resolved.span_groups.origin, Origin::Block);
    assert_eq!(resolved.metrics.enabled.origin, Origin::Default);
}
