//! Export requests of spans: what is let through can be read to its end, written as JSON and into files, and split.
#![no_main]

use bytes::Bytes;
use lens_otlp::view::{AnyValue, Attributes};
use lens_otlp::{json, split};
use lens_store::raw;
use lens_store::segment::{SpanOptions, write_spans};
use libfuzzer_sys::fuzz_target;

fn walk(attributes: Attributes<'_>) {
    for pair in attributes {
        let (_, value) = pair.expect("checked");
        if let AnyValue::Array(array) = value {
            assert!(array.values().all(|value| value.is_ok()));
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let request = Bytes::copy_from_slice(data);
    let items = split::count_items(data);
    if let Some(halves) = split::halve(data) {
        let sum: u64 = halves.iter().map(|half| split::count_items(half)).sum();
        assert_eq!(sum, items);
    }
    let Ok(decoded) = raw::decode(&request, 1) else { return };
    assert_eq!(decoded.spans.len() as u64 + decoded.refused, items);
    for span in &decoded.spans {
        let view = span.view().expect("checked");
        walk(view.attributes());
        for event in view.events() {
            walk(event.expect("checked").attributes());
        }
        for link in view.links() {
            walk(link.expect("checked").attributes());
        }
    }
    let mut spans = decoded.spans.clone();
    spans.sort_by_key(|span| (span.trace_id, span.start_nanos));
    let written = write_spans(std::io::sink(), &spans, &SpanOptions::default());
    written.expect("what is let through goes into files");
    if decoded.refused == 0 {
        let text = json::encode_trace_request(data).expect("checked");
        json::decode_trace_request(text.as_bytes()).expect("what was written is read");
    }
});
