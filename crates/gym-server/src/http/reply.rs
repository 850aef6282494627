//! What a handler answers, and the shapes of its failures.
//!
//! Failure bodies are those of the Python reference: `{"detail": …}` for refusals, and a JSON
//! *string* holding a Python-like representation for everything a handler did not foresee.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};

use crate::client::ClientError;

/// A successful answer.
#[derive(Debug)]
pub struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) content_type: HeaderValue,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Bytes,
    pub(crate) delivery: Delivery,
}

/// How a body reaches the client; anything but whole is for servers that fail on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// At once.
    #[default]
    Whole,
    /// In pieces over this time.
    Slow(std::time::Duration),
    /// Not at all: the connection ends instead.
    Broken,
}

impl Reply {
    /// A JSON body that is already written.
    #[must_use]
    pub fn json_bytes(body: impl Into<Bytes>) -> Self {
        Self {
            status: StatusCode::OK,
            content_type: HeaderValue::from_static("application/json"),
            headers: Vec::new(),
            body: body.into(),
            delivery: Delivery::Whole,
        }
    }

    /// A value written as compact JSON.
    ///
    /// # Errors
    ///
    /// [`HttpError::Failed`] when the value does not serialise.
    pub fn json(value: &impl Serialize) -> Result<Self, HttpError> {
        serde_json::to_vec(value)
            .map(Self::json_bytes)
            .map_err(|error| HttpError::failed("TypeError", &error.to_string()))
    }

    /// A finished stream of server-sent events.
    #[must_use]
    pub fn sse(body: impl Into<Bytes>) -> Self {
        Self {
            content_type: HeaderValue::from_static("text/event-stream; charset=utf-8"),
            ..Self::json_bytes(body)
        }
    }

    /// The same body, marked as a finished stream of server-sent events.
    #[must_use]
    pub fn event_stream(mut self) -> Self {
        self.content_type = HeaderValue::from_static("text/event-stream; charset=utf-8");
        self
    }

    /// Replaces the status, 200.
    #[must_use]
    pub fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Delivers the body in another way than whole.
    #[must_use]
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The body, taken out.
    #[must_use]
    pub fn into_body(self) -> Bytes {
        self.body
    }

    /// The status.
    #[must_use]
    pub fn status_code(&self) -> StatusCode {
        self.status
    }
}

/// A failed answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// A refusal with a status: `{"detail": …}`.
    #[error("refused with status {status}")]
    Detail {
        /// Status of the answer.
        status: StatusCode,
        /// Value of `detail`.
        detail: Value,
    },
    /// The body does not fit the schema: 422 with a list of entries.
    #[error("the request does not fit the schema in {} places", .0.len())]
    Unprocessable(Vec<Value>),
    /// A call to another server failed: 500 with that server's body quoted.
    #[error("a call to an inner server failed")]
    Inner {
        /// Body of the inner reply, or the transport error.
        body: Bytes,
        /// Kind of the failure for the span's `error.type`.
        error_type: String,
    },
    /// Anything else: 500 with a Python-like representation.
    #[error("{error_type}: {message}")]
    Failed {
        /// Name of the exception.
        error_type: String,
        /// Its message.
        message: String,
    },
    /// The handler panicked.
    #[error("the handler panicked")]
    Panicked,
}

impl HttpError {
    /// An unforeseen failure, as `error_type('message')`.
    #[must_use]
    pub fn failed(error_type: &str, message: &str) -> Self {
        Self::Failed { error_type: error_type.to_owned(), message: message.to_owned() }
    }

    /// A refusal with a text.
    #[must_use]
    pub fn detail(status: StatusCode, detail: &str) -> Self {
        Self::Detail { status, detail: Value::String(detail.to_owned()) }
    }

    /// The route does not exist.
    #[must_use]
    pub fn not_found() -> Self {
        Self::detail(StatusCode::NOT_FOUND, "Not Found")
    }

    /// Status of the answer.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Detail { status, .. } => *status,
            Self::Unprocessable(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Inner { .. } | Self::Failed { .. } | Self::Panicked => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }

    /// Value of `error.type` on spans.
    #[must_use]
    pub fn error_type(&self) -> String {
        match self {
            Self::Detail { status, .. } => status.as_u16().to_string(),
            Self::Unprocessable(_) => "422".to_owned(),
            Self::Inner { error_type, .. } | Self::Failed { error_type, .. } => error_type.clone(),
            Self::Panicked => "panic".to_owned(),
        }
    }

    /// Whether the answer carries the session cookie, as it does unless the handler broke.
    pub(crate) fn keeps_session(&self) -> bool {
        matches!(self, Self::Detail { .. } | Self::Unprocessable(_))
    }

    /// Body of the answer; `server` names the server in the quoted form.
    #[must_use]
    pub fn body(&self, server: &str) -> Bytes {
        let value = match self {
            Self::Detail { detail, .. } => json!({ "detail": detail }),
            Self::Unprocessable(entries) => json!({ "detail": entries }),
            Self::Inner { body, .. } => Value::String(format!(
                "Hit an exception in {server} calling an inner server: {}",
                python_bytes(body)
            )),
            Self::Failed { error_type, message } => {
                Value::String(format!("{error_type}({})", python_str(message)))
            }
            Self::Panicked => Value::String("An unknown error occurred".to_owned()),
        };
        Bytes::from(value.to_string())
    }
}

impl From<ClientError> for HttpError {
    fn from(error: ClientError) -> Self {
        let error_type = error.error_type();
        match error {
            ClientError::Status { body, .. } => Self::Inner { body, error_type },
            other => Self::Inner { body: Bytes::from(other.full_message()), error_type },
        }
    }
}

/// Python's `repr` of bytes.
fn python_bytes(bytes: &[u8]) -> String {
    let quote = if bytes.contains(&b'\'') && !bytes.contains(&b'"') { '"' } else { '\'' };
    let mut text = String::with_capacity(bytes.len() + 3);
    text.push('b');
    text.push(quote);
    for &byte in bytes {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            b'\'' if quote == '\'' => text.push_str("\\'"),
            0x20..=0x7e => text.push(char::from(byte)),
            other => text.push_str(&format!("\\x{other:02x}")),
        }
    }
    text.push(quote);
    text
}

/// Python's `repr` of a string, for the characters that occur in messages.
fn python_str(message: &str) -> String {
    let quote = if message.contains('\'') && !message.contains('"') { '"' } else { '\'' };
    let mut text = String::with_capacity(message.len() + 2);
    text.push(quote);
    for character in message.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\'' if quote == '\'' => text.push_str("\\'"),
            control if (control as u32) < 0x20 || control as u32 == 0x7f => {
                text.push_str(&format!("\\x{:02x}", control as u32));
            }
            other => text.push(other),
        }
    }
    text.push(quote);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_the_shapes_of_the_reference() {
        let text =
            |error: HttpError| String::from_utf8(error.body("Agent___a").to_vec()).expect("utf-8");
        assert_eq!(text(HttpError::not_found()), r#"{"detail":"Not Found"}"#);
        assert_eq!(
            text(HttpError::failed("ValueError", "it's \"bad\"\n")),
            r#""ValueError('it\\'s \"bad\"\\n')""#
        );
        assert_eq!(
            text(HttpError::Inner {
                body: Bytes::from_static(b"{\"a\": 'x'}\xff"),
                error_type: "500".into()
            }),
            r#""Hit an exception in Agent___a calling an inner server: b'{\"a\": \\'x\\'}\\xff'""#
        );
        assert_eq!(text(HttpError::Panicked), r#""An unknown error occurred""#);
    }
}
