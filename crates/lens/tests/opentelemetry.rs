//! Libraries that use the API of OpenTelemetry, in a program that uses ours: one tree.

use std::sync::Once;
use std::time::{Duration, UNIX_EPOCH};

use lens::{Context, Group, InSpan as _, OpenTelemetryProvider, Span, managed_span};
use lens_otlp::encode::StatusCode;
use lens_testing::{CollectedSpan, TreeOptions, collect, render_tree};
use opentelemetry::trace::{
    FutureExt as _, Link, Span as _, SpanContext, SpanKind, Status, TraceContextExt as _,
    Tracer as _, TracerProvider as _,
};
use opentelemetry::{Array, Context as ApiContext, KeyValue, Value, global};

static WORK: Group = Group::new("work");
static GROUPS: &[&Group] = &[&WORK];

fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        lens::register("test", GROUPS, &[("default", &["work"])]);
        global::set_tracer_provider(OpenTelemetryProvider::new());
    });
}

fn tree(spans: &[CollectedSpan]) -> String {
    render_tree(spans, &TreeOptions { kinds: true, status: true, ..TreeOptions::default() })
}

/// What a library does that knows nothing of us.
fn library<R>(inside: impl FnOnce() -> R) -> R {
    global::tracer("some.library").in_span("theirs", |_| inside())
}

#[test]
fn spans_of_both_hang_below_whatever_is_innermost() {
    register();
    let ((), spans) = collect(|| {
        let outer = managed_span!(WORK, "ours");
        library(|| {
            let _inner = managed_span!(WORK, "ours again");
            library(|| drop(managed_span!(WORK, "innermost")));
        });
        library(|| ());
        drop(outer);
        assert!(!Context::current().span_context().is_valid(), "nothing is left behind");
        library(|| ());
    });
    insta::assert_snapshot!(tree(&spans), @"
    ours
      theirs
        ours again
          theirs
            innermost
      theirs
    theirs
    ");
    let theirs = spans.iter().find(|span| span.name == "theirs").expect("it is there");
    assert_eq!(theirs.scope, "some.library");
}

#[test]
fn contexts_follow_futures_of_both() {
    register();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let ((), spans) = collect(|| {
        runtime.block_on(async {
            let theirs = |name: &'static str| {
                let span = global::tracer("some.library").start(name);
                ApiContext::current_with_span(span)
            };
            let one = async {
                tokio::task::yield_now().await;
                drop(managed_span!(WORK, "in one"));
                let nested = async { drop(theirs("nested")) };
                nested.in_span(Span::start(&WORK, "ours")).await;
            };
            let two = async {
                tokio::task::yield_now().await;
                drop(managed_span!(WORK, "in two"));
            };
            tokio::join!(one.with_context(theirs("one")), two.with_context(theirs("two")));
        });
        assert!(!Context::current().span_context().is_valid());
    });
    insta::assert_snapshot!(tree(&spans), @"
    one
      in one
      ours
        nested
    two
      in two
    ");
}

#[test]
fn guards_dropped_out_of_order_leave_nothing_current() {
    register();
    let ((), _) = collect(|| {
        let context = |name: &'static str| {
            ApiContext::current_with_span(global::tracer("some.library").start(name))
        };
        let first = context("first").attach();
        let second = context("second").attach();
        let id = Context::current().span_context().span_id();
        drop(first);
        assert_eq!(Context::current().span_context().span_id(), id, "the second still holds");
        drop(second);
        assert!(!Context::current().span_context().is_valid());
    });
}

#[test]
fn everything_that_the_api_says_of_a_span_arrives() {
    register();
    let at = |nanos: u64| UNIX_EPOCH + Duration::from_nanos(nanos);
    let mut ids = None;
    let ((), spans) = collect(|| {
        let tracer = OpenTelemetryProvider::new().tracer("some.library");
        let remote = SpanContext::new(
            0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128.into(),
            0xb7ad_6b71_6920_3331_u64.into(),
            opentelemetry::trace::TraceFlags::SAMPLED,
            true,
            "a=1".parse().expect("a state"),
        );
        let parent = ApiContext::new().with_remote_span_context(remote.clone());
        let array = Value::Array(Array::String(vec!["a".into(), "b".into()]));
        let builder = tracer
            .span_builder("before")
            .with_kind(SpanKind::Client)
            .with_start_time(at(1_000))
            .with_attributes([KeyValue::new(format!("dynamic.{}", "key"), 1)])
            .with_links(vec![Link::new(remote.clone(), vec![KeyValue::new("why", "retry")], 0)]);
        let mut span = tracer.build_with_context(builder, &parent);
        assert!(span.is_recording());
        span.set_attribute(KeyValue::new("bool", true));
        span.set_attribute(KeyValue::new("double", 0.5));
        span.set_attribute(KeyValue::new("text", "t"));
        span.set_attribute(KeyValue::new("array", array));
        span.set_attribute(KeyValue::new("text", "last wins"));
        span.add_event_with_timestamp("event", at(1_500), vec![KeyValue::new("n", 2)]);
        span.record_error(&std::fmt::Error);
        span.update_name("after");
        span.set_status(Status::error("broke"));
        ids = Some(span.span_context().clone());
        span.end_with_timestamp(at(3_000));
        assert!(!span.is_recording());
        span.set_attribute(KeyValue::new("too late", true));
        span.add_event("too late", Vec::new());
    });
    let ids = ids.expect("it ran");
    assert_eq!(ids.trace_state().header(), "a=1");
    let [span] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((span.name.as_str(), span.kind), ("after", "CLIENT"));
    assert_eq!(
        (span.trace_id.as_str(), span.parent_id.as_deref()),
        ("0af7651916cd43dd8448eb211c80319c", Some("b7ad6b7169203331"))
    );
    assert_eq!(span.span_id, ids.span_id().to_string());
    assert_eq!((span.start_nanos, span.end_nanos), (1_000, 3_000));
    assert_eq!(span.status, StatusCode::Error);
    let attributes = serde_json::json!({
        "dynamic.key": 1, "bool": true, "double": 0.5, "text": "last wins", "array": ["a", "b"],
    });
    assert_eq!(serde_json::to_value(&span.attributes).expect("JSON"), attributes);
    assert!(span.repeated_keys.is_empty());
    assert_eq!((span.events[0].name.as_str(), span.events.len()), ("event", 2));
    assert_eq!(span.events[0].attributes["n"], 2);
    assert_eq!(span.events[1].name, "exception");
    assert_eq!(span.links[0].attributes["why"], "retry");
}
