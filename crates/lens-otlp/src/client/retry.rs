//! What is retried, and when.

use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

use super::Prepared;
use super::trouble::{self, Trouble};
use crate::base64;
use crate::view::Repeated;
use crate::wire::{Content, Fields};

/// Longest pause between two tries.
const MAX_BACK_OFF: Duration = Duration::from_secs(5);
/// A receiver that asks for more is taken to have asked for this.
const MAX_ASKED: Duration = Duration::from_secs(3600);

/// One response, judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Accepted {
        rejected: u64,
        /// What the receiver says about these.
        message: String,
    },
    Refused(Trouble),
    /// Smaller ones may pass.
    TooLarge(Trouble),
    /// Try again, not before so long.
    Retry {
        after: Option<Duration>,
        trouble: Trouble,
    },
}

/// When a receiver of gRPC wants to be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Nothing,
    /// It says so in `RetryInfo` or as push-back.
    After(Duration),
    /// Push-back that is no number: never.
    Never,
}

impl Asked {
    pub(super) fn of_grpc(headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
        if let Some(pushback) = text("grpc-retry-pushback-ms") {
            return match pushback.parse() {
                Ok(millis) => Self::After(Duration::from_millis(millis).min(MAX_ASKED)),
                Err(_) => Self::Never,
            };
        }
        let details = text("grpc-status-details-bin").and_then(base64::decode);
        let delay = details.as_deref().and_then(retry_delay);
        delay.map_or(Self::Nothing, |delay| Self::After(delay.min(MAX_ASKED)))
    }
}

/// `RetryInfo.retry_delay` among the details of a `google.rpc.Status`.
fn retry_delay(status: &[u8]) -> Option<Duration> {
    let field = |message, number| Repeated::new(message, number).find_map(Result::ok);
    let any = Repeated::new(status, 3)
        .filter_map(Result::ok)
        .find(|any| field(any, 1).is_some_and(|name| name.ends_with(b"/google.rpc.RetryInfo")))?;
    let Some(delay) = field(field(any, 2).unwrap_or_default(), 1) else {
        return Some(Duration::ZERO);
    };
    let number = |wanted| {
        let mut fields = Fields::new(delay).filter_map(Result::ok);
        let content = fields.find(|(number, _)| *number == wanted).map(|(_, content)| content);
        content.map(Content::varint).and_then(Result::ok).unwrap_or(0)
    };
    let seconds = number(1).min(MAX_ASKED.as_secs());
    Some(Duration::new(seconds, u32::try_from(number(2)).unwrap_or(0).min(999_999_999)))
}

/// Judges an OTLP/HTTP status other than success.
pub(super) fn judge_http(status: StatusCode, headers: &HeaderMap, target: &Prepared) -> Verdict {
    let trouble = trouble::of_http(status, target);
    match status.as_u16() {
        429 | 502 | 503 | 504 => {
            Verdict::Retry { after: retry_after(headers, SystemTime::now()), trouble }
        }
        413 => Verdict::TooLarge(trouble),
        _ => Verdict::Refused(trouble),
    }
}

/// Judges a gRPC status code other than OK.
pub(super) fn judge_grpc(code: u32, message: &str, asked: Asked, target: &Prepared) -> Verdict {
    let trouble = trouble::of_grpc(code, message, target);
    let after = match asked {
        Asked::After(after) => Some(after),
        Asked::Nothing | Asked::Never => None,
    };
    match code {
        _ if asked == Asked::Never => Verdict::Refused(trouble),
        // resource exhausted, and out of range with some receivers
        8 | 11 if says_too_large(message) => Verdict::TooLarge(trouble),
        // cancelled, deadline exceeded, aborted, out of range, unavailable, data loss
        1 | 4 | 10 | 11 | 14 | 15 => Verdict::Retry { after, trouble },
        // resource exhausted: only when the receiver says when to come back
        8 if after.is_some() => Verdict::Retry { after, trouble },
        _ => Verdict::Refused(trouble),
    }
}

/// The wordings of the common gRPC libraries; no code tells it.
fn says_too_large(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["larger than max", "too large", "exceeds maximum size"]
        .iter()
        .any(|wording| message.contains(wording))
}

/// Seconds or a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let asked = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        // A date that has passed asks for nothing.
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(asked.min(MAX_ASKED))
}

