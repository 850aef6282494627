//! Typed bodies, and the 422 entries for those that do not fit.
//!
//! The typed read comes first; only when it fails is the body read a second time to find out
//! what is wrong where.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::Rejection;
use crate::http::HttpError;

impl From<Rejection> for HttpError {
    fn from(rejection: Rejection) -> Self {
        match (rejection.status(), rejection.detail()) {
            (422, Value::Array(entries)) => Self::Unprocessable(entries),
            (status, detail) => Self::Detail {
                status: http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::BAD_REQUEST),
                detail,
            },
        }
    }
}

/// Reads a JSON body as `T`.
///
/// # Errors
///
/// [`HttpError::Unprocessable`] with an entry in the form of the reference.
pub fn body<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, HttpError> {
    // A struct would be read from a list too.
    let is_object = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    match serde_json::from_slice(bytes) {
        Ok(value) if is_object => Ok(value),
        _ => Err(explain::<T>(bytes)),
    }
}

fn explain<T: DeserializeOwned>(bytes: &[u8]) -> HttpError {
    if bytes.is_empty() {
        return Rejection::empty_body().into();
    }
    let value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(error) => {
            let text = String::from_utf8_lossy(bytes);
            let fault = crate::api::json::document(&text).err();
            return match fault {
                Some(fault) => Rejection::not_json(&text, fault).into(),
                None => HttpError::detail(http::StatusCode::BAD_REQUEST, &error.to_string()),
            };
        }
    };
    if !value.is_object() {
        return Rejection::not_an_object(&value.to_string()).into();
    }
    match serde_path_to_error::deserialize::<_, T>(&value) {
        Ok(_) => HttpError::failed("RuntimeError", "the body changed between two reads"),
        Err(error) => HttpError::Unprocessable(vec![entry(&value, &error)]),
    }
}

fn entry(body: &Value, error: &serde_path_to_error::Error<serde_json::Error>) -> Value {
    let mut loc = vec![json!("body")];
    let mut input = body;
    for segment in error.path().iter() {
        match segment {
            serde_path_to_error::Segment::Seq { index } => {
                loc.push(json!(index));
                input = input.get(index).unwrap_or(&Value::Null);
            }
            serde_path_to_error::Segment::Map { key } => {
                loc.push(json!(key));
                input = input.get(key).unwrap_or(&Value::Null);
            }
            _ => {}
        }
    }
    let message = error.inner().to_string();
    if let Some(field) = quoted(&message, "missing field `") {
        loc.push(json!(field));
        return json!({"type": "missing", "loc": loc, "msg": "Field required", "input": input});
    }
    if let Some(field) = quoted(&message, "unknown field `") {
        loc.push(json!(field));
        let input = input.get(field).unwrap_or(&Value::Null);
        let msg = "Extra inputs are not permitted";
        return json!({"type": "extra_forbidden", "loc": loc, "msg": msg, "input": input});
    }
    let expected = message.split("expected ").nth(1).unwrap_or_default();
    let (kind, msg) = match expected {
        e if e.starts_with("a string") || e.starts_with("string") => {
            ("string_type", "Input should be a valid string")
        }
        e if e.starts_with(['i', 'u']) && e.contains(|c: char| c.is_ascii_digit()) => {
            ("int_type", "Input should be a valid integer")
        }
        e if e.starts_with("f64") || e.starts_with("f32") => {
            ("float_type", "Input should be a valid number")
        }
        e if e.starts_with("a boolean") => ("bool_type", "Input should be a valid boolean"),
        e if e.starts_with("a sequence") => ("list_type", "Input should be a valid list"),
        e if e.starts_with("a map") || e.starts_with("struct") => {
            ("dict_type", "Input should be a valid dictionary")
        }
        _ => {
            return json!({
                "type": "value_error", "loc": loc, "msg": format!("Value error, {message}"),
                "input": input,
            });
        }
    };
    json!({"type": kind, "loc": loc, "msg": msg, "input": input})
}

fn quoted<'a>(message: &'a str, before: &str) -> Option<&'a str> {
    message.strip_prefix(before)?.split('`').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[allow(dead_code, reason = "read through Debug only")]
    struct Weather {
        city: String,
        days: Option<i64>,
    }

    fn refusal(text: &str) -> String {
        match body::<Weather>(text.as_bytes()).expect_err("does not fit") {
            HttpError::Unprocessable(entries) => Value::Array(entries).to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_body_that_does_not_fit_is_told_where_and_why() {
        assert_eq!(
            refusal("{}"),
            r#"[{"type":"missing","loc":["body","city"],"msg":"Field required","input":{}}]"#
        );
        assert_eq!(
            refusal(r#"{"city":3}"#),
            r#"[{"type":"string_type","loc":["body","city"],"msg":"Input should be a valid string","input":3}]"#
        );
        assert_eq!(
            refusal(r#"{"city":"Oslo","days":"two"}"#),
            r#"[{"type":"int_type","loc":["body","days"],"msg":"Input should be a valid integer","input":"two"}]"#
        );
        assert!(refusal("").contains(r#""loc":["body"],"msg":"Field required","input":null"#));
        assert!(refusal("{\"city\":").contains("json_invalid"));
        assert!(refusal("[]").contains("model_attributes_type"));
    }
}
