//! What one process does from its settings to its end.
//!
//! Telemetry is once per process, so each case runs in a process of its own: this binary again,
//! with exactly the environment that the case names.

use std::process::{Command, Output};

use gym_telemetry::{
    MemoryProfilingConfig, TelemetryConfig, configure_telemetry_env, env_vars, get_telemetry,
    init_telemetry, is_telemetry_env_enabled, is_telemetry_metrics_enabled,
    memory_profiling_config_from_env, settings, shutdown_telemetry,
};
use serde_json::json;

use crate::block;

/// Runs one of the `#[ignore]`d cases below alone.
fn run(case: &str, environment: &[(&str, &str)]) -> Output {
    let output = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", &format!("lifecycle::{case}"), "--ignored", "--nocapture"])
        .env_clear()
        .envs(environment.iter().copied())
        .output()
        .expect("a process");
    assert!(
        output.status.success() && String::from_utf8_lossy(&output.stdout).contains("1 passed"),
        "{case}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn warnings(output: &Output) -> Vec<String> {
    String::from_utf8_lossy(&output.stderr)
        .lines()
        .filter(|line| line.starts_with("warning: "))
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_process_that_was_told_nothing_stays_silent() {
    let output = run("case_off", &[]);
    assert_eq!(warnings(&output), [] as [&str; 0]);
    assert_eq!(warnings(&run("case_off", &[(env_vars::ENABLED, "0")])), [] as [&str; 0]);
    assert_eq!(
        warnings(&run(
            "case_off",
            &[(env_vars::ENABLED, "1"), (env_vars::OTEL_SDK_DISABLED, "true")]
        )),
        [] as [&str; 0]
    );
}

#[test]
fn an_unreadable_variable_is_said_once_and_telemetry_stays_off() {
    let variables = [(env_vars::ENABLED, "1"), (env_vars::TRACES_ENABLED, "perhaps")];
    let said = warnings(&run("case_off", &variables));
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains(env_vars::TRACES_ENABLED), "{said:?}");

    // The supervisor has said it already.
    let supervised = [&variables[..], &[(env_vars::GYM_LIFE_PIPE_FD, "0")]].concat();
    assert_eq!(warnings(&run("case_off", &supervised)), [] as [&str; 0]);
}

#[test]
#[ignore = "run by a test above, in a process of its own"]
fn case_off() {
    assert!(configure_telemetry_env(None).is_none());
    assert!(init_telemetry(Some("a"), Some("resources_servers"), &[]).is_none());
    assert!(init_telemetry(Some("a"), Some("resources_servers"), &[]).is_none());
    assert!(get_telemetry().is_none());
    assert!(!gym_telemetry::is_active());
    assert!(!is_telemetry_env_enabled() && !is_telemetry_metrics_enabled());
    shutdown_telemetry(10);
    shutdown_telemetry(10);
}

#[test]
fn the_block_is_the_layer_of_this_process_too() {
    run("case_block", &[(env_vars::lens::MEMORY_PROFILING_INTERVAL_SECONDS, "5")]);
}

#[test]
#[ignore = "run by a test above, in a process of its own"]
fn case_block() {
    assert!(!is_telemetry_env_enabled());
    let on = block(json!({
        "enabled": true,
        "metrics_enabled": false,
        "memory_profiling": {"enabled": true, "interval_seconds": 2}
    }));
    let (id, child) = configure_telemetry_env(Some(&on)).expect("on");
    assert!(is_telemetry_env_enabled() && !is_telemetry_metrics_enabled());
    assert_eq!(
        memory_profiling_config_from_env(&MemoryProfilingConfig::default()),
        MemoryProfilingConfig { enabled: true, interval_seconds: 5.0 }
    );
    assert_eq!(child.get(env_vars::RUN_ID), Some(id.as_str()));
    assert_eq!(settings().run_id.value.as_ref(), Some(&id));

    // The generated id is that of the process, however often it is asked.
    let (again, _) = configure_telemetry_env(Some(&on)).expect("on");
    assert_eq!(id, again);
    assert!(configure_telemetry_env(Some(&TelemetryConfig::default())).is_none());
    assert!(!is_telemetry_env_enabled());
}

#[test]
fn telemetry_starts_once_and_ends_once() {
    let output = run(
        "case_on",
        &[
            (env_vars::lens::ENABLED, "1"),
            (env_vars::EXPORTER, "console"),
            (env_vars::SPAN_GROUPS, "default,verfy"),
        ],
    );
    let said = warnings(&output);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("verfy") && said[0].contains("verify"), "{said:?}");

    let stdout = String::from_utf8_lossy(&output.stdout);
    let span: serde_json::Value = stdout
        .lines()
        .filter(|line| line.contains("\"trace_id\""))
        .filter_map(|line| serde_json::from_str(&line[line.find('{')?..]).ok())
        .next()
        .unwrap_or_else(|| panic!("no span in {stdout}"));
    assert_eq!(span["name"], "gym.rollout");
    let resource = &span["resource"]["attributes"];
    assert_eq!(resource["service.name"], "nemo-gym/a");
    assert_eq!(resource["nemo.gym.service_group"], "nemo-gym");
    assert_eq!(resource["nemo.gym.server.type"], "responses_api_agents");
    assert_eq!(resource["nemo.run.id"].as_str().map(str::len), Some(12));
    assert_eq!(resource["extra"], 7);
    let attributes = &span["attributes"];
    assert_eq!(attributes["nemo.gym.rollout.id"], "3-1");
    assert_eq!(attributes["nemo.gym.task.index"], 3);

    let metric = |name: &str| -> serde_json::Value {
        stdout
            .lines()
            .filter(|line| line.starts_with("{\"type\":\"metric\""))
            .map(|line| serde_json::from_str(line).expect("a JSON line"))
            .find(|metric: &serde_json::Value| metric["name"] == name)
            .unwrap_or_else(|| panic!("no metric {name} in {stdout}"))
    };
    let completed = metric("gym.rollout.completed_total");
    let point = &completed["points"][0];
    assert_eq!(point["value"], 2);
    assert_eq!(point["attributes"], json!({"nemo.gym.rollout.outcome": "timeout"}));
    let duration = metric("http.server.request.duration");
    assert_eq!(duration["unit"], "s");
    assert_eq!(
        duration["points"][0]["bounds"],
        json!([0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0])
    );
    let verify = metric("gym.verify.duration_ms");
    assert_eq!((&verify["unit"], &verify["points"][0]["count"]), (&json!("ms"), &json!(2)));
    assert_eq!(metric("gym.verify.success_rate")["points"][0]["value"], 0.5);
}

