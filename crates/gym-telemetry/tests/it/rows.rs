//! The settings table, and that nothing secret gets into it.

use gym_telemetry::{
    ChildEnv, Origin, RunId, TelemetryConfig, env_vars, resolve,
    telemetry_config_from_global_config,
};
use serde_json::json;

use crate::{block, env};

const SECRET: &str = "s3cr3t";

#[test]
fn secrets_are_in_no_output() {
    let with_secrets = block(json!({
        "enabled": true,
        "otlp_endpoint": format!("https://user:{SECRET}@c:4318/x?key={SECRET}"),
        "otlp_headers": format!("authorization=Bearer {SECRET}"),
    }));
    let environment = env(&[
        (env_vars::per_signal::HEADERS[0], &format!("x-api-key={SECRET}")),
        (env_vars::OTEL_EXPORTER_OTLP_PROTOCOL, "http/protobuf"),
        (env_vars::per_signal::ENDPOINT[2], &format!("https://u:{SECRET}@logs")),
        (env_vars::OTEL_RESOURCE_ATTRIBUTES, &format!("team=a,api_token={SECRET}")),
    ]);
    let resolved = resolve(&environment, &with_secrets);
    let child = ChildEnv::new(&resolved, &environment, &RunId::new("r").unwrap());

    let mut outputs = vec![
        format!("{with_secrets:?}"),
        serde_json::to_string(&with_secrets).unwrap(),
        format!("{:?}", resolved.otlp),
        serde_json::to_string(&resolved.effective_block()).unwrap(),
    ];
    for row in resolved.rows() {
        outputs.push(format!("{row:?} {}", row.to_json()));
    }
    outputs.extend(resolved.off_warning());
    outputs.extend(resolved.ignored_warnings());
    let debug = format!("{child:?}");
    assert!(debug.contains(env_vars::OTEL_EXPORTER_OTLP_HEADERS), "{debug}");
    outputs.push(debug);
    let error =
        telemetry_config_from_global_config(&json!({"telemetry": {"otlp_headers": [SECRET]}}))
            .unwrap_err();
    outputs.push(format!("{error} {error:?}"));
    for output in outputs {
        assert!(!output.contains(SECRET), "{output}");
    }
    // It is masked where it is shown, and whole where it is sent.
    assert!(resolved.otlp.traces.headers.value.as_ref().unwrap().expose().contains(SECRET));
    assert!(child.get(env_vars::OTEL_EXPORTER_OTLP_HEADERS).unwrap().contains(SECRET));
}

#[test]
fn the_table_holds_every_field_of_the_block_once() {
    let rows = resolve(&env(&[]), &TelemetryConfig::default()).rows();
    let fields = serde_json::to_value(TelemetryConfig::default()).unwrap();
    let mut names: Vec<String> = Vec::new();
    for (field, value) in fields.as_object().unwrap() {
        match (field.as_str(), value.as_object()) {
            (_, Some(inner)) => names.extend(inner.keys().map(|key| format!("{field}.{key}"))),
            // Shown as each signal uses it.
            ("otlp_endpoint" | "otlp_protocol" | "otlp_headers", _) => {
                names.extend(
                    ["traces", "metrics", "logs"].map(|signal| format!("{signal}.{field}")),
                );
            }
            _ => names.push(field.clone()),
        }
    }
    for name in names {
        assert_eq!(rows.iter().filter(|row| row.name == name).count(), 1, "{name}");
    }
    let all: std::collections::BTreeSet<_> = rows.iter().map(|row| &row.name).collect();
    assert_eq!(all.len(), rows.len(), "a name is shown twice");
}

#[test]
fn the_effective_block_makes_another_process_decide_the_same() {
    let environment = env(&[
        (env_vars::lens::ENABLED, "1"),
        (env_vars::SPAN_GROUPS, "per_rollout"),
        (env_vars::OTEL_EXPORTER_OTLP_ENDPOINT, "http://c:4318"),
        (env_vars::OTEL_EXPORTER_OTLP_PROTOCOL, "http/protobuf"),
        (env_vars::RUN_ID, "fleet-1"),
    ]);
    let fleet = resolve(&environment, &block(json!({"otlp_headers": "a=s3cr3t"})));
    let served = block(fleet.effective_block().into());
    assert!(served.warnings.is_empty(), "{:?}", served.warnings);
    assert_eq!(served.otlp_headers, None);

    let driver = resolve(&env(&[]), &served);
    assert!(driver.is_enabled());
    assert_eq!(driver.run_id.value, fleet.run_id.value);
    assert_eq!(driver.otlp.traces.endpoint.expose(), "http://c:4318/v1/traces");
    assert_eq!(driver.span_groups.value, "per_rollout");
    assert_eq!(driver.enabled.origin, Origin::Block);

    let told_otherwise = resolve(&env(&[(env_vars::ENABLED, "0")]), &served);
    assert!(!told_otherwise.is_enabled());
}

#[test]
fn origins_read_well() {
    assert_eq!(Origin::Variable(env_vars::ENABLED).to_string(), "NEMO_GYM_OTEL_ENABLED");
    assert_eq!(Origin::Block.to_string(), "`telemetry:` block");
    assert_eq!(Origin::Generated.to_string(), "generated");
    assert_eq!(Origin::Default.to_string(), "default");
}
