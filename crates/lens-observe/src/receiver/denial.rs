//! Reasons to refuse a request, and what each is called on either transport.
//!
//! A sender tries again when the status says so: over HTTP 429, 502, 503 and 504; over gRPC UNAVAILABLE, and
//! RESOURCE_EXHAUSTED when it carries `RetryInfo`. So a message that is too large carries none.

use std::time::Duration;

use http::StatusCode;

use super::counters::Reason;
use lens_store::wal::InflateError;

use crate::intake::Refused;

/// Codes of gRPC.
pub(super) mod code {
    pub(crate) const OK: u32 = 0;
    pub(crate) const INVALID_ARGUMENT: u32 = 3;
    pub(crate) const DEADLINE_EXCEEDED: u32 = 4;
    pub(crate) const RESOURCE_EXHAUSTED: u32 = 8;
    pub(crate) const UNIMPLEMENTED: u32 = 12;
    pub(crate) const UNAVAILABLE: u32 = 14;
    pub(crate) const UNAUTHENTICATED: u32 = 16;
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Denial {
    pub reason: Reason,
    /// For whoever runs the sender.
    pub message: String,
    /// When it is worth another try.
    pub retry_after: Option<Duration>,
}

impl Denial {
    pub(super) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), retry_after: None }
    }

    /// The wording is the one that senders know by gRPC's own libraries.
    pub(super) fn too_large(limit_bytes: usize) -> Self {
        Self::new(
            Reason::TooLarge,
            format!("received message larger than max (the limit is {limit_bytes} bytes)"),
        )
    }

    pub(super) fn busy(retry_after: Duration) -> Self {
        let message = "too many bytes are in flight";
        Self { retry_after: Some(retry_after), ..Self::new(Reason::Overloaded, message) }
    }

    /// Whether more of the request may come.
    pub(super) fn leaves_body(&self) -> bool {
        !matches!(self.reason, Reason::CutOff | Reason::TooSlow)
    }

    pub(super) fn status(&self) -> StatusCode {
        match self.reason {
            Reason::NoSuchPath => StatusCode::NOT_FOUND,
            Reason::Method => StatusCode::METHOD_NOT_ALLOWED,
            Reason::Credentials => StatusCode::UNAUTHORIZED,
            Reason::ContentType | Reason::Compression => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Reason::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Reason::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Reason::Malformed | Reason::CutOff => StatusCode::BAD_REQUEST,
            Reason::Overloaded | Reason::DiskFull => StatusCode::TOO_MANY_REQUESTS,
            Reason::Failed => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    pub(super) fn code(&self) -> u32 {
        match self.reason {
            Reason::NoSuchPath | Reason::Method | Reason::Compression => code::UNIMPLEMENTED,
            Reason::Credentials => code::UNAUTHENTICATED,
            Reason::TooLarge | Reason::Overloaded | Reason::DiskFull => code::RESOURCE_EXHAUSTED,
            Reason::TooSlow => code::DEADLINE_EXCEEDED,
            Reason::ContentType | Reason::Malformed | Reason::CutOff => code::INVALID_ARGUMENT,
            Reason::Failed => code::UNAVAILABLE,
        }
    }
}

impl From<Refused> for Denial {
    fn from(refused: Refused) -> Self {
        let message = refused.to_string();
        let (reason, retry_after) = match refused {
            Refused::Overloaded { retry_after } => (Reason::Overloaded, Some(retry_after)),
            Refused::DiskFull { retry_after } => (Reason::DiskFull, Some(retry_after)),
            Refused::Failed { retry_after, .. } => (Reason::Failed, Some(retry_after)),
            Refused::Malformed(_) => (Reason::Malformed, None),
        };
        Self { reason, message, retry_after }
    }
}

impl From<InflateError> for Denial {
    fn from(error: InflateError) -> Self {
        match error {
            InflateError::TooLarge { limit_bytes } => Self::too_large(limit_bytes),
            InflateError::Corrupt(source) => {
                let message = format!("the body cannot be decompressed: {source}");
                Self::new(Reason::Malformed, message)
            }
        }
    }
}
