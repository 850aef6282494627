//! Files of spans, opened as they lie by engines that people have.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use lens_otlp::encode::SpanParts;
use lens_otlp::view::AnyValue;
use lens_store::ids::{SpanId, TraceId};
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
    let like = spans.first().cloned().expect("a span");
    spans.extend((0..NEARLY_ALL_ROOTS).map(|nth| nearly_a_root(&like, nth)));
    spans.sort_by_key(|span| (span.trace_id, span.start_nanos));
    spans
}

/// So many that some pages have no parent at all, and one has one.
const NEARLY_ALL_ROOTS: u64 = 12_500;

/// A span of the last of all traces. One of them has a parent.
fn nearly_a_root(like: &RawSpan, nth: u64) -> RawSpan {
    let start_nanos = like.start_nanos + nth;
    let parts = SpanParts {
        trace_id: [0xff; 16],
        span_id: (nth + 1).to_be_bytes(),
        parent_id: (nth == NEARLY_ALL_ROOTS / 2).then_some([0xfe; 8]),
        name: "root",
        start_nanos,
        end_nanos: start_nanos + 1,
        ..SpanParts::default()
    };
    let mut message = Vec::new();
    parts.put(&mut message);
    RawSpan {
        trace_id: TraceId::from_bytes(&parts.trace_id).expect("an id"),
        span_id: SpanId::from_bytes(&parts.span_id).expect("an id"),
        start_nanos,
        message: message.into(),
        ..like.clone()
    }
}

/// What the engines are to say.
fn expected(spans: &[RawSpan]) -> Value {
    let mut services: BTreeMap<String, u64> = BTreeMap::new();
    let (mut tokens, mut posts, mut events, mut longest) = (0, 0, 0, 0);
    let (mut traces, mut parents) = (BTreeSet::new(), Vec::new());
    for span in spans {
        let view = span.view().expect("a valid span");
        traces.insert(span.trace_id);
        parents.extend(SpanId::from_bytes(view.parent_id));
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
        "traces": traces.len(),
        "children": parents.len(),
        "first_span": spans.iter().map(|span| span.span_id).min().map(|id| id.to_string()),
        "last_parent": parents.iter().max().map(SpanId::to_string),
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
