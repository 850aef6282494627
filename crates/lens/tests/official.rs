//! What instrumented code says is what the official message types read.
//!
//! Random programs of spans run through the public face; a model says what each span must look like, and the bytes
//! that reach the exporter are decoded with `opentelemetry-proto`.

#[path = "official/model.rs"]
mod model;
#[path = "official/program.rs"]
mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::time::Duration;

use lens::TelemetryHandle;
use lens::config::{ExporterKind, LensConfig};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use proptest::prelude::*;
use prost::Message as _;

use model::{Ended, LIMITS};
use program::{PROMOTED, register};

const BUDGET: Duration = Duration::from_secs(20);

fn telemetry() -> &'static TelemetryHandle {
    static HANDLE: OnceLock<TelemetryHandle> = OnceLock::new();
    HANDLE.get_or_init(|| {
        register();
        lens::promote_baggage_keys(PROMOTED);
        let config = LensConfig {
            enabled: true,
            span_groups: "first,second,third".to_owned(),
            traces_exporter: ExporterKind::Memory,
            metrics_exporter: ExporterKind::None,
            limits: LIMITS,
            ..LensConfig::default()
        };
        lens::setup_telemetry(config).expect("telemetry starts")
    })
}

/// Spans that reached the exporter, with their scopes, by id.
fn exported(handle: &TelemetryHandle) -> BTreeMap<String, (String, Span)> {
    assert!(handle.force_flush(BUDGET), "spans were not flushed in time");
    let mut spans = BTreeMap::new();
    for batch in handle.memory().take() {
        let request = ExportTraceServiceRequest::decode(batch.request()).expect("valid protobuf");
        let mut count = 0;
        for scope in request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans) {
            let name = scope.scope.expect("a scope").name;
            for span in scope.spans {
                count += 1;
                let id = model::hex(&span.span_id);
                assert!(spans.insert(id, (name.clone(), span)).is_none(), "a span came twice");
            }
        }
        assert_eq!(count, batch.spans());
    }
    spans
}

fn check(ended: &Ended, scope: &str, span: &Span) -> Result<(), TestCaseError> {
    let expected = &ended.expected;
    prop_assert_eq!(scope, expected.scope);
    prop_assert_eq!(model::hex(&span.trace_id), ended.trace_id.as_str());
    prop_assert_eq!(model::hex(&span.parent_span_id), ended.parent_id.as_str());
    prop_assert_eq!(&span.trace_state, &expected.trace_state);
    prop_assert_eq!(&span.name, &expected.name);
    prop_assert_eq!(span.kind, expected.kind);
    // The random flag says nothing about the span.
    prop_assert_eq!(span.flags & !2, expected.flags);
    prop_assert!(ended.start.contains(&span.start_time_unix_nano), "{:?} {span:?}", ended.start);
    let end = span.end_time_unix_nano;
    prop_assert!(end >= span.start_time_unix_nano);
    if end > span.start_time_unix_nano {
        prop_assert!(ended.end.contains(&end), "{:?} {span:?}", ended.end);
    }
    let mut keys = BTreeSet::new();
    prop_assert!(span.attributes.iter().all(|pair| keys.insert(&pair.key)), "{span:?}");
    prop_assert_eq!(model::read_attributes(&span.attributes), expected.attributes.clone());
    prop_assert_eq!(span.dropped_attributes_count, expected.dropped_attributes);
    prop_assert_eq!(span.events.len(), expected.events.len());
    for (event, expected) in span.events.iter().zip(&expected.events) {
        prop_assert_eq!(&event.name, &expected.name);
        let at = event.time_unix_nano;
        match expected.at {
            Some(expected) => prop_assert_eq!(at, expected),
            None => prop_assert!(ended.now.contains(&at), "{:?} {span:?}", ended.now),
        }
        prop_assert_eq!(model::read_attributes(&event.attributes), expected.attributes.clone());
        prop_assert_eq!(event.attributes.len(), expected.attributes.len());
        prop_assert_eq!(event.dropped_attributes_count, expected.dropped_attributes);
    }
    prop_assert_eq!(span.dropped_events_count, expected.dropped_events);
    let links: Vec<_> = span
        .links
        .iter()
        .map(|link| (model::hex(&link.trace_id), model::hex(&link.span_id), link.flags))
        .collect();
    prop_assert_eq!(links, expected.links.clone());
    prop_assert_eq!(span.dropped_links_count, expected.dropped_links);
    let status = span.status.clone().unwrap_or_default();
    prop_assert_eq!((status.code, status.message), expected.status.clone());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_field_of_every_span_arrives_as_it_was_said(plans in program::plans()) {
        let handle = telemetry();
        let ended = program::run(&plans);
        let mut spans = exported(handle);
        for ended in &ended {
            let (scope, span) = spans.remove(&ended.span_id).expect("the span arrived");
            check(ended, &scope, &span)?;
        }
        prop_assert!(spans.is_empty(), "nobody ended {spans:?}");
        let snapshot = handle.snapshot();
        prop_assert_eq!(snapshot.exported, snapshot.ended, "{:?}", snapshot);
    }
}
