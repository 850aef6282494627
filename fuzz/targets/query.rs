//! Queries: read or refused with a mark, and run over a few spans.
#![no_main]

use std::sync::LazyLock;

use bytes::Bytes;
use lens_otlp::encode::{
    SPAN_ATTRIBUTES, Scope, SpanParts, put_key_value, put_request, put_scope_item,
};
use lens_store::query::{Loaded, Query, SearchOptions};
use lens_store::raw;
use libfuzzer_sys::fuzz_target;

static SPANS: LazyLock<Loaded> = LazyLock::new(|| {
    let mut items = Vec::new();
    for at in 1..=6_u8 {
        let mut attributes = Vec::new();
        put_key_value(&mut attributes, SPAN_ATTRIBUTES, "a", "x");
        put_key_value(&mut attributes, SPAN_ATTRIBUTES, "b", &i64::from(at));
        put_key_value(&mut attributes, SPAN_ATTRIBUTES, "c", &0.5);
        let mut message = Vec::new();
        SpanParts {
            trace_id: [at / 3 + 1; 16],
            span_id: [at; 8],
            parent_id: (at % 3 != 0).then_some([at - at % 3; 8]),
            name: "POST /run",
            kind: u64::from(at % 4) as _,
            start_nanos: 1_700_000_000_000_000_000 + u64::from(at),
            end_nanos: 1_700_000_000_000_000_000 + 1000 * u64::from(at),
            attributes: &attributes,
            ..SpanParts::default()
        }
        .put(&mut message);
        put_scope_item(&mut items, &message);
    }
    let mut request = Vec::new();
    put_request(&mut request, &[], std::iter::once((Scope::default(), items.as_slice())));
    let decoded = raw::decode(&Bytes::from(request), 1).expect("spans");
    Loaded::new(decoded.spans, 1_700_000_100_000_000_000)
});

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Query::parse(text) {
        Ok(query) => {
            let _ = query.search(&*SPANS, &SearchOptions::default());
        }
        Err(error) => assert!(!error.render(text).is_empty()),
    }
});
