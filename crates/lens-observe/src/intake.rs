//! What a receiver hands over, and what it is told: the border between the wire and whatever keeps telemetry.
//!
//! [`Intake::accept`] is called straight on the thread that serves the connection. It may write to files: a `write`
//! into the page cache is shorter than a change of threads, and while it lasts its senders wait, which is the
//! back-pressure that they should feel. Whatever takes longer (sorting, columns, `fsync` of large files) belongs on
//! threads of the intake's own.

use std::time::Duration;

use bytes::Bytes;
pub use lens_store::wal::{Compression, Encoding, Format, Signal};

/// A request as it came in.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// What it carries.
    pub signal: Signal,
    /// How `body` is written.
    pub encoding: Encoding,
    /// The message as received, without the frame that gRPC puts around it.
    pub body: Bytes,
    /// The same as encoded `Export*ServiceRequest`; shares `body`'s memory where that is one already. Nothing in it
    /// has been looked at yet.
    pub request: Bytes,
    /// It was offered a moment ago, and there was no room.
    pub is_again: bool,
}

/// A request was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Items that were refused for good. Their sender must not send them again.
    pub rejected: u64,
    /// Why they were; or, with none rejected, a hint for whoever runs the sender.
    pub message: Option<String>,
}

/// A request was not taken; nothing in it was kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Too much is waiting. The receiver offers it again for a while; then it may be sent again after so long.
    #[error("too much is waiting to be stored")]
    Overloaded {
        /// When to try again.
        retry_after: Duration,
    },
    /// There is no room to keep it. It may be sent again after so long.
    #[error("the disk of the store is full")]
    DiskFull {
        /// When to try again.
        retry_after: Duration,
    },
    /// It could not be kept for another reason that may pass.
    #[error("{reason}")]
    Failed {
        /// Why, as a clause.
        reason: String,
        /// When to try again.
        retry_after: Duration,
    },
    /// It is no OTLP request, and never will be.
    #[error("{0}")]
    Malformed(String),
}

/// Keeps what is received.
pub trait Intake: Send + Sync {
    /// Takes a request, or says why not. When it returns `Ok` the sender is told that all but the rejected items are
    /// safe.
    ///
    /// # Errors
    ///
    /// [`Refused`]: the sender gets the reason, and is told whether to try again.
    fn accept(&self, request: Incoming) -> Result<Accepted, Refused>;
}
