//! When a failed attempt is tried again, and after how long.
//!
//! Pure: the schedule sees only what happened and how much of its budget is gone, so every
//! decision is tested without a clock.

use std::time::Duration;

use http::StatusCode;

/// What may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// A Gym server whose request has effects (`/run`, `/verify`, tools): tried again only when
    /// the request was never sent.
    #[default]
    Internal,
    /// A Gym server whose request may be repeated.
    InternalIdempotent,
    /// A model endpoint: transport failures, 429 and gateway errors are tried again.
    Model,
    /// One attempt.
    Once,
}

/// How one attempt ended without a usable reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The request was not sent: refused, unreachable, or a kept connection had gone.
    NeverSent,
    /// The connection broke after the request was sent.
    Broken,
    /// A limit of time ran out.
    TimedOut,
    /// The server answered with this status and, in seconds, `Retry-After`.
    Status(StatusCode, Option<Duration>),
}

const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
const SERVER_ERROR_TRIES: u32 = 3;

impl Policy {
    /// Whether a request that reached the server may be sent again.
    #[must_use]
    pub fn repeats_what_was_sent(self) -> bool {
        matches!(self, Self::InternalIdempotent | Self::Model)
    }

    /// How long to wait before the next attempt; `None` ends the request.
    ///
    /// `tries` counts attempts so far, `server_errors` those that ended with status 500,
    /// `elapsed` is the time since the first attempt, and `budget` the time within which attempts
    /// may start.
    #[must_use]
    pub fn next(
        self,
        failure: Failure,
        tries: u32,
        server_errors: u32,
        elapsed: Duration,
        budget: Duration,
    ) -> Option<Duration> {
        let backoff =
            FIRST_BACKOFF.saturating_mul(1 << (tries.clamp(1, 7) - 1)).min(LONGEST_BACKOFF);
        let wait = match (self, failure) {
            (Self::Once, _) => return None,
            (Self::Internal, Failure::NeverSent)
            | (Self::InternalIdempotent | Self::Model, Failure::NeverSent | Failure::Broken) => {
                backoff
            }
            (Self::Model, Failure::Status(status, retry_after)) => match status.as_u16() {
                // A server that says "at once" is not hammered.
                429 | 502 | 503 | 504 | 520 => {
                    retry_after.map_or(backoff, |after| after.max(backoff))
                }
                500 if server_errors < SERVER_ERROR_TRIES => backoff,
                _ => return None,
            },
            _ => return None,
        };
        (elapsed + wait < budget).then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::super::patience::Patience;
    use super::*;

    const REFUSED: Failure = Failure::NeverSent;

    fn next(
        policy: Policy,
        failure: Failure,
        tries: u32,
        server_errors: u32,
        elapsed: Duration,
    ) -> Option<Duration> {
        let budget = Patience::default().budget(policy);
        policy.next(failure, tries, server_errors, elapsed, budget)
    }

    fn status(code: u16) -> Failure {
        Failure::Status(StatusCode::from_u16(code).expect("a status"), None)
    }

    #[test]
    fn internal_back_off_doubles_from_a_tenth_to_five_seconds_within_a_minute() {
        let mut elapsed = Duration::ZERO;
        let mut waits = Vec::new();
        while let Some(wait) = next(Policy::Internal, REFUSED, waits.len() as u32 + 1, 0, elapsed) {
            elapsed += wait;
            waits.push(wait.as_millis());
        }
        assert_eq!(waits[..8], [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert!(elapsed < Duration::from_secs(60), "{elapsed:?}");
        assert!(elapsed > Duration::from_secs(50), "{elapsed:?}");
    }

    #[test]
    fn a_request_with_effects_is_not_repeated_once_sent() {
        let next = |policy, failure| next(policy, failure, 1, 0, Duration::ZERO);
        assert!(next(Policy::Internal, REFUSED).is_some());
        assert!(next(Policy::Internal, Failure::Broken).is_none());
        assert!(next(Policy::Internal, status(503)).is_none());
        assert!(next(Policy::InternalIdempotent, Failure::Broken).is_some());
        assert!(next(Policy::Once, REFUSED).is_none());
    }

    #[test]
    fn a_model_that_is_busy_is_asked_again_when_it_says_so() {
        let wait = Duration::from_secs(7);
        let busy = Failure::Status(StatusCode::TOO_MANY_REQUESTS, Some(wait));
        assert_eq!(next(Policy::Model, busy, 1, 0, Duration::ZERO), Some(wait));
        assert_eq!(next(Policy::Model, busy, 9, 0, Duration::from_secs(594)), None);
        let at_once = Failure::Status(StatusCode::TOO_MANY_REQUESTS, Some(Duration::ZERO));
        let backoff = Duration::from_millis(400);
        assert_eq!(next(Policy::Model, at_once, 3, 0, Duration::ZERO), Some(backoff));
        for code in [502, 503, 504, 520] {
            assert!(next(Policy::Model, status(code), 5, 0, Duration::ZERO).is_some(), "{code}");
        }
        for code in [400, 401, 404, 501] {
            assert!(next(Policy::Model, status(code), 1, 0, Duration::ZERO).is_none(), "{code}");
        }
    }

    #[test]
    fn a_model_that_breaks_gets_three_tries() {
        assert!(next(Policy::Model, status(500), 2, 2, Duration::ZERO).is_some());
        assert!(next(Policy::Model, status(500), 3, 3, Duration::ZERO).is_none());
    }
}