/// The pause after try number `tries` (from 1): doubling from 100 ms, spread by `spread` in 0.0..1.0 down to half.
pub(super) fn back_off(tries: u32, spread: f64) -> Duration {
    let full = Duration::from_millis(100).saturating_mul(1 << tries.min(7).saturating_sub(1));
    full.min(MAX_BACK_OFF).mul_f64(0.5 + spread.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Protocol, Signal, Target};

    fn target() -> Prepared {
        let target = Target {
            signal: Signal::Traces,
            endpoint: "http://localhost:4318/v1/traces".to_owned(),
            protocol: Protocol::HttpProtobuf,
            headers: Vec::new(),
            timeout: Duration::from_secs(1),
            gzip: false,
            certificate: None,
            client_identity: None,
            max_request_bytes: usize::MAX,
        };
        crate::client::prepare(target).expect("valid")
    }

    #[test]
    fn only_the_statuses_of_the_specification_are_retried() {
        let (none, target) = (HeaderMap::new(), target());
        for code in 300..600_u16 {
            let status = StatusCode::from_u16(code).expect("valid status");
            let retried = matches!(judge_http(status, &none, &target), Verdict::Retry { .. });
            assert_eq!(retried, [429, 502, 503, 504].contains(&code), "{code}");
        }
        let is_retried = |code: &u32| {
            matches!(judge_grpc(*code, "", Asked::Nothing, &target), Verdict::Retry { .. })
        };
        let retried: Vec<u32> = (1..=16).filter(is_retried).collect();
        assert_eq!(retried, [1, 4, 10, 11, 14, 15]);
    }

    #[test]
    fn exhausted_resources_are_retried_when_the_receiver_says_when() {
        let target = target();
        let judge = |asked| judge_grpc(8, "busy", asked, &target);
        assert!(matches!(judge(Asked::Nothing), Verdict::Refused(_)));
        assert!(matches!(judge(Asked::After(Duration::ZERO)), Verdict::Retry { .. }));
        let unavailable = judge_grpc(14, "", Asked::Never, &target);
        assert!(matches!(unavailable, Verdict::Refused(_)), "{unavailable:?}");
    }

    #[test]
    fn messages_that_are_too_large_are_recognised() {
        let target = target();
        for (code, message) in [
            (8, "grpc: received message larger than max (5000000 vs. 4194304)"),
            (8, "gRPC message exceeds maximum size 4194304: 5000000"),
            (11, "Error, decoded message length too large: found 5 bytes, the limit is: 4 bytes"),
        ] {
            let verdict = judge_grpc(code, message, Asked::Nothing, &target);
            assert!(matches!(verdict, Verdict::TooLarge(_)), "{message}");
        }
    }

    #[test]
    fn receiver_says_when_to_come_back() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let asked = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().expect("valid"));
            retry_after(&headers, now)
        };
        assert_eq!(asked("7"), Some(Duration::from_secs(7)));
        assert_eq!(asked("Sun, 06 Nov 1994 08:49:47 GMT"), Some(Duration::from_secs(10)));
        assert_eq!(asked("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(asked("18446744073709551615"), Some(MAX_ASKED));
        assert_eq!(asked("soon"), None);
    }

    #[test]
    fn receiver_of_grpc_says_when_to_come_back() {
        let asked = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().expect("valid"));
            Asked::of_grpc(&headers)
        };
        let pushback = |value| asked("grpc-retry-pushback-ms", value);
        assert_eq!(pushback("250"), Asked::After(Duration::from_millis(250)));
        assert_eq!(pushback("-1"), Asked::Never);
        let details = |text: &str| asked("grpc-status-details-bin", text);
        // google.rpc.Status { code: 14, details: [RetryInfo { retry_delay: 1.5 s }] }
        let text = "CA4aNgoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIKCggIARCAyrXuAQ";
        assert_eq!(details(text), Asked::After(Duration::from_millis(1500)));
        assert_eq!(details(&format!("{text}==")), Asked::After(Duration::from_millis(1500)));
        assert_eq!(details("CA4="), Asked::Nothing);
        assert_eq!(details("no base 64"), Asked::Nothing);
    }

    #[test]
    fn back_off_doubles_up_to_its_limit() {
        assert_eq!(back_off(1, 1.0), Duration::from_millis(100));
        assert_eq!(back_off(3, 1.0), Duration::from_millis(400));
        assert_eq!(back_off(3, 0.0), Duration::from_millis(200));
        assert_eq!(back_off(60, 1.0), MAX_BACK_OFF);
    }
}
