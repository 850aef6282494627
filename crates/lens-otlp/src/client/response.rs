//! Answers, judged.

use http::{HeaderMap, Response};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;

use super::connection::Broken;
use super::retry::{Asked, Verdict, judge_grpc, judge_http};
use super::trouble::{self, Trouble};
use super::{Prepared, Protocol};
use crate::wire::{self, Fields};

/// Answers are read so far.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

pub(super) async fn read(
    target: &Prepared,
    response: Response<Incoming>,
) -> Result<Verdict, Broken> {
    match target.protocol {
        Protocol::Grpc => read_grpc(target, response).await,
        _ => read_http(target, response).await,
    }
}

fn cut(error: Box<dyn std::error::Error + Send + Sync>) -> Broken {
    Broken(Trouble::Broken(trouble::chain(error.as_ref())))
}

async fn read_http(target: &Prepared, response: Response<Incoming>) -> Result<Verdict, Broken> {
    let (head, body) = response.into_parts();
    // Read to the end even when it does not matter: the connection is used again.
    let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await.map_err(cut)?;
    if !head.status.is_success() {
        return Ok(judge_http(head.status, &head.headers, target));
    }
    let (rejected, message) = match target.protocol {
        Protocol::HttpJson => rejected_in_json(&body.to_bytes()),
        _ => rejected_items(&body.to_bytes()),
    };
    Ok(Verdict::Accepted { rejected, message: trouble::one_line(&message) })
}

async fn read_grpc(target: &Prepared, response: Response<Incoming>) -> Result<Verdict, Broken> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await.map_err(cut)?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    // An answer without a body has its status among the headers.
    let both = [&trailers, &head.headers];
    let found =
        both.into_iter().find_map(|headers| Some((number(headers, "grpc-status")?, headers)));
    match found {
        Some((0, _)) => {
            let message = body.to_bytes();
            // A compressed reply is not asked for, so its content is not looked at.
            let plain = message.first() == Some(&0);
            let (rejected, message) = match message.get(5..) {
                Some(message) if plain => rejected_items(message),
                _ => (0, String::new()),
            };
            Ok(Verdict::Accepted { rejected, message: trouble::one_line(&message) })
        }
        Some((code, headers)) => {
            let message = headers.get("grpc-message").and_then(|text| text.to_str().ok());
            let message = percent_decode(message.unwrap_or_default());
            Ok(judge_grpc(code, &message, Asked::of_grpc(headers), target))
        }
        // Something between us and the receiver answered.
        None if !head.status.is_success() => Ok(judge_http(head.status, &head.headers, target)),
        None => Ok(Verdict::Retry {
            after: None,
            trouble: Trouble::Broken("the answer is not gRPC".to_owned()),
        }),
    }
}

fn number(headers: &HeaderMap, name: &str) -> Option<u32> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// gRPC's messages have `%xx` for what headers cannot carry.
fn percent_decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let escaped = (*byte == b'%').then(|| after.get(..2)).flatten();
        let escaped = escaped
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        out.push(escaped.unwrap_or(*byte));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// `partial_success.rejected_*` and `.error_message` of a response; nothing when there is none or it is malformed.
fn rejected_items(response: &[u8]) -> (u64, String) {
    fn field(message: &[u8], number: u32) -> Option<wire::Content<'_>> {
        let mut fields = Fields::new(message).filter_map(Result::ok);
        fields.find(|(found, _)| *found == number).map(|(_, content)| content)
    }
    let partial = field(response, 1).and_then(|content| content.bytes().ok());
    let rejected = partial.and_then(|partial| field(partial, 1));
    let rejected = rejected.and_then(|content| content.varint().ok()).unwrap_or(0);
    let message = partial.and_then(|partial| field(partial, 2));
    let message = message.and_then(|content| content.text().ok()).unwrap_or_default();
    // The field is signed; less than nothing is nothing.
    (u64::try_from(rejected as i64).unwrap_or(0), message.to_owned())
}

fn rejected_in_json(response: &[u8]) -> (u64, String) {
    let Ok(response) = serde_json::from_slice::<serde_json::Value>(response) else {
        return (0, String::new());
    };
    let partial = &response["partialSuccess"];
    let message = partial["errorMessage"].as_str().unwrap_or_default().to_owned();
    let names = ["rejectedSpans", "rejectedDataPoints", "rejectedLogRecords"];
    let rejected = match names.iter().map(|name| &partial[*name]).find(|value| !value.is_null()) {
        Some(serde_json::Value::String(text)) => text.parse().unwrap_or(0),
        Some(number) => number.as_u64().unwrap_or(0),
        None => 0,
    };
    (rejected, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_grpc_are_unescaped() {
        assert_eq!(percent_decode("100%25 of %C3%A4 %zz %"), "100% of ä %zz %");
    }

    #[test]
    fn rejected_items_of_every_signal_are_found_in_json() {
        for name in ["rejectedSpans", "rejectedDataPoints", "rejectedLogRecords"] {
            let text = format!("{{\"partialSuccess\":{{\"{name}\":\"3\"}}}}");
            assert_eq!(rejected_in_json(text.as_bytes()).0, 3, "{name}");
        }
        let text = b"{\"partialSuccess\":{\"rejectedSpans\":1,\"errorMessage\":\"why\"}}";
        assert_eq!(rejected_in_json(text), (1, "why".to_owned()));
        assert_eq!(rejected_in_json(b"{}").0, 0);
        assert_eq!(rejected_in_json(b"garbage").0, 0);
    }

    #[test]
    fn answers_that_mean_nothing_reject_nothing() {
        assert_eq!(rejected_items(b"\xff\xff").0, 0);
        let mut negative = vec![0x0a, 11, 0x08];
        negative.extend_from_slice(&[0xff; 9]);
        negative.push(1);
        assert_eq!(rejected_items(&negative).0, 0);
    }
}
