//! `gym trace` as it is typed.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/reference");

fn gym(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gym")).args(arguments).output().unwrap()
}

fn gym_with_stdin(arguments: &[&str], stdin: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_gym"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Exit code, stdout and stderr, with the directory of the fixtures cut.
fn told(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(FIXTURES, "DIR");
    format!(
        "exit {}\n--- stdout\n{}--- stderr\n{}",
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr)
    )
}

#[test]
fn a_directory_is_listed_and_what_was_passed_over_is_said_on_stderr() {
    insta::assert_snapshot!(told(&gym(&["trace", "list", FIXTURES])), @r"
    exit 0
    --- stdout
    TRACE                             ROOT               ROLLOUT  START (UTC)              DURATION  SPANS  PROCESSES  ERRORS
    0bbf5865631ed589da93979ce5b72707  root               -        2026-11-29 12:14:27.694     1.1ms      4          1       1
    07f78eda2fd20ae392cd1046a574718d  with_links_events  -        2026-11-29 12:14:27.695      35µs      1          1       -
    cbaf391821d147decbd0f478e0a793f3  linked             -        2026-11-29 12:14:27.695       3µs      1          1       -
    00000000000000000000000000000abc  consumer           -        2026-11-29 12:14:27.695      11µs      1          1       -
    018f584e31989160e78560ee5340032c  never_ended        -        2026-11-29 12:14:27.695     608µs      1          1       -
    0d777534527a50b817df6dde63f8e45a  POST /run          0-0      2026-11-29 12:58:34.408     146ms     18          3       -
    56df3a62b30ceeba4e2593603ed363ba  POST /run          -        2026-11-29 12:58:39.689     115ms     18          3       -
    --- stderr
    read 100 spans from 6 files; skipped 46 duplicate spans, 2 metric records, 4 log records
    ");
}

#[test]
fn what_is_not_found_exits_1_and_names_what_is_most_like_it() {
    insta::assert_snapshot!(told(&gym(&["trace", "show", FIXTURES, "--rollout", "0-1"])), @r#"
    exit 1
    --- stdout
    --- stderr
    read 100 spans from 6 files; skipped 46 duplicate spans, 2 metric records, 4 log records
    error: no rollout "0-1" in these files; closest: 0-0
    "#);
}

#[test]
fn a_path_that_is_not_there_exits_2() {
    insta::assert_snapshot!(told(&gym(&["trace", "list", "no/such/logs"])), @r"
    exit 2
    --- stdout
    --- stderr
    error: no such file or directory: no/such/logs
    ");
}

#[test]
fn a_file_without_spans_exits_1_and_says_what_was_read() {
    let output = gym_with_stdin(&["trace", "show", "-"], "hello\nworld\n");
    insta::assert_snapshot!(told(&output), @r"
    exit 1
    --- stdout
    --- stderr
    error: no spans in -: read 0 spans from 1 file; skipped 2 other lines; spans are lines of the console exporter, or OTLP JSON
    ");
}

#[test]
fn standard_input_is_read_and_a_single_trace_needs_no_choice() {
    let lines =
        std::fs::read_to_string(format!("{FIXTURES}/rollout_trace.raw_stdout.txt")).unwrap();
    let output = gym_with_stdin(&["trace", "show", "-"], &lines);
    let text = told(&output);
    assert!(
        text.starts_with("exit 0\n--- stdout\ntrace 56df3a62b30ceeba4e2593603ed363ba · "),
        "{text}"
    );
    assert!(text.ends_with("--- stderr\nread 46 spans from 1 file\n"), "{text}");
}

#[test]
fn of_many_traces_the_slowest_rollout_is_shown_and_the_choice_explained() {
    let text = told(&gym(&["trace", "show", FIXTURES]));
    assert!(
        text.contains("--- stdout\nrollout 0-0 · trace 0d777534527a50b817df6dde63f8e45a · 146ms"),
        "{text}"
    );
    assert!(
        text.ends_with("this is the slowest of 2 rollouts (146ms); choose with --rollout, --trace or --slowest N\n"),
        "{text}"
    );
}

#[test]
fn json_is_one_document_on_stdout() {
    for arguments in [
        vec!["trace", "list", FIXTURES, "--json"],
        vec!["trace", "show", FIXTURES, "--slowest", "2", "--summary", "--json"],
    ] {
        let output = gym(&arguments);
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(document["traces"].as_array().is_some_and(|traces| traces.len() >= 2));
        assert_eq!(document["read"]["spans"], 100);
    }
    let output = gym(&["trace", "show", FIXTURES, "--trace", "0d77", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["traces"][0]["rollouts"][0]["rollout_id"], "0-0");
    assert_eq!(document["traces"][0]["spans"].as_array().map(Vec::len), Some(18));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_gym"))
        .args(["trace", "show", FIXTURES, "--slowest", "2"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
