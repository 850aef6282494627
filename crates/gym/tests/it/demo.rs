//! `gym demo` as a stranger types it.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

fn demo(out: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gym"));
    command.arg("demo").arg("--out").arg(out).args(arguments);
    command.envs(environment.iter().copied()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Guarantees: neither another fleet on the default port nor what the shell says about telemetry
/// changes what the demo shows.
#[test]
fn the_demo_shows_timelines_and_where_the_time_went_whatever_the_shell_says() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("demo");
    let _other_fleet = TcpListener::bind(("127.0.0.1", 11000));
    let environment = [("OTEL_SDK_DISABLED", "true"), ("NEMO_GYM_OTEL_SPAN_GROUPS", "none")];
    let output = demo(&out, &["--rollouts", "6", "--concurrency", "3"], &environment);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stderr}\n{stdout}");

    let headings: Vec<&str> = [
        "a typical rollout",
        "the slowest rollout",
        "where the time of 6 rollouts went",
        "what to type next",
    ]
    .into_iter()
    .filter(|heading| stdout.contains(&format!("\n{heading}")))
    .collect();
    assert_eq!(headings.len(), 4, "{stdout}");
    assert!(
        stdout.starts_with("6 rollouts of example_single_tool_call, 3 at a time, in "),
        "{stdout}"
    );
    for line in [
        "gym.rollout.attempt",
        "      └─ gym.rollout",
        "POST /seed_session",
        "gym.model.responses",
        "POST /get_weather",
        "gym.verify",
        "  model server = policy_model",
    ] {
        assert!(stdout.contains(line), "{line} is missing in\n{stdout}");
    }
    assert!(!stdout.contains(" not found"), "an orphan in\n{stdout}");
    assert_eq!(std::fs::read_to_string(out.join("rollouts.jsonl")).unwrap().lines().count(), 6);
    assert!(stderr.contains(&out.canonicalize().unwrap().display().to_string()), "{stderr}");

    // What the demo says to type next works.
    let store = out.join("store").canonicalize().unwrap();
    assert!(stdout.contains(&format!("gym trace show {} --slowest 3", store.display())));
    let next = Command::new(env!("CARGO_BIN_EXE_gym"))
        .args(["trace", "show", "--slowest", "3", "--json"])
        .arg(&store)
        .output()
        .unwrap();
    let document: serde_json::Value = serde_json::from_slice(&next.stdout).unwrap();
    assert_eq!(document["traces"].as_array().map(Vec::len), Some(3));
    assert!(document["read"]["spans_in_files"].as_u64() > Some(0), "{}", document["read"]);
}

#[test]
fn a_demo_of_an_unknown_environment_exits_2_and_names_those_there_are() {
    let directory = tempfile::tempdir().unwrap();
    let output = demo(directory.path(), &["--environment", "example_single_tool"], &[]);
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(text(&output.stderr), @r#"
    error: no example environment "example_single_tool"

    hint: there are example_multi_step, example_sandbox, example_session_state_mgmt, example_single_tool_call
    "#);
}

#[test]
fn a_demo_does_not_write_into_a_directory_that_holds_something() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("mine"), "precious").unwrap();
    let output = demo(directory.path(), &[], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("is not empty\n\nhint: give a new directory with --out"));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}
