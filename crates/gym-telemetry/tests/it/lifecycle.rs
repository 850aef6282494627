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
use lens_testing::{OtlpSink, Reply};
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

#[test]
fn sixteen_threads_at_once_start_one_pipeline() {
    let output =
        run("case_many_threads", &[(env_vars::ENABLED, "1"), (env_vars::EXPORTER, "console")]);
    assert_eq!(warnings(&output), [] as [&str; 0]);
    let spans = String::from_utf8_lossy(&output.stdout).matches("\"type\":\"span\"").count();
    assert_eq!(spans, 16, "each span is there once");
}

#[test]
#[ignore = "run by a test above, in a process of its own"]
fn case_many_threads() {
    use gym_telemetry::{groups, semconv};

    let start = std::sync::Barrier::new(16);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                start.wait();
                let handle = init_telemetry(Some("a"), None, &[]).expect("on");
                lens::Span::start(&groups::ROLLOUT, semconv::span::ROLLOUT).end();
                assert!(handle.is_exporting());
            });
        }
    });
    // A thread that has answered has its name.
    assert!(get_telemetry().expect("on").force_flush(std::time::Duration::from_secs(10)));
    assert_eq!(threads().iter().filter(|name| *name == "lens-export").count(), 1);
    assert_eq!(get_telemetry().expect("on").snapshot().ended, 16, "all in one pipeline");
    shutdown_telemetry(5_000);
}

/// Names of this process's threads.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux").filter_map(Result::ok);
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    tasks.filter_map(name).map(|name| name.trim().to_owned()).collect()
}

#[test]
fn telemetry_of_a_host_program_is_used_and_left_running() {
    let output = run("case_host", &[(env_vars::ENABLED, "1"), (env_vars::EXPORTER, "console")]);
    assert_eq!(warnings(&output), [] as [&str; 0]);
}

#[test]
#[ignore = "run by a test above, in a process of its own"]
fn case_host() {
    use std::time::Duration;

    use gym_telemetry::{groups, semconv};

    let config = lens::config::LensConfig {
        enabled: true,
        service_name: "host".to_owned(),
        traces_exporter: lens::config::ExporterKind::Memory,
        metrics_exporter: lens::config::ExporterKind::Memory,
        ..lens::config::LensConfig::default()
    };
    let host = lens::setup_telemetry(config).expect("starts");
    let ours = init_telemetry(Some("a"), None, &[]).expect("that of the host");
    assert!(gym_telemetry::is_active() && get_telemetry().is_some());
    let end_one = || lens::Span::start(&groups::ROLLOUT, semconv::span::ROLLOUT).end();
    end_one();
    assert_eq!(ours.snapshot().ended, 1);
    shutdown_telemetry(5_000);
    assert!(!gym_telemetry::is_active() && get_telemetry().is_none());
    end_one();
    assert!(host.is_exporting() && host.force_flush(Duration::from_secs(10)));
    assert_eq!((host.snapshot().ended, host.snapshot().exported), (2, 2));
    assert!(host.shutdown(Duration::from_secs(10)));
    assert!(lens::current_handle().is_none());
}

#[test]
fn what_was_lost_is_told_at_the_end_although_the_last_flush_went_well() {
    let sink = OtlpSink::start().expect("a sink");
    let endpoint = sink.grpc_endpoint();
    let folder = std::env::temp_dir().join(format!("gym-telemetry-end-{}", std::process::id()));
    let variables = [
        (env_vars::ENABLED, "1"),
        (env_vars::METRICS_ENABLED, "0"),
        (env_vars::SPOOL_DIR, folder.to_str().expect("UTF-8")),
        (env_vars::OTEL_EXPORTER_OTLP_ENDPOINT, endpoint.as_str()),
    ];
    let end = |output: &Output| warnings(output).pop().unwrap_or_default();
    sink.answer_with([Reply::PartialSaying(1, "no names")]);
    assert_eq!(end(&run("case_two_flushes", &variables)), "warning: the receiver rejected 1 span");
    assert!(!end(&run("case_two_flushes", &variables)).contains("the receiver rejected 1 span"));

    // Whoever started the server says it for all of them.
    sink.answer_with([Reply::PartialSaying(1, "no names")]);
    let supervised = [&variables[..], &[(env_vars::GYM_LIFE_PIPE_FD, "0")]].concat();
    assert!(!end(&run("case_two_flushes", &supervised)).contains("the receiver rejected 1 span"));

    sink.answer_with([Reply::Accept, Reply::Accept]);
    let small = [&variables[..], &[(env_vars::OTEL_BSP_MAX_QUEUE_SIZE, "1")]].concat();
    let said = end(&run("case_two_flushes", &small));
    assert_eq!(said, "warning: 1 span was lost (buffer_full: 1)");
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
#[ignore = "run by a test above, in a process of its own"]
fn case_two_flushes() {
    use std::time::Duration;

    use gym_telemetry::{groups, semconv};

    let handle = init_telemetry(Some("a"), None, &[]).expect("on");
    let end_one = || lens::Span::start(&groups::ROLLOUT, semconv::span::ROLLOUT).end();
    end_one();
    end_one();
    assert!(handle.force_flush(Duration::from_secs(10)));
    end_one();
    assert!(handle.force_flush(Duration::from_secs(10)), "the last one goes well");
    shutdown_telemetry(5_000);
}

#[test]
fn a_signal_that_is_switched_off_exports_nothing() {
    let kinds = |variables: &[(&str, &str)]| {
        let on = [(env_vars::ENABLED, "1"), (env_vars::EXPORTER, "console")];
        let output = run("case_two_signals", &[&on[..], variables].concat());
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        ["span", "metric"].map(|kind| stdout.contains(&format!("\"type\":\"{kind}\"")))
    };
    assert_eq!(kinds(&[]), [true, true]);
    assert_eq!(kinds(&[(env_vars::TRACES_ENABLED, "false")]), [false, true]);
    assert_eq!(kinds(&[(env_vars::METRICS_ENABLED, "false")]), [true, false]);
}

#[test]
#[ignore = "run by a test above, in a process of its own"]
fn case_two_signals() {
    use std::time::Duration;

    use gym_telemetry::{groups, metrics, semconv};

    init_telemetry(Some("a"), None, &[]).expect("on");
    lens::Span::start(&groups::ROLLOUT, semconv::span::ROLLOUT).end();
    metrics::record_verification(Duration::from_millis(12), true);
    shutdown_telemetry(5_000);
}