#[test]
#[ignore = "run by a test above, in a process of its own"]
fn case_on() {
    use std::time::Duration;

    use gym_telemetry::{groups, metrics, semconv};

    let extra = [("extra".to_owned(), lens::Value::from(7_i64))];
    let handle = init_telemetry(Some("a"), Some("responses_api_agents"), &extra).expect("on");
    assert!(handle.is_exporting());
    assert!(init_telemetry(Some("b"), None, &[]).is_some(), "idempotent");
    assert!(get_telemetry().is_some() && gym_telemetry::is_active());
    assert!(groups::ROLLOUT.is_enabled() && !groups::VERIFY.is_enabled());
    assert!(gym_telemetry::is_span_group_enabled(groups::name::ROLLOUT));

    let context = lens::Context::empty().with_baggage(&[
        (semconv::ROLLOUT_ID, "3-1".to_owned()),
        (semconv::TASK_INDEX, "3".to_owned()),
    ]);
    lens::Span::build(&groups::ROLLOUT, semconv::span::ROLLOUT).parent(&context).start().end();

    let outcome = lens::Value::from_static(semconv::value::outcome::TIMEOUT);
    metrics::ROLLOUT_COMPLETED.add(2, &[(semconv::ROLLOUT_OUTCOME, outcome)]);
    metrics::HTTP_SERVER_DURATION.record(0.003, &[]);
    metrics::record_verification(Duration::from_millis(12), true);
    metrics::record_verification(Duration::from_millis(14), false);
    shutdown_telemetry(5_000);
    shutdown_telemetry(5_000);
    assert!(get_telemetry().is_none() && !gym_telemetry::is_active());
    assert!(init_telemetry(Some("a"), None, &[]).is_none(), "once a process");
}
