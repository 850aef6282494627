//! What a receiver is told, and what it tells.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::address::ListenAddress;
use crate::pages::Pages;
use crate::prometheus::{Expose, MetricsLimits};

/// Bounds, each with a gauge of its fill in [`Snapshot`] or a reason among its refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest body as received.
    pub body_bytes: usize,
    /// Largest request after decompression.
    pub request_bytes: usize,
    /// Most values (counted by commas and opening brackets) in a request in JSON: its tree takes up to a hundred bytes
    /// for each.
    pub json_values: usize,
    /// Bytes of all requests that are being received or worked on.
    pub in_flight_bytes: usize,
    /// Connections. Less are taken where the process may not open so many files.
    pub connections: usize,
    /// Time in which a body must have come.
    pub body_timeout: Duration,
    /// A connection without a request for so long is closed. It is longer than senders keep theirs, so that none is
    /// closed while a request is on its way.
    pub idle_timeout: Duration,
    /// What senders are asked to wait when too much is in flight.
    pub retry_after: Duration,
    /// How long a request waits, all received, for an intake that has no room. It is shorter than senders wait for an
    /// answer (10 s is usual), and longer than what fills the intake usually takes.
    pub room_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 32 << 20,
            request_bytes: 64 << 20,
            json_values: 2_000_000,
            in_flight_bytes: 256 << 20,
            connections: 4096,
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(600),
            retry_after: Duration::from_secs(1),
            room_timeout: Duration::from_secs(4),
        }
    }
}

/// A bearer token; its text is secret.
#[derive(Clone)]
pub struct Token(Box<[u8]>);

impl Token {
    /// A token of printable characters without spaces; `None` otherwise.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let is_fit = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_fit.then(|| Self(text.as_bytes().into()))
    }

    /// Compares in a time that tells nothing about where they differ.
    pub(super) fn is(&self, sent: &[u8]) -> bool {
        let differs = self.0.iter().zip(sent).fold(0, |differs, (a, b)| differs | (a ^ b));
        std::hint::black_box(differs) == 0 && self.0.len() == sent.len()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Something that whoever runs the receiver should hear of.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice {
    /// No more connections can be accepted; at most once in five seconds.
    NoRoom {
        /// What the system said; `None` when as many are open as may be.
        error: Option<io::Error>,
        /// Connections that are open.
        connections: usize,
    },
    /// Connections are accepted again.
    RoomAgain {
        /// Connections that are open.
        connections: usize,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoom { error: Some(error), connections } => write!(
                f,
                "no more connections can be accepted ({error}); {connections} are open, idle ones are closed, and \
                 senders wait; raise `ulimit -n`"
            ),
            Self::NoRoom { error: None, connections } => write!(
                f,
                "{connections} connections are open, which is as many as there may be; idle ones are closed, and \
                 senders wait"
            ),
            Self::RoomAgain { connections } => {
                write!(f, "connections are accepted again; {connections} are open")
            }
        }
    }
}

/// Hears of notices; libraries do not print.
pub type Notify = Arc<dyn Fn(&Notice) + Send + Sync>;

/// How to receive.
#[derive(Clone)]
pub struct Options {
    /// Where to listen for OTLP/gRPC.
    pub grpc: Vec<ListenAddress>,
    /// Where to listen for OTLP/HTTP.
    pub http: Vec<ListenAddress>,
    /// What senders must send as `authorization: Bearer …`.
    pub token: Option<Token>,
    /// Listens to other hosts also without a token.
    pub allow_unauthenticated_remote: bool,
    /// Bounds.
    pub limits: Limits,
    /// Bounds of the page at `/metrics`.
    pub metrics: MetricsLimits,
    /// What that page shows besides.
    pub more_metrics: Vec<Arc<dyn Expose>>,
    /// Threads, at least 1.
    pub threads: usize,
    /// Time that requests in flight get when the receiver is stopped.
    pub grace: Duration,
    /// Hears of trouble.
    pub notify: Notify,
    /// What is read from the HTTP addresses.
    pub pages: Option<Arc<dyn Pages>>,
}

impl Default for Options {
    /// The customary ports of this host, and no more than two threads.
    fn default() -> Self {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port)).into();
        Self {
            grpc: vec![address(4317)],
            http: vec![address(4318)],
            token: None,
            allow_unauthenticated_remote: false,
            limits: Limits::default(),
            metrics: MetricsLimits::default(),
            more_metrics: Vec::new(),
            threads: std::thread::available_parallelism().map_or(1, |cores| cores.get().min(2)),
            grace: Duration::from_secs(5),
            notify: Arc::new(|_| {}),
            pages: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("grpc", &self.grpc)
            .field("http", &self.http)
            .field("token", &self.token)
            .field("limits", &self.limits)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}
