//! What children are told.

use std::collections::BTreeMap;

use gym_telemetry::{ChildEnv, RunId, TelemetryConfig, env_vars, groups, resolve};
use serde_json::json;

use crate::{block, env};

fn hand_over(variables: &[(&str, &str)], block: &TelemetryConfig) -> ChildEnv {
    let env = env(variables);
    ChildEnv::new(&resolve(&env, block), &env, &RunId::new("0123456789ab").unwrap())
}

fn map(child: &ChildEnv) -> BTreeMap<String, String> {
    child.iter().collect()
}

#[test]
fn without_a_block_only_the_generated_run_id_is_handed_over() {
    let child = hand_over(&[(env_vars::lens::ENABLED, "1")], &TelemetryConfig::default());
    assert_eq!(map(&child), env(&[(env_vars::RUN_ID, "0123456789ab")]));
}

#[test]
fn what_the_block_says_is_handed_over_and_defaults_are_not() {
    let child = hand_over(
        &[],
        &block(json!({
            "enabled": true,
            "service_name": "mine",
            "span_groups": "Default, sandbox",
            "exporter": "console",
            "metrics_enabled": true,
            "otlp_endpoint": "http://c:4318",
            "otlp_protocol": "http/protobuf",
            "otlp_headers": "x-team=s3cr3t",
            "run_id": "night-7",
            "memory_profiling": {"interval_seconds": 2}
        })),
    );
    assert_eq!(
        map(&child),
        env(&[
            (env_vars::ENABLED, "1"),
            (env_vars::OTEL_SERVICE_NAME, "mine"),
            (env_vars::SPAN_GROUPS, "Default, sandbox"),
            (env_vars::EXPORTER, "console"),
            (env_vars::METRICS_ENABLED, "1"),
            (env_vars::OTEL_EXPORTER_OTLP_ENDPOINT, "http://c:4318"),
            (env_vars::OTEL_EXPORTER_OTLP_PROTOCOL, "http/protobuf"),
            (env_vars::OTEL_EXPORTER_OTLP_HEADERS, "x-team=s3cr3t"),
            (env_vars::RUN_ID, "night-7"),
            (env_vars::MEMORY_PROFILING_INTERVAL_SECONDS, "2"),
        ])
    );
}

#[test]
fn what_the_user_set_in_any_higher_layer_is_left_alone() {
    let child = hand_over(
        &[
            (env_vars::lens::ENABLED, "1"),
            (env_vars::lens::SPAN_GROUPS, "all"),
            (env_vars::OTEL_SERVICE_NAME, "theirs"),
            (env_vars::OTEL_EXPORTER_OTLP_ENDPOINT, "http://theirs:4317"),
            (env_vars::RUN_ID, "r"),
        ],
        &block(json!({
            "enabled": true,
            "service_name": "mine",
            "span_groups": "default",
            "otlp_endpoint": "http://mine:4317",
            "run_id": "b"
        })),
    );
    assert_eq!(map(&child), BTreeMap::new());
}

/// Guarantees: a child that resolves its inherited environment plus the hand-over, without a
/// block, decides like its parent.
#[test]
fn a_child_decides_like_its_parent() {
    let blocks = [
        json!({"enabled": true}),
        json!({"enabled": true, "exporter": "console", "traces_enabled": false}),
        json!({"enabled": true, "exporter": "console", "otlp_endpoint": "http://c:1",
               "otlp_headers": "a=b", "otlp_protocol": "http/json", "live_events": "on",
               "propagate_to": ["x", "y"], "instrument_http_client": false, "export_rank": 0}),
    ];
    let environments = [
        env(&[]),
        env(&[(env_vars::OTEL_TRACES_EXPORTER, "otlp")]),
        env(&[(env_vars::lens::EXPORTER, "otlp"), (env_vars::TRACES_ENABLED, "1")]),
        env(&[(env_vars::per_signal::ENDPOINT[1], "http://m:9"), (env_vars::SLURM_JOB_ID, "3")]),
        env(&[(env_vars::OTEL_METRICS_EXPORTER, "none"), (env_vars::SPAN_GROUPS, "all")]),
        env(&[(env_vars::per_signal::PROTOCOL[0], "grpc")]),
    ];
    let run_id = RunId::new("0123456789ab").unwrap();
    for json in &blocks {
        for parent_env in &environments {
            let parent = resolve(parent_env, &block(json.clone()));
            let mut child_env = parent_env.clone();
            child_env.extend(ChildEnv::new(&parent, parent_env, &run_id).iter());
            let child = resolve(&child_env, &TelemetryConfig::default());
            let values = |resolved: &gym_telemetry::Resolved| {
                let mut rows: Vec<_> =
                    resolved.rows().into_iter().map(|row| (row.name, row.value)).collect();
                // Only its use by the three signals counts.
                rows.retain(|(name, _)| name != "exporter" && name != "run_id");
                rows
            };
            assert_eq!(values(&child), values(&parent), "{json} in {parent_env:?}");
            let expected = parent.run_id.value.as_ref().unwrap_or(&run_id);
            assert_eq!(child.run_id.value.as_ref(), Some(expected));
        }
    }
}

