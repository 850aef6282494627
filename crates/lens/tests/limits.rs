//! Limits of a span: what is kept is as much as the limit says, the rest is counted.
//!
//! Telemetry is set up once per process, so each setting is tried in a process of its own.

#[allow(dead_code)]
#[path = "collector/child.rs"]
mod child;

use std::collections::BTreeMap;
use std::time::Duration;

use lens::config::{ExporterKind, LensConfig};
use lens::{Context, Group, Span, SpanContext, Value};
use lens_testing::{CollectedSpan, decode};

const PATIENCE: Duration = Duration::from_secs(60);
const MANY: usize = 5_000;

static WORK: Group = Group::new("work");
static GROUPS: &[&Group] = &[&WORK];

/// Runs the body of test `name` once for each environment, in a process of its own.
fn under(name: &str, environments: &[&[&str]], test: impl FnOnce(&BTreeMap<String, String>)) {
    match child::context(name) {
        Some(pairs) => {
            let pairs = pairs.iter().filter_map(|pair| pair.split_once('='));
            test(&pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect());
        }
        None => {
            for environment in environments {
                child::run(name, environment);
            }
        }
    }
}

/// The one span that `run` fills.
fn span_of(env: &BTreeMap<String, String>, run: impl FnOnce(&mut Span)) -> CollectedSpan {
    span_below(&[], env, run)
}

/// The same below a context with baggage.
fn span_below(
    baggage: &[(&'static str, String)],
    env: &BTreeMap<String, String>,
    run: impl FnOnce(&mut Span),
) -> CollectedSpan {
    lens::register("test", GROUPS, &[]);
    let (config, warnings) = LensConfig::from_env_map(env, &["NEMO_LENS_"]);
    assert_eq!(warnings, []);
    let config = LensConfig {
        enabled: true,
        span_groups: "work".to_owned(),
        traces_exporter: ExporterKind::Memory,
        metrics_exporter: ExporterKind::None,
        ..config
    };
    let handle = lens::setup_telemetry(config).expect("starts");
    let below = Context::current().with_baggage(baggage);
    let mut span = Span::build(&WORK, "limited").parent(&below).start();
    run(&mut span);
    span.end();
    assert!(handle.force_flush(PATIENCE), "{:?}", handle.snapshot());
    let batches = handle.memory().take();
    let mut spans: Vec<CollectedSpan> =
        batches.iter().flat_map(|batch| decode(batch.request()).expect("valid")).collect();
    assert_eq!(spans.len(), 1);
    spans.remove(0)
}

fn other_span() -> SpanContext {
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    Context::extract(|name| (name == "traceparent").then_some(PARENT)).span_context()
}

fn limit(env: &BTreeMap<String, String>, name: &str) -> usize {
    env[name].parse().expect("a number")
}

#[test]
fn events_up_to_the_limit_are_kept_and_the_rest_is_counted() {
    let environments: [&[&str]; 3] = [
        &["OTEL_SPAN_EVENT_COUNT_LIMIT=0"],
        &["OTEL_SPAN_EVENT_COUNT_LIMIT=1"],
        &["OTEL_SPAN_EVENT_COUNT_LIMIT=128"],
    ];
    under("events_up_to_the_limit_are_kept_and_the_rest_is_counted", &environments, |env| {
        let span = span_of(env, |span| (0..MANY).for_each(|_| span.event("tick", &[])));
        let limit = limit(env, "OTEL_SPAN_EVENT_COUNT_LIMIT");
        assert_eq!((span.events.len(), span.dropped), (limit, (0, (MANY - limit) as u64, 0)));
    });
}

#[test]
fn links_up_to_the_limit_are_kept_and_the_rest_is_counted() {
    let environments: [&[&str]; 3] = [
        &["OTEL_SPAN_LINK_COUNT_LIMIT=0"],
        &["OTEL_SPAN_LINK_COUNT_LIMIT=1"],
        &["OTEL_SPAN_LINK_COUNT_LIMIT=128"],
    ];
    under("links_up_to_the_limit_are_kept_and_the_rest_is_counted", &environments, |env| {
        let span = span_of(env, |span| (0..MANY).for_each(|_| span.link(other_span())));
        let limit = limit(env, "OTEL_SPAN_LINK_COUNT_LIMIT");
        assert_eq!((span.links.len(), span.dropped), (limit, (0, 0, (MANY - limit) as u64)));
    });
}

#[test]
fn attributes_up_to_the_limit_are_kept_also_those_of_the_context() {
    let environments: [&[&str]; 3] = [
        &["OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT=0"],
        &["OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT=1"],
        &["OTEL_ATTRIBUTE_COUNT_LIMIT=3"],
    ];
    under("attributes_up_to_the_limit_are_kept_also_those_of_the_context", &environments, |env| {
        lens::promote_baggage_keys(&["first", "second"]);
        let limit = env.values().next().expect("a limit").parse::<usize>().expect("a number");
        let baggage = [("first", "1".to_owned()), ("second", "2".to_owned())];
        let span = span_below(&baggage, env, |span| {
            for (key, value) in [("third", 3), ("fourth", 4)] {
                span.set(key, value);
            }
        });
        assert_eq!(span.attributes.len(), limit);
        assert_eq!(span.dropped.0, 4 - limit as u64);
    });
}

#[test]
fn attributes_of_events_and_links_have_limits_of_their_own() {
    let environments: [&[&str]; 3] = [
        &["OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT=0", "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT=1"],
        &["OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT=1", "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT=0"],
        &["OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT=2", "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT=3"],
    ];
    under("attributes_of_events_and_links_have_limits_of_their_own", &environments, |env| {
        let attributes: [(&str, Value); 4] =
            [("a", 0.into()), ("b", 1.into()), ("c", 2.into()), ("a", 3.into())];
        let span = span_of(env, |span| {
            span.event("tick", &attributes);
            span.link_with(other_span(), &attributes);
        });
        let events = limit(env, "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT");
        let event = &span.events[0];
        assert_eq!(event.attributes.len(), events);
        assert_eq!(event.dropped_attributes, 3 - events as u64, "unique keys count");
        let links = limit(env, "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT");
        let link = &span.links[0];
        assert_eq!((link.attributes.len(), link.dropped_attributes), (links, 3 - links as u64));
        if links == 3 {
            assert_eq!(link.attributes["a"], 3, "the last of a key wins");
        }
    });
}

#[test]
fn texts_are_cut_to_so_many_characters_wherever_they_are() {
    let environments: [&[&str]; 1] = [&["OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT=3"]];
    under("texts_are_cut_to_so_many_characters_wherever_they_are", &environments, |env| {
        let texts = || Value::from(vec!["größer", "ab"]);
        let span = span_of(env, |span| {
            span.set("text", "größer");
            span.set("texts", texts());
            span.event("tick", &[("text", "größer".into()), ("texts", texts())]);
            span.link_with(other_span(), &[("texts", texts())]);
        });
        let cut = serde_json::json!(["grö", "ab"]);
        assert_eq!((&span.attributes["text"], &span.attributes["texts"]), (&"grö".into(), &cut));
        let event = &span.events[0].attributes;
        assert_eq!((&event["text"], &event["texts"]), (&"grö".into(), &cut));
        assert_eq!(span.links[0].attributes["texts"], cut);
    });
}
