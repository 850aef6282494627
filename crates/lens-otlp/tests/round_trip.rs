//! What is encoded is read back, whatever it is.

use lens_otlp::encode::{
    ArrayValue, SPAN_ATTRIBUTES, Scope, SpanParts, StatusCode, put_event, put_key_value, put_link,
    put_request, put_scope_item,
};
use lens_otlp::json::{decode_trace_request, encode_trace_request};
use lens_otlp::view::{AnyValue, SpanView, resources};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Sample {
    Text(String),
    Int(i64),
    Double(f64),
    Bool(bool),
    Ints(Vec<i64>),
}

fn sample() -> impl Strategy<Value = Sample> {
    prop_oneof![
        ".{0,200}".prop_map(Sample::Text),
        any::<i64>().prop_map(Sample::Int),
        any::<f64>().prop_map(Sample::Double),
        any::<bool>().prop_map(Sample::Bool),
        prop::collection::vec(any::<i64>(), 0..5).prop_map(Sample::Ints),
    ]
}

fn put(out: &mut Vec<u8>, field: u8, key: &str, value: &Sample) {
    match value {
        Sample::Text(value) => put_key_value(out, field, key, value.as_str()),
        Sample::Int(value) => put_key_value(out, field, key, value),
        Sample::Double(value) => put_key_value(out, field, key, value),
        Sample::Bool(value) => put_key_value(out, field, key, value),
        Sample::Ints(values) => put_key_value(out, field, key, &ArrayValue(values)),
    };
}

fn equal(left: &Sample, right: &AnyValue<'_>) -> bool {
    match (left, right) {
        (Sample::Text(left), AnyValue::String(right)) => left == right,
        (Sample::Int(left), AnyValue::Int(right)) => left == right,
        (Sample::Double(left), AnyValue::Double(right)) => left.to_bits() == right.to_bits(),
        (Sample::Bool(left), AnyValue::Bool(right)) => left == right,
        (Sample::Ints(left), AnyValue::Array(right)) => {
            let right: Vec<i64> = right
                .values()
                .map(|value| match value {
                    Ok(AnyValue::Int(value)) => value,
                    other => panic!("{other:?}"),
                })
                .collect();
            *left == right
        }
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn span_reads_back_as_encoded(
        trace_id in any::<[u8; 16]>(),
        span_id in any::<[u8; 8]>(),
        parent_id in any::<Option<[u8; 8]>>(),
        name in ".{0,300}",
        (start_nanos, end_nanos) in any::<(u64, u64)>(),
        pairs in prop::collection::vec((".{0,20}", sample()), 0..12),
        (status_message, flags, dropped) in (".{0,40}", any::<u32>(), 0_u32..300),
    ) {
        let (mut attributes, mut events, mut links) = (Vec::new(), Vec::new(), Vec::new());
        for (key, value) in &pairs {
            put(&mut attributes, SPAN_ATTRIBUTES, key, value);
            put_event(&mut events, key, start_nanos, dropped, |out| put(out, 3, key, value));
            put_link(&mut links, &trace_id, &span_id, flags);
        }
        let span = SpanParts {
            trace_id, span_id, parent_id, name: &name, kind: 3, start_nanos, end_nanos,
            attributes: &attributes, dropped_attributes: dropped, events: &events, links: &links,
            status: StatusCode::Error, status_message: &status_message, flags,
            ..SpanParts::default()
        };
        let mut message = Vec::new();
        span.put(&mut message);
        prop_assert_eq!(message.len(), span.encoded_len());

        let read = SpanView::read(&message).expect("valid");
        prop_assert_eq!(read.trace_id, trace_id);
        prop_assert_eq!(read.span_id, span_id);
        prop_assert_eq!(read.parent_id, parent_id.as_ref().map_or(&[][..], |id| id));
        prop_assert_eq!((read.name, read.kind, read.flags), (name.as_str(), 3, flags));
        prop_assert_eq!((read.start_nanos, read.end_nanos), (start_nanos, end_nanos));
        prop_assert_eq!((read.status, read.status_message), (StatusCode::Error, status_message.as_str()));
        let read_pairs: Vec<_> = read.attributes().collect::<Result<_, _>>().expect("valid");
        prop_assert_eq!(read_pairs.len(), pairs.len());
        for ((key, value), (read_key, read_value)) in pairs.iter().zip(&read_pairs) {
            prop_assert_eq!(key.as_str(), *read_key);
            prop_assert!(equal(value, read_value));
        }
        let read_events: Vec<_> = read.events().collect::<Result<_, _>>().expect("valid");
        prop_assert_eq!(read_events.len(), pairs.len());
        prop_assert!(read_events.iter().all(|event| event.dropped_attributes == u64::from(dropped)));
        prop_assert_eq!(read.links().count(), pairs.len());

        let mut items = Vec::new();
        put_scope_item(&mut items, &message);
        let mut request = Vec::new();
        let scope = Scope { name: "scope", version: "" };
        put_request(&mut request, &[], std::iter::once((scope, items.as_slice())));
        let json = encode_trace_request(&request).expect("valid");
        let again = decode_trace_request(json.as_bytes()).expect("valid");
        prop_assert_eq!(encode_trace_request(&again).expect("valid"), json);
    }

    #[test]
    fn garbage_is_an_error_or_a_message_but_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for resource in resources(&bytes).flatten() {
            for scope in resource.scopes().flatten() {
                for span in scope.spans().flatten() {
                    let _ = span.attributes().count() + span.events().count() + span.links().count();
                }
            }
        }
        let _ = encode_trace_request(&bytes);
        let _ = decode_trace_request(&bytes);
    }
}
