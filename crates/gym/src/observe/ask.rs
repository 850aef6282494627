//! Questions to a running `gym observe`.

use std::fmt::Write as _;
use std::time::Duration;

use gym_server::instance::{Endpoint, InvalidUrl};
use http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::fleet::probe::{self, ProbeError};

/// A query over a large store takes its time.
const LIMIT: Duration = Duration::from_secs(120);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// It is no address of one.
    #[error("not the address of a `gym observe`")]
    Address(#[from] InvalidUrl),
    /// It cannot be reached.
    #[error("cannot ask {url}")]
    Reach {
        /// As it was given.
        url: String,
        /// Why.
        source: ProbeError,
    },
    /// It was asked something that it does not answer.
    #[error("{message}")]
    Refused {
        /// What it said.
        message: String,
    },
    /// It answered something else.
    #[error("{url} is no `gym observe` of this version")]
    Answer {
        /// As it was given.
        url: String,
        /// What is wrong.
        source: serde_json::Error,
    },
}

/// Whether a source is a `gym observe`, not a path.
pub fn is_address(source: &str) -> bool {
    source.starts_with("http://")
}

/// Asks the one at `url`; names and values of the question are escaped here.
pub async fn ask<T: DeserializeOwned>(
    url: &str,
    path: &str,
    question: &[(&str, String)],
) -> Result<T, AskError> {
    let endpoint = Endpoint::external(url)?;
    let mut path = format!("{}/api/v1/{path}", endpoint.base_path().trim_end_matches('/'));
    for (nth, (name, value)) in question.iter().enumerate() {
        path.push(if nth == 0 { '?' } else { '&' });
        let _ = write!(path, "{name}={}", escaped(value));
    }
    let reply = probe::get(endpoint.host(), endpoint.port(), &path, LIMIT).await;
    let reply = reply.map_err(|source| AskError::Reach { url: url.to_owned(), source });
    let (status, body) = reply?;
    if status != StatusCode::OK {
        let told: Option<Value> = serde_json::from_slice(&body).ok();
        let message = told.as_ref().and_then(|told| told.get("message")?.as_str());
        let message = message.map_or_else(|| format!("{url} answers {status}"), str::to_owned);
        return Err(AskError::Refused { message });
    }
    serde_json::from_slice(&body).map_err(|source| AskError::Answer { url: url.to_owned(), source })
}

/// All but letters and digits as `%xx`.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_escaped_and_an_address_is_no_path() {
        assert_eq!(escaped("{ a=\"µ\" }"), "%7B%20a%3D%22%C2%B5%22%20%7D");
        assert!(is_address("http://127.0.0.1:4318") && !is_address("logs/http"));
    }
}
