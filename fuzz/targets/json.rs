//! OTLP/JSON: what is read is a request that can be walked, and says the same again.
#![no_main]

use bytes::Bytes;
use lens_otlp::json;
use lens_store::raw;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((kind, text)) = data.split_first() else { return };
    match kind % 3 {
        0 => {
            let Ok(request) = json::decode_trace_request(text) else { return };
            raw::decode(&Bytes::from(request.clone()), 1).expect("what was written can be walked");
            let again = json::encode_trace_request(&request).expect("what was written is read");
            // An absent scope comes back as an empty one, so texts are compared.
            let request = json::decode_trace_request(again.as_bytes()).expect("and read again");
            assert_eq!(json::encode_trace_request(&request).as_ref(), Ok(&again));
        }
        1 => {
            let Ok(request) = json::decode_logs_request(text) else { return };
            raw::decode_logs(&Bytes::from(request.clone()), 1).expect("it can be walked");
            let again = json::encode_logs_request(&request).expect("what was written is read");
            json::decode_logs_request(again.as_bytes()).expect("and read again");
        }
        _ => {
            let Ok(request) = json::decode_metrics_request(text) else { return };
            raw::decode_metrics(&Bytes::from(request.clone()), 1).expect("it can be walked");
            let again = json::encode_metrics_request(&request).expect("what was written is read");
            json::decode_metrics_request(again.as_bytes()).expect("and read again");
        }
    }
});
