//! The official message types read what we write, and we read what they write.
//!
//! The model of every test is the message itself as `opentelemetry-proto` declares it: a random one is written by our
//! encoder and decoded by `prost`, or the other way round, and must be the same in every field.

#[path = "official/random.rs"]
mod random;
#[path = "official/with_encoder.rs"]
mod with_encoder;
#[path = "official/with_views.rs"]
mod with_views;

use opentelemetry::trace::{Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use proptest::prelude::*;
use prost::Message as _;

use random::Extent;

/// Absent and empty mean the same for these; the official transform writes them, ours leaves them out.
fn without_empty_messages(mut request: ExportTraceServiceRequest) -> ExportTraceServiceRequest {
    for resource in &mut request.resource_spans {
        resource.resource.get_or_insert_default();
        for scope in &mut resource.scope_spans {
            scope.scope.get_or_insert_default();
            for span in &mut scope.spans {
                span.status.get_or_insert_default();
            }
        }
    }
    request
}

fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, cases: 128, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn official_types_read_what_our_encoder_writes(request in random::request(Extent::Encoder)) {
        let bytes = with_encoder::encode(&request);
        let decoded = ExportTraceServiceRequest::decode(bytes.as_slice()).expect("valid");
        prop_assert_eq!(without_empty_messages(decoded), without_empty_messages(request));
    }

    #[test]
    fn our_views_read_what_the_official_encoder_writes(request in random::request(Extent::Everything)) {
        let read = with_views::read(&request.encode_to_vec()).expect("valid");
        prop_assert_eq!(without_empty_messages(read), without_empty_messages(request));
    }

    #[test]
    fn json_form_keeps_what_the_official_encoder_writes(request in random::request(Extent::Everything)) {
        let json = lens_otlp::json::encode_trace_request(&request.encode_to_vec()).expect("valid");
        let bytes = lens_otlp::json::decode_trace_request(json.as_bytes()).expect("valid");
        let again = ExportTraceServiceRequest::decode(bytes.as_slice()).expect("valid");
        prop_assert_eq!(without_empty_messages(again), without_empty_messages(request));
    }

    #[test]
    fn our_bytes_are_the_message_that_the_official_transform_makes(
        spans in prop::collection::vec(random::span_data(), 0..6),
        resource in random::official_attributes(),
    ) {
        let resource = Resource::builder_empty().with_attributes(resource).build();
        let official = ExportTraceServiceRequest {
            resource_spans: group_spans_by_resource_and_scope(
                spans.clone(),
                &ResourceAttributesWithSchema::from(&resource),
            ),
        };
        let bytes = with_encoder::encode_span_data(&spans, &resource);
        let decoded = ExportTraceServiceRequest::decode(bytes.as_slice()).expect("valid");
        prop_assert_eq!(without_empty_messages(decoded), without_empty_messages(official));
    }
}

/// A fixed message next to the random ones, so that a generator gone empty would be noticed.
#[test]
fn official_transform_and_ours_agree_on_a_span_with_everything() {
    let context = |id: u8| {
        SpanContext::new(
            TraceId::from_bytes([id; 16]),
            SpanId::from_bytes([id; 8]),
            TraceFlags::SAMPLED,
            id == 3,
            "a=1,b=2".parse().expect("a tracestate"),
        )
    };
    let mut span = random::empty_span_data(context(1));
    span.parent_span_id = SpanId::from_bytes([2; 8]);
    span.parent_span_is_remote = true;
    span.span_kind = SpanKind::Client;
    span.name = "everything".into();
    span.attributes = vec![
        KeyValue::new("text", "größe"),
        KeyValue::new("many", Value::Array(vec![1_i64, -1, i64::MIN].into())),
        KeyValue::new("text", "again"),
    ];
    span.dropped_attributes_count = 300;
    span.events.events = vec![opentelemetry::trace::Event::new(
        "event",
        span.start_time,
        vec![KeyValue::new("share", 0.25)],
        2,
    )];
    span.events.dropped_count = 1;
    // Our links have neither attributes nor a tracestate of their own.
    let linked = context(3);
    let linked = SpanContext::new(
        linked.trace_id(),
        linked.span_id(),
        linked.trace_flags(),
        linked.is_remote(),
        Default::default(),
    );
    span.links.links = vec![Link::new(linked, Vec::new(), 0)];
    span.links.dropped_count = 7;
    span.status = Status::error("it broke");
    span.instrumentation_scope = InstrumentationScope::builder("scope").with_version("1.2").build();

    let resource =
        Resource::builder_empty().with_attribute(KeyValue::new("service.name", "s")).build();
    let official = ExportTraceServiceRequest {
        resource_spans: group_spans_by_resource_and_scope(
            vec![span.clone()],
            &ResourceAttributesWithSchema::from(&resource),
        ),
    };
    let bytes = with_encoder::encode_span_data(&[span], &resource);
    assert_eq!(ExportTraceServiceRequest::decode(bytes.as_slice()).expect("valid"), official);
    let message = &official.resource_spans[0].scope_spans[0].spans[0];
    assert_eq!(
        (message.flags, message.attributes.len(), message.links[0].flags),
        (0x301, 3, 0x301)
    );
}
