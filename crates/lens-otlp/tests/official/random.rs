//! Random messages, and random spans of the official SDK.

use std::time::{Duration, SystemTime};

use opentelemetry::trace::{
    Event, Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Array, InstrumentationScope, KeyValue as ApiKeyValue, Value as ApiValue};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope as Scope, KeyValue, KeyValueList,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{
    ResourceSpans, ScopeSpans, Span, Status as SpanStatus, span,
};
use opentelemetry_sdk::trace::SpanData;
use proptest::prelude::*;

/// How much of OTLP a message uses.
#[derive(Clone, Copy, PartialEq)]
pub enum Extent {
    /// What our encoder can write.
    Encoder,
    /// Also what we only read: maps, link attributes, scope attributes, schema URLs.
    Everything,
}

fn text() -> impl Strategy<Value = String> {
    // Lengths around the first two sizes of a varint.
    prop_oneof![40 => ".{0,12}", 8 => ".{120,130}", 1 => Just("x".repeat(16_384))]
}

/// Few keys, so that they repeat within a span.
fn key() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[a-d]", 1 => ".{0,20}", 1 => Just("k".repeat(200))]
}

fn double() -> impl Strategy<Value = f64> {
    use prop::num::f64::{INFINITE, NEGATIVE, NORMAL, POSITIVE, SUBNORMAL, ZERO};
    // A message with a NaN does not equal itself.
    POSITIVE | NEGATIVE | NORMAL | SUBNORMAL | ZERO | INFINITE
}

fn any_value(extent: Extent) -> impl Strategy<Value = AnyValue> {
    let leaf = prop_oneof![
        text().prop_map(Value::StringValue),
        any::<i64>().prop_map(Value::IntValue),
        double().prop_map(Value::DoubleValue),
        any::<bool>().prop_map(Value::BoolValue),
        prop::collection::vec(any::<u8>(), 0..200).prop_map(Value::BytesValue),
    ]
    .prop_map(|value| AnyValue { value: Some(value) });
    leaf.prop_recursive(3, 12, 4, move |inner| {
        let array = prop::collection::vec(inner.clone(), 0..4)
            .prop_map(|values| Value::ArrayValue(ArrayValue { values }));
        let map = prop::collection::vec(inner.prop_map(|value| ("m".to_owned(), value)), 0..4)
            .prop_map(|pairs| {
                let values = pairs.into_iter().map(|(key, value)| pair(key, value)).collect();
                Value::KvlistValue(KeyValueList { values })
            });
        let value = match extent {
            Extent::Encoder => array.boxed(),
            Extent::Everything => prop_oneof![array, map].boxed(),
        };
        value.prop_map(|value| AnyValue { value: Some(value) })
    })
}

fn pair(key: String, value: AnyValue) -> KeyValue {
    KeyValue { key, value: Some(value), key_strindex: 0 }
}

fn attributes(extent: Extent) -> impl Strategy<Value = Vec<KeyValue>> {
    prop::collection::vec(
        (key(), any_value(extent)).prop_map(|(key, value)| pair(key, value)),
        0..6,
    )
}

fn only<T: Default + Clone + std::fmt::Debug + 'static>(
    extent: Extent,
    strategy: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<T> {
    match extent {
        Extent::Encoder => Just(T::default()).boxed(),
        Extent::Everything => strategy.boxed(),
    }
}

fn dropped() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), 1_u32..300, Just(u32::MAX)]
}

fn event(extent: Extent) -> impl Strategy<Value = span::Event> {
    (any::<u64>(), text(), attributes(extent), dropped()).prop_map(
        |(time_unix_nano, name, attributes, dropped_attributes_count)| span::Event {
            time_unix_nano,
            name,
            attributes,
            dropped_attributes_count,
        },
    )
}

fn link(extent: Extent) -> impl Strategy<Value = span::Link> {
    let rest = (only(extent, attributes(extent)), only(extent, dropped()), only(extent, text()));
    (any::<[u8; 16]>(), any::<[u8; 8]>(), any::<u32>(), rest).prop_map(
        |(trace_id, span_id, flags, (attributes, dropped_attributes_count, trace_state))| {
            span::Link {
                trace_id: trace_id.to_vec(),
                span_id: span_id.to_vec(),
                trace_state,
                attributes,
                dropped_attributes_count,
                flags,
            }
        },
    )
}

fn span(extent: Extent) -> impl Strategy<Value = Span> {
    let ids = (any::<[u8; 16]>(), any::<[u8; 8]>(), any::<Option<[u8; 8]>>());
    let head = (text(), text(), 1..=5_i32, any::<u32>(), any::<u64>(), any::<u64>());
    let lists = (
        attributes(extent),
        prop::collection::vec(event(extent), 0..4),
        prop::collection::vec(link(extent), 0..4),
    );
    let tail = (dropped(), dropped(), dropped(), 0..=2_i32, text());
    (ids, head, lists, tail).prop_map(|(ids, head, lists, tail)| Span {
        trace_id: ids.0.to_vec(),
        span_id: ids.1.to_vec(),
        parent_span_id: ids.2.map(Vec::from).unwrap_or_default(),
        trace_state: head.0,
        name: head.1,
        kind: head.2,
        flags: head.3,
        start_time_unix_nano: head.4,
        end_time_unix_nano: head.5,
        attributes: lists.0,
        events: lists.1,
        links: lists.2,
        dropped_attributes_count: tail.0,
        dropped_events_count: tail.1,
        dropped_links_count: tail.2,
        status: Some(SpanStatus { code: tail.3, message: tail.4 }),
    })
}

