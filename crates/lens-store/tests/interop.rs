//! Files of spans, opened as they lie by engines that people have.

use std::collections::BTreeMap;
use std::process::Command;

use lens_otlp::view::AnyValue;
use lens_store::raw::{RawSpan, decode};
use lens_store::segment::{SpanOptions, write_spans};
use lens_testing::load::{self, Options, Rollouts};
use serde_json::{Value, json};

/// A Python that has the module; `None`, said aloud, where none has and none must.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn python_with(module: &str) -> Option<std::ffi::OsString> {
    let chosen = std::env::var_os("GYM_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    let imports = format!("import {module}");
    let found = Command::new(&chosen).args(["-c", &imports]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Some(chosen);
    }
    assert!(
        std::env::var_os("GYM_TEST_REQUIRE_OPTIONAL").is_none(),
        "{} has no {module}",
        chosen.display()
    );
    eprintln!("SKIPPED: {} has no {module}; set GYM_TEST_PYTHON to one that has", chosen.display());
    None
}

fn spans() -> Vec<RawSpan> {
    let wanted = Rollouts { tasks: 4, repeats: 2, spans: 300..=1_500, ..Rollouts::default() };
    let mut spans = Vec::new();
    for (batch, seq) in load::rollouts(Options::default(), wanted).zip(1..) {
        spans.extend(decode(&batch.request, seq).expect("a valid request").spans);
    }
    spans.sort_by_key(|span| (span.trace_id, span.start_nanos));
    spans
}

/// What the engines are to say.
fn expected(spans: &[RawSpan]) -> Value {
    let mut services: BTreeMap<String, u64> = BTreeMap::new();
    let (mut tokens, mut posts, mut events, mut longest) = (0, 0, 0, 0);
    for span in spans {
        let view = span.view().expect("a valid span");
        longest = longest.max(view.end_nanos - view.start_nanos);
        events += view.events().count();
        for pair in lens_otlp::view::Attributes::new(&span.origin.resource.message, 1) {
            if let ("service.name", AnyValue::String(name)) = pair.expect("valid") {
                *services.entry(name.to_owned()).or_default() += 1;
            }
        }
        for pair in view.attributes() {
            match pair.expect("valid") {
                ("gen_ai.usage.output_tokens", AnyValue::Int(count)) => tokens += count,
                ("http.request.method", AnyValue::String("POST")) => posts += 1,
                _ => {}
            }
        }
    }
    json!({
        "spans": spans.len(),
        "services": services,
        "output_tokens": tokens,
        "posts": posts,
        "events": events,
        "longest_nano": longest,
    })
}

#[test]
fn pandas_polars_duckdb_and_clickhouse_read_files_of_spans_as_they_lie() {
    let spans = spans();
    let file = tempfile::Builder::new().suffix(".parquet").tempfile().expect("a file");
    write_spans(file.as_file(), &spans, &SpanOptions::default()).expect("written");
    let expected = expected(&spans);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/open.py");
    for (engine, module) in [
        ("pandas", "pandas, pyarrow"),
        ("polars", "polars"),
        ("duckdb", "duckdb"),
        ("chdb", "chdb"),
    ] {
        let Some(python) = python_with(module) else { continue };
        let output = Command::new(python).arg(script).arg(engine).arg(file.path()).output();
        let output = output.expect("python runs");
        let trouble = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{engine}: {trouble}");
        let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(said, expected, "{engine}");
    }
}
