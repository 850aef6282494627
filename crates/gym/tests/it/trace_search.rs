//! `gym trace search` as it is typed.

use std::process::Command;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/reference");

/// Exit code, stdout and stderr.
fn search(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_gym"))
        .args(["trace", "search"])
        .args(arguments)
        .output()
        .unwrap();
    format!(
        "exit {}\n--- stdout\n{}--- stderr\n{}",
        output.status.code().unwrap(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn traces_with_spans_that_are_asked_for_are_listed() {
    let query = "{ kind = client && duration > 5ms } | select(span.http.response.status_code)";
    insta::assert_snapshot!(search(&[query, FIXTURES]), @r#"
    exit 0
    --- stdout
    TRACE                             ROOT       START (UTC)              DURATION  SPANS  FOUND  FIRST OF THEM
    56df3a62b30ceeba4e2593603ed363ba  POST /run  2026-11-29 12:58:39.689     115ms     46      4  HTTP POST 94ms span.http.response.status_code=200
    0d777534527a50b817df6dde63f8e45a  POST /run  2026-11-29 12:58:34.408     146ms     46      5  HTTP POST 5.3ms span.http.response.status_code=200
    --- stderr
    read 100 spans from 6 files; skipped 46 duplicate spans, 2 metric records, 4 log records
    looked at 100 spans
    "#);
    insta::assert_snapshot!(search(&["{ name = \"nowhere\" }", FIXTURES]), @r#"
    exit 1
    --- stdout
    --- stderr
    read 100 spans from 6 files; skipped 46 duplicate spans, 2 metric records, 4 log records
    looked at 100 spans
    "#);
}

#[test]
fn numbers_are_given_for_each_group() {
    let query = "{ kind = server } | quantile_over_time(duration, .5, 1) by (name)";
    insta::assert_snapshot!(search(&[query, FIXTURES]), @r#"
    exit 0
    --- stdout
    NAME                                        QUANTILE  VALUE  SPANS
    POST                                             0.5  5.6ms      4
    POST                                               1   49ms      4
    POST /get_weather                                0.5  2.2ms      2
    POST /get_weather                                  1  3.4ms      2
    POST /ng-rollout/{rollout_id}/v1/responses       0.5  112ms      1
    POST /ng-rollout/{rollout_id}/v1/responses         1  112ms      1
    POST /run                                        0.5  115ms      2
    POST /run                                          1  146ms      2
    POST /seed_session                               0.5  2.4ms      1
    POST /seed_session                                 1  2.4ms      1
    POST /v1/responses                               0.5   40ms      3
    POST /v1/responses                                 1   93ms      3
    POST /verify                                     0.5  6.2ms      1
    POST /verify                                       1  6.2ms      1
    --- stderr
    read 100 spans from 6 files; skipped 46 duplicate spans, 2 metric records, 4 log records
    looked at 100 spans
    "#);
    let query = "{} | count_over_time() by (kind)";
    let told = search(&[query, FIXTURES, "--json"]);
    let json = told.lines().find(|line| line.starts_with('{')).unwrap();
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    let spans: f64 = json["metrics"]["series"]
        .as_array()
        .unwrap()
        .iter()
        .map(|series| series["points"][0]["value"].as_f64().unwrap())
        .sum();
    assert_eq!((spans, json["metrics"]["spans"].as_f64()), (100.0, Some(100.0)));
}

#[test]
fn a_query_that_cannot_be_read_exits_2_and_says_where() {
    insta::assert_snapshot!(search(&["{ http.route = \"/x\" }", FIXTURES]), @r#"
    exit 2
    --- stdout
    --- stderr
    error: the query cannot be read
      caused by: expected a field (an attribute is `.key` or `span.key`), found `http.route` at character 3

    hint: docs/reference/query.md describes the language
    "#);
    insta::assert_snapshot!(search(&["{ .a + 1 > 2 }", FIXTURES]), @r#"
    exit 2
    --- stdout
    --- stderr
    error: the query cannot be read
      caused by: arithmetic is not supported at character 6

    hint: docs/reference/query.md describes the language
    "#);
}

#[test]
fn what_stands_where_the_query_should_is_told_from_a_query() {
    for source in [FIXTURES, "http://127.0.0.1:4318"] {
        let told = search(&[source, "{ kind = client }"]);
        assert!(told.starts_with("exit 2\n"), "{told}");
        assert!(told.contains("hint: the query comes first: gym trace search '{"), "{told}");
    }
}