/// Scopes may say the same, or nothing: nobody merges them behind our back.
pub fn request(extent: Extent) -> impl Strategy<Value = ExportTraceServiceRequest> {
    let scope = (
        ("[ab]{0,3}", "[0-9]{0,2}", only(extent, attributes(extent))),
        prop::collection::vec(span(extent), 0..4),
        only(extent, text()),
    );
    let scope = scope.prop_map(|((name, version, attributes), spans, schema_url)| ScopeSpans {
        scope: Some(Scope { name, version, attributes, dropped_attributes_count: 0 }),
        spans,
        schema_url,
    });
    let scopes = prop::collection::vec(scope, 0..4);
    (attributes(extent), scopes, only(extent, text())).prop_map(
        |(attributes, scope_spans, schema_url)| ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(Resource { attributes, ..Resource::default() }),
                scope_spans,
                schema_url,
            }],
        },
    )
}

fn official_value() -> impl Strategy<Value = ApiValue> {
    use prop::collection::vec;
    prop_oneof![
        text().prop_map(ApiValue::from),
        any::<i64>().prop_map(ApiValue::from),
        double().prop_map(ApiValue::from),
        any::<bool>().prop_map(ApiValue::from),
        vec(text().prop_map(Into::into), 0..4)
            .prop_map(|values| ApiValue::Array(Array::String(values))),
        vec(any::<i64>(), 0..4).prop_map(|values| ApiValue::Array(values.into())),
        vec(double(), 0..4).prop_map(|values| ApiValue::Array(values.into())),
        vec(any::<bool>(), 0..4).prop_map(|values| ApiValue::Array(values.into())),
    ]
}

pub fn official_attributes() -> impl Strategy<Value = Vec<ApiKeyValue>> {
    let pair = (key(), official_value()).prop_map(|(key, value)| ApiKeyValue::new(key, value));
    prop::collection::vec(pair, 0..6)
}

fn span_context(with_state: bool) -> impl Strategy<Value = SpanContext> {
    let state =
        prop::collection::btree_map("[a-z]{1,8}", "[a-z]{1,8}", 0..if with_state { 3 } else { 1 });
    (any::<[u8; 16]>(), any::<[u8; 8]>(), any::<u8>(), any::<bool>(), state).prop_map(
        |(trace_id, span_id, flags, remote, state)| {
            SpanContext::new(
                TraceId::from_bytes(trace_id),
                SpanId::from_bytes(span_id),
                TraceFlags::new(flags),
                remote,
                TraceState::from_key_value(state).expect("valid entries"),
            )
        },
    )
}

fn time() -> impl Strategy<Value = SystemTime> {
    // What a signed 64-bit count of nanoseconds holds, which is also what an SDK can stamp.
    (0..i64::MAX as u64).prop_map(|nanos| SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos))
}

pub fn empty_span_data(span_context: SpanContext) -> SpanData {
    SpanData {
        span_context,
        parent_span_id: SpanId::INVALID,
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: "".into(),
        start_time: SystemTime::UNIX_EPOCH,
        end_time: SystemTime::UNIX_EPOCH,
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: Default::default(),
        links: Default::default(),
        status: Status::Unset,
        instrumentation_scope: InstrumentationScope::default(),
    }
}

/// A span as the official SDK hands it to its exporter, with links that ours can express.
pub fn span_data() -> impl Strategy<Value = SpanData> {
    let ids = (span_context(true), any::<Option<[u8; 8]>>(), any::<bool>());
    let kind = prop_oneof![
        Just(SpanKind::Internal),
        Just(SpanKind::Server),
        Just(SpanKind::Client),
        Just(SpanKind::Producer),
        Just(SpanKind::Consumer),
    ];
    let event = (text(), time(), official_attributes(), dropped())
        .prop_map(|(name, at, attributes, dropped)| Event::new(name, at, attributes, dropped));
    let link = span_context(false).prop_map(|context| Link::new(context, Vec::new(), 0));
    let lists = (
        official_attributes(),
        prop::collection::vec(event, 0..4),
        prop::collection::vec(link, 0..4),
        (dropped(), dropped(), dropped()),
    );
    let status = prop_oneof![Just(Status::Unset), Just(Status::Ok), text().prop_map(Status::error)];
    let scope = ("[ab]{0,2}", prop::option::of("[0-9]")).prop_map(|(name, version)| {
        let builder = InstrumentationScope::builder(name);
        match version {
            Some(version) => builder.with_version(version).build(),
            None => builder.build(),
        }
    });
    (ids, (kind, text(), time(), time()), lists, status, scope).prop_map(
        |((context, parent, remote), (kind, name, start, end), lists, status, scope)| {
            let mut span = empty_span_data(context);
            span.parent_span_id = parent.map_or(SpanId::INVALID, SpanId::from_bytes);
            span.parent_span_is_remote = remote;
            span.span_kind = kind;
            span.name = name.into();
            (span.start_time, span.end_time) = (start, end);
            let (attributes, events, links, dropped) = lists;
            span.attributes = attributes;
            span.events.events = events;
            span.links.links = links;
            span.dropped_attributes_count = dropped.0;
            span.events.dropped_count = dropped.1;
            span.links.dropped_count = dropped.2;
            span.status = status;
            span.instrumentation_scope = scope;
            span
        },
    )
}
