//! Attributes as plain JSON, for people and for `jq`.

use lens_otlp::DecodeError;
use lens_otlp::view::{AnyValue, Attributes};
use serde_json::{Map, Number, Value};

/// Attributes up to the first malformed one. Of two with one key the last counts.
pub(super) fn map(attributes: Attributes<'_>) -> Map<String, Value> {
    pairs(attributes)
}

fn pairs<'a>(
    entries: impl Iterator<Item = Result<(&'a str, AnyValue<'a>), DecodeError>>,
) -> Map<String, Value> {
    let entries = entries.map_while(Result::ok);
    entries.map(|(key, plain)| (key.to_owned(), value(&plain))).collect()
}

/// Integers stay exact; bytes are hex; what JSON has no number for is text. The view bounds the depth.
pub(super) fn value(any: &AnyValue<'_>) -> Value {
    match any {
        AnyValue::Empty => Value::Null,
        AnyValue::String(text) => Value::String((*text).to_owned()),
        AnyValue::Bool(is) => Value::Bool(*is),
        AnyValue::Int(number) => Value::Number(Number::from(*number)),
        AnyValue::Double(number) => Number::from_f64(*number).map_or_else(
            || {
                let text = match () {
                    () if number.is_nan() => "NaN",
                    () if *number > 0.0 => "Infinity",
                    () => "-Infinity",
                };
                Value::String(text.to_owned())
            },
            Value::Number,
        ),
        AnyValue::Bytes(bytes) => {
            let mut hex = String::with_capacity(2 * bytes.len());
            lens_otlp::json::put_hex(&mut hex, bytes);
            Value::String(hex)
        }
        AnyValue::Array(array) => {
            array.values().map_while(Result::ok).map(|item| value(&item)).collect()
        }
        AnyValue::KeyValues(list) => Value::Object(pairs(list.entries())),
    }
}

/// The text without characters that move the cursor or change colours.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A scalar as plain text; anything else as JSON.
pub fn scalar_text(value: &Value) -> String {
    match value {
        Value::String(text) => printable(text),
        other => other.to_string(),
    }
}
