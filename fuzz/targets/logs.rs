//! Export requests of log records: what is let through can be read, and written as JSON.
#![no_main]

use bytes::Bytes;
use lens_otlp::json;
use lens_otlp::view::logs::LogView;
use lens_store::raw;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let request = Bytes::copy_from_slice(data);
    let Ok(decoded) = raw::decode_logs(&request, 1) else { return };
    for record in &decoded.items {
        let view = LogView::read(&record.message).expect("checked");
        assert!(view.attributes().all(|pair| pair.is_ok()));
    }
    if let Ok(text) = json::encode_logs_request(data) {
        json::decode_logs_request(text.as_bytes()).expect("what was written is read");
    }
});
