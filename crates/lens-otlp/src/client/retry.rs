//! What is retried, and when.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header::RETRY_AFTER};

/// Longest pause between two tries.
const MAX_BACK_OFF: Duration = Duration::from_secs(5);

/// One response, judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Accepted {
        rejected: u64,
    },
    Refused,
    /// Try again, not before so long.
    Retry(Option<Duration>),
}

/// Judges an OTLP/HTTP status other than success.
pub(super) fn judge_http(status: StatusCode, headers: &HeaderMap) -> Verdict {
    match status.as_u16() {
        429 | 502 | 503 | 504 => Verdict::Retry(retry_after(headers)),
        _ => Verdict::Refused,
    }
}

/// Judges a gRPC status code other than OK.
pub(super) fn judge_grpc(code: u32, asked_to_wait: Option<Duration>) -> Verdict {
    match code {
        // cancelled, deadline exceeded, aborted, out of range, unavailable, data loss
        1 | 4 | 10 | 11 | 14 | 15 => Verdict::Retry(asked_to_wait),
        // resource exhausted: only when the receiver says when to come back
        8 if asked_to_wait.is_some() => Verdict::Retry(asked_to_wait),
        _ => Verdict::Refused,
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

/// The pause after try number `tries` (from 1): doubling from 100 ms, spread by `spread` in 0.0..1.0 down to half.
pub(super) fn back_off(tries: u32, spread: f64) -> Duration {
    let full = Duration::from_millis(100).saturating_mul(1 << tries.min(7).saturating_sub(1));
    full.min(MAX_BACK_OFF).mul_f64(0.5 + spread.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_statuses_of_the_specification_are_retried() {
        let none = HeaderMap::new();
        for code in 400..600_u16 {
            let status = StatusCode::from_u16(code).expect("valid status");
            let retried = matches!(judge_http(status, &none), Verdict::Retry(_));
            assert_eq!(retried, [429, 502, 503, 504].contains(&code), "{code}");
        }
        let retried: Vec<u32> =
            (1..=16).filter(|code| matches!(judge_grpc(*code, None), Verdict::Retry(_))).collect();
        assert_eq!(retried, [1, 4, 10, 11, 14, 15]);
        assert!(matches!(judge_grpc(8, Some(Duration::ZERO)), Verdict::Retry(_)));
    }

    #[test]
    fn receiver_says_when_to_come_back() {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, "7".parse().expect("valid"));
        let verdict = judge_http(StatusCode::TOO_MANY_REQUESTS, &headers);
        assert_eq!(verdict, Verdict::Retry(Some(Duration::from_secs(7))));
    }

    #[test]
    fn back_off_doubles_up_to_its_limit() {
        assert_eq!(back_off(1, 1.0), Duration::from_millis(100));
        assert_eq!(back_off(3, 1.0), Duration::from_millis(400));
        assert_eq!(back_off(3, 0.0), Duration::from_millis(200));
        assert_eq!(back_off(60, 1.0), MAX_BACK_OFF);
    }
}