#[test]
fn a_python_child_gets_only_groups_that_it_knows_with_one_sentence_saying_so() {
    let ours = hand_over(&[], &block(json!({"span_groups": "default,concurrency,My_Group"})));
    let (child, warning) = ours.for_foreign();
    assert_eq!(child.get(env_vars::SPAN_GROUPS), Some("default"));
    assert_eq!(
        warning.unwrap(),
        "Python servers do not know the span groups `concurrency`, `my_group` and are started \
         without them"
    );
    assert_eq!(ours.get(env_vars::SPAN_GROUPS), Some("default,concurrency,My_Group"));

    let by_user = hand_over(
        &[(env_vars::lens::ENABLED, "1"), (env_vars::lens::SPAN_GROUPS, "verify,startup")],
        &TelemetryConfig::default(),
    );
    assert_eq!(by_user.for_foreign().0.get(env_vars::SPAN_GROUPS), Some("verify"));

    let none_left = hand_over(&[(env_vars::SPAN_GROUPS, "startup")], &block(json!({})));
    assert_eq!(none_left.for_foreign().0.get(env_vars::TRACES_ENABLED), Some("0"));

    let known = hand_over(&[(env_vars::SPAN_GROUPS, "per_rollout, sandbox")], &block(json!({})));
    let (child, warning) = known.for_foreign();
    assert_eq!((child.get(env_vars::SPAN_GROUPS), warning), (None, None));
}

#[test]
fn a_list_of_no_groups_is_no_groups_to_children_too() {
    let none = hand_over(&[], &block(json!({"enabled": true, "span_groups": ","})));
    let child = resolve(&map(&none), &TelemetryConfig::default());
    assert!(groups::resolve(&child.span_groups).names().is_empty());
    let (python, warning) = none.for_foreign();
    assert_eq!((python.get(env_vars::TRACES_ENABLED), warning), (Some("0"), None));
}

#[test]
fn a_python_child_uses_the_stable_http_conventions_unless_the_user_chose() {
    let default = hand_over(&[], &block(json!({})));
    assert_eq!(default.get(env_vars::OTEL_SEMCONV_STABILITY_OPT_IN), None);
    let (child, _) = default.for_foreign();
    assert_eq!(child.get(env_vars::OTEL_SEMCONV_STABILITY_OPT_IN), Some("http"));

    let chosen =
        hand_over(&[(env_vars::OTEL_SEMCONV_STABILITY_OPT_IN, "http/dup")], &block(json!({})));
    assert_eq!(chosen.for_foreign().0.get(env_vars::OTEL_SEMCONV_STABILITY_OPT_IN), None);
}

#[test]
fn a_command_gets_the_variables() {
    let child = hand_over(&[], &block(json!({"enabled": true})));
    let mut command = std::process::Command::new("true");
    child.apply(&mut command);
    let set: BTreeMap<_, _> = command
        .get_envs()
        .map(|(name, value)| (name.to_str().unwrap(), value.unwrap().to_str().unwrap()))
        .collect();
    assert_eq!(set.get(env_vars::ENABLED), Some(&"1"));
    assert_eq!(set.len(), child.len());
}
