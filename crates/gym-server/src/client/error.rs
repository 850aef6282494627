//! Why an outbound request brought no usable reply.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use gym_telemetry::semconv::value::retry_reason;
use http::StatusCode;

use super::retry::Failure;
use super::wire::WireError;

/// Why an outbound request brought no usable reply.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No connection could be opened.
    #[error("could not connect to {}", at(name, authority))]
    Connect {
        /// Instance name, or host.
        name: String,
        /// `host:port`.
        authority: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Opening a connection took too long.
    #[error("connecting to {} took longer than {limit:?}", at(name, authority))]
    ConnectTimeout {
        /// Instance name, or host.
        name: String,
        /// `host:port`.
        authority: String,
        /// The limit.
        limit: Duration,
    },
    /// The connection broke before the reply was complete.
    #[error("the connection to {} broke before the reply was complete", at(name, authority))]
    Broken {
        /// Instance name, or host.
        name: String,
        /// `host:port`.
        authority: String,
        /// Whether the request can have reached the server.
        sent: bool,
        /// What the connection said.
        source: WireError,
    },
    /// The server sent nothing for too long.
    #[error("{} sent nothing for {limit:?}", at(name, authority))]
    Idle {
        /// Instance name, or host.
        name: String,
        /// `host:port`.
        authority: String,
        /// The limit.
        limit: Duration,
    },
    /// The limit of the whole request ran out.
    #[error("{} did not answer within {limit:?}", at(name, authority))]
    OutOfTime {
        /// Instance name, or host.
        name: String,
        /// `host:port`.
        authority: String,
        /// The limit.
        limit: Duration,
    },
    /// The server answered with a status outside 2xx.
    #[error("{name} answered with status {status}")]
    Status {
        /// Instance name, or host.
        name: String,
        /// Status of the reply.
        status: StatusCode,
        /// Body of the reply.
        body: Bytes,
        /// What a Gym server says that it failed of.
        error_type: Option<String>,
    },
    /// The request cannot be written.
    #[error("the request to {name} is not valid HTTP")]
    Invalid {
        /// Instance name, or host.
        name: String,
        /// What is wrong with it.
        source: http::Error,
    },
    /// The reply is larger than what is read.
    #[error("the reply of {name} is larger than {limit_bytes} bytes")]
    TooLarge {
        /// Instance name, or host.
        name: String,
        /// The limit.
        limit_bytes: usize,
    },
    /// Too many requests wait for a connection.
    #[error("{limit} requests wait for a connection already, one to {name} was not queued")]
    QueueFull {
        /// Instance name, or host.
        name: String,
        /// The limit.
        limit: usize,
    },
    /// The client was shut down while the request waited.
    #[error("the client was closed while a request to {name} waited for a connection")]
    Closed {
        /// Instance name, or host.
        name: String,
    },
}

/// A Gym server has a name of its own; another destination is called by its host.
fn at(name: &str, authority: &str) -> String {
    if authority.starts_with(name) {
        authority.to_owned()
    } else {
        format!("{name} at {authority}")
    }
}

/// Whether an `error.type` says that time ran out.
#[must_use]
pub fn names_a_timeout(error_type: &str) -> bool {
    error_type.to_ascii_lowercase().contains("timeout")
}

impl ClientError {
    /// Value of `error.type` on spans: the status, or a short name.
    #[must_use]
    pub fn error_type(&self) -> String {
        match self {
            Self::Connect { source, .. } => match source.kind() {
                std::io::ErrorKind::ConnectionRefused => "connection_refused".to_owned(),
                std::io::ErrorKind::NotFound => "name_resolution".to_owned(),
                _ => "connect_error".to_owned(),
            },
            Self::ConnectTimeout { .. } => "connect_timeout".to_owned(),
            Self::Broken { .. } => "connection_broken".to_owned(),
            Self::Idle { .. } => "idle_timeout".to_owned(),
            Self::OutOfTime { .. } => "request_timeout".to_owned(),
            Self::Status { error_type: Some(error_type), .. } => error_type.clone(),
            Self::Status { status, .. } => status.as_u16().to_string(),
            Self::Invalid { .. } => "invalid_request".to_owned(),
            Self::TooLarge { .. } => "reply_too_large".to_owned(),
            Self::QueueFull { .. } => "queue_full".to_owned(),
            Self::Closed { .. } => "client_closed".to_owned(),
        }
    }

    /// Whether a limit of time ran out.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::ConnectTimeout { .. } | Self::Idle { .. } | Self::OutOfTime { .. })
    }

    /// Why the attempt failed, as its event and the count of repeated attempts tell it.
    pub(super) fn retry_reason(&self) -> &'static str {
        match self {
            Self::Connect { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => retry_reason::RESOLVE,
                io::ErrorKind::TimedOut => retry_reason::TIMEOUT,
                // TLS: there is somebody, who speaks something else.
                io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => retry_reason::PROTOCOL,
                io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::UnexpectedEof => retry_reason::RESET,
                _ => retry_reason::REFUSED,
            },
            Self::Broken { source: WireError::Invalid(_), .. }
            | Self::Invalid { .. }
            | Self::TooLarge { .. } => retry_reason::PROTOCOL,
            Self::Broken { .. } => retry_reason::RESET,
            Self::ConnectTimeout { .. } | Self::Idle { .. } | Self::OutOfTime { .. } => {
                retry_reason::TIMEOUT
            }
            Self::Status { .. } => retry_reason::STATUS,
            Self::QueueFull { .. } => retry_reason::REFUSED,
            Self::Closed { .. } => retry_reason::CANCELLED,
        }
    }

    /// The message followed by those of its causes.
    #[must_use]
    pub fn full_message(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }

    pub(super) fn failure(&self) -> Failure {
        match self {
            Self::Connect { .. } | Self::Broken { sent: false, .. } => Failure::NeverSent,
            Self::ConnectTimeout { .. } => Failure::NeverSent,
            Self::Broken { .. } => Failure::Broken,
            Self::Status { status, .. } => Failure::Status(*status, None),
            Self::Idle { .. }
            | Self::OutOfTime { .. }
            | Self::Invalid { .. }
            | Self::TooLarge { .. }
            | Self::QueueFull { .. }
            | Self::Closed { .. } => Failure::TimedOut,
        }
    }
}
