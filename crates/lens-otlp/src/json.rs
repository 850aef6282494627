//! OTLP/JSON and plain JSON.
//!
//! OTLP/JSON is protobuf's JSON mapping with two exceptions: ids are hex, not base64, and enums are numbers;
//! integers of 64 bits are strings. Reading accepts enum names and integers as numbers too.

mod logs;
mod metrics;
mod read;
mod write;

pub use logs::encode_logs_request;
pub use metrics::encode_metrics_request;
pub use read::{decode_logs_request, decode_metrics_request, decode_trace_request};
pub use write::{
    encode_trace_request, is_plain_byte, put_base64, put_number, put_plain_attributes,
    put_plain_value, put_text,
};

/// Appends lower-case hex digits.
pub fn put_hex(out: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{
        ArrayValue, RESOURCE_ATTRIBUTES, SPAN_ATTRIBUTES, Scope, SpanParts, StatusCode, put_event,
        put_key_value, put_link, put_request, put_scope_item,
    };

    fn request() -> Vec<u8> {
        let mut attributes = Vec::new();
        put_key_value(&mut attributes, SPAN_ATTRIBUTES, "text", "a \"quoted\"\n line");
        put_key_value(&mut attributes, SPAN_ATTRIBUTES, "count", &i64::MIN);
        put_key_value(&mut attributes, SPAN_ATTRIBUTES, "share", &0.1);
        put_key_value(&mut attributes, SPAN_ATTRIBUTES, "lost", &f64::NAN);
        put_key_value(&mut attributes, SPAN_ATTRIBUTES, "yes", &true);
        put_key_value(&mut attributes, SPAN_ATTRIBUTES, "list", &ArrayValue(&[1_i64, 2]));
        let mut events = Vec::new();
        put_event(&mut events, "tried", 17, 0, |out| {
            put_key_value(out, 3, "why", "it was there");
        });
        let mut links = Vec::new();
        put_link(&mut links, &[7; 16], &[8; 8], 1);
        let span = SpanParts {
            trace_id: [0xab; 16],
            span_id: [1; 8],
            parent_id: Some([2; 8]),
            name: "POST /run",
            kind: 2,
            start_nanos: 1_700_000_000_000_000_001,
            end_nanos: 1_700_000_000_000_000_002,
            attributes: &attributes,
            events: &events,
            links: &links,
            status: StatusCode::Error,
            status_message: "broke",
            flags: 0x101,
            ..SpanParts::default()
        };
        let mut message = Vec::new();
        span.put(&mut message);
        assert_eq!(message.len(), span.encoded_len());
        let mut items = Vec::new();
        put_scope_item(&mut items, &message);
        let mut resource = Vec::new();
        put_key_value(&mut resource, RESOURCE_ATTRIBUTES, "service.name", "x");
        let mut out = Vec::new();
        let scope = Scope { name: "gym", version: "1" };
        put_request(&mut out, &resource, std::iter::once((scope, items.as_slice())));
        out
    }

    #[test]
    fn request_survives_json_and_back() {
        let request = request();
        let json = encode_trace_request(&request).expect("valid request");
        let parsed: serde_json::Value = serde_json::from_str(&json).expect("valid JSON");
        let span = &parsed["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        assert_eq!(span["traceId"], "abababababababababababababababab");
        assert_eq!(span["startTimeUnixNano"], "1700000000000000001");
        assert_eq!(span["attributes"][1]["value"]["intValue"], "-9223372036854775808");
        assert_eq!(span["attributes"][3]["value"]["doubleValue"], "NaN");
        assert_eq!(decode_trace_request(json.as_bytes()), Ok(request));
    }

    #[test]
    fn lenient_forms_of_other_senders_are_read() {
        let json = br#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"ABABABABABABABABABABABABABABABAB",
            "spanId":"0101010101010101","parentSpanId":"","name":"n","kind":"SPAN_KIND_CLIENT","unknown":{"x":1},
            "startTimeUnixNano":5,"endTimeUnixNano":"6","status":{"code":"STATUS_CODE_OK"},
            "attributes":[{"key":"k","value":{"intValue":3}},{"key":"e"}]}]}]}]}"#;
        let request = decode_trace_request(json).expect("accepted");
        let resource = crate::view::resources(&request).next().expect("one").expect("valid");
        let scope = resource.scopes().next().expect("one").expect("valid");
        let span = scope.spans().next().expect("one").expect("valid");
        assert_eq!((span.kind, span.start_nanos, span.end_nanos), (3, 5, 6));
        assert_eq!(span.trace_id, [0xab; 16]);
        assert!(span.parent_id.is_empty());
        assert_eq!(span.status, StatusCode::Ok);
        assert_eq!(span.attributes().count(), 2);
    }

    /// Guarantees: whatever ids a sender put into a link or a parent, what is written is read again.
    #[test]
    fn ids_of_wrong_length_are_written_as_none() {
        use crate::wire::{put_bytes, put_message};
        let mut request = Vec::new();
        put_message(&mut request, 1, |out| {
            put_message(out, 2, |out| {
                put_message(out, 2, |out| {
                    put_bytes(out, 1, &[7; 16]);
                    put_bytes(out, 2, &[7; 8]);
                    put_bytes(out, 4, &[7; 3]);
                    put_message(out, 13, |out| {
                        put_bytes(out, 1, b"k");
                        put_bytes(out, 2, &[7; 8]);
                    });
                });
            });
        });
        let json = encode_trace_request(&request).expect("valid request");
        let parsed: serde_json::Value = serde_json::from_str(&json).expect("valid JSON");
        let span = &parsed["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        assert_eq!((&span["parentSpanId"], &span["links"][0]["traceId"]), (&"".into(), &"".into()));
        assert_eq!(span["links"][0]["spanId"], "0707070707070707");
        decode_trace_request(json.as_bytes()).expect("what was written is read");
    }

    #[test]
    fn wrong_json_is_an_error() {
        for json in [
            "",
            "[]x",
            "{\"resourceSpans\":3}",
            "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"traceId\":\"xy\"}]}]}]}",
        ] {
            assert!(decode_trace_request(json.as_bytes()).is_err(), "{json}");
        }
    }
}
