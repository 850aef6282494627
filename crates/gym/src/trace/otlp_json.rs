//! OTLP/JSON trace documents. One span that is none does not cost the others.

use lens_otlp::DecodeError;
use lens_otlp::json::decode_trace_request;
use lens_store::raw::{self, Decoded};
use serde_json::{Value, json};

/// The spans of a document, and how many were refused.
pub fn decode(document: &str) -> Result<Decoded, DecodeError> {
    match decode_trace_request(document.as_bytes()) {
        Ok(request) => raw::decode(&request.into(), 0),
        Err(error) => {
            let document: Value = serde_json::from_str(document).map_err(|_| error)?;
            Ok(one_by_one(&document))
        }
    }
}

/// Each span by itself, with what it shares with others.
fn one_by_one(document: &Value) -> Decoded {
    let list = |value: &'_ Value, key: &str| {
        value.get(key).and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let mut all = Decoded::default();
    for resource in list(document, "resourceSpans") {
        for scope in list(&resource, "scopeSpans") {
            for span in list(&scope, "spans") {
                let alone = json!({ "resourceSpans": [{
                    "resource": resource.get("resource"),
                    "schemaUrl": resource.get("schemaUrl"),
                    "scopeSpans": [{
                        "scope": scope.get("scope"),
                        "schemaUrl": scope.get("schemaUrl"),
                        "spans": [span],
                    }],
                }] });
                let request = decode_trace_request(alone.to_string().as_bytes());
                match request.and_then(|request| raw::decode(&request.into(), 0)) {
                    Ok(decoded) => {
                        all.spans.extend(decoded.spans);
                        all.refused += decoded.refused;
                    }
                    Err(_) => all.refused += 1,
                }
            }
        }
    }
    all
}
