//! Ships OTLP bytes: gRPC over HTTP/2 or HTTP/1.1, retried within one time budget.
//!
//! A [`Client`] is one thread with a runtime of its own, so it neither needs nor disturbs the program's. A
//! [`Sender`] belongs to one signal and keeps one connection; [`Sender::send`] blocks until the outcome is known
//! or its budget is spent, and never returns an error into instrumented code.

mod connection;
mod request;
mod response;
mod retry;
mod roots;
mod send;
mod tls;
mod trouble;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use http::{HeaderMap, Uri};
use tokio::sync::mpsc as channel;

pub use trouble::Trouble;

/// What is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Metrics.
    Metrics,
    /// Log records.
    Logs,
}

impl Signal {
    fn grpc_path(self) -> &'static str {
        match self {
            Self::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Self::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            Self::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        }
    }
}

/// How OTLP is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC over HTTP/2.
    Grpc,
    /// Protobuf over HTTP/1.1.
    HttpProtobuf,
    /// JSON over HTTP/1.1.
    HttpJson,
}

/// Where one signal goes.
#[derive(Clone, Debug)]
pub struct Target {
    /// What is sent.
    pub signal: Signal,
    /// Full address; with HTTP including the path.
    pub endpoint: String,
    /// gRPC or HTTP.
    pub protocol: Protocol,
    /// Sent with every request.
    pub headers: Vec<(String, String)>,
    /// Budget of one [`Sender::send`] with all its retries.
    pub timeout: Duration,
    /// Compress bodies.
    pub gzip: bool,
    /// PEM file of trusted certificates instead of those that the machine trusts.
    pub certificate: Option<PathBuf>,
    /// PEM files of the client's certificate chain and key.
    pub client_identity: Option<(PathBuf, PathBuf)>,
    /// Larger requests are split before they are sent, as far as their items allow; see [`MAX_REQUEST_BYTES`].
    pub max_request_bytes: usize,
}

/// Header in answers of a receiver that shows what is open; its value means nothing.
pub const OBSERVE_HEADER: &str = "x-gym-observe";

/// What receivers of gRPC take when nothing else is configured there, less some room.
pub const MAX_REQUEST_BYTES: usize = (4 << 20) - (64 << 10);

/// What became of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Accepted, but for so many items (partial success).
    Accepted {
        /// Items that the receiver refused.
        rejected: u64,
    },
    /// Refused for a reason that no retry cures.
    Refused,
    /// Not delivered within the budget.
    Failed {
        /// How long the receiver asked to be left alone.
        not_before: Option<Duration>,
    },
}

impl Outcome {
    const FAILED: Self = Self::Failed { not_before: None };
}

/// A target that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The endpoint is no http or https address.
    #[error("endpoint {0:?} is not an http:// or https:// address")]
    Endpoint(String),
    /// A header that HTTP cannot carry; the value is secret.
    #[error("header {0:?} cannot be sent")]
    Header(String),
    /// A file of certificates or keys that cannot be used.
    #[error("certificates in {path:?} cannot be used")]
    Certificate {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A target made ready.
#[derive(Debug)]
struct Prepared {
    signal: Signal,
    protocol: Protocol,
    host: String,
    port: u16,
    path: String,
    uri: Uri,
    headers: HeaderMap,
    timeout: Duration,
    gzip: bool,
    tls: Option<tls::Connector>,
    max_request_bytes: usize,
}

struct Job {
    sender: Arc<tokio::sync::Mutex<send::State>>,
    target: Arc<Prepared>,
    body: Arc<Vec<u8>>,
    reply: Reply,
}

/// Where the outcome of one request is put, and who waits for it.
#[derive(Debug)]
struct Reply {
    outcome: Arc<OnceLock<Outcome>>,
    waiting: Thread,
}

impl Drop for Reply {
    /// A job that is lost on its way has failed.
    fn drop(&mut self) {
        let _ = self.outcome.set(Outcome::FAILED);
        self.waiting.unpark();
    }
}

/// A request on its way.
#[derive(Debug)]
pub struct Ticket {
    outcome: Arc<OnceLock<Outcome>>,
}

impl Ticket {
    /// The outcome; `None` while it is on its way.
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome.get().copied()
    }
}

/// Jobs that may wait for the client's thread.
const MAX_JOBS: usize = 64;

/// The thread that ships.
#[derive(Clone, Debug)]
pub struct Client {
    jobs: channel::Sender<Job>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Job").field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

impl Client {
    /// Starts the thread; it ends when the client and all its senders are gone.
    ///
    /// # Errors
    ///
    /// When the operating system refuses the thread or the runtime's resources.
    pub fn start() -> std::io::Result<Self> {
        let (jobs, mut waiting) = channel::channel::<Job>(MAX_JOBS);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("lens-otlp".to_owned()).spawn(move || {
            runtime.block_on(async move {
                while let Some(job) = waiting.recv().await {
                    tokio::spawn(async move {
                        let outcome = send::send(&job.sender, &job.target, &job.body).await;
                        let _ = job.reply.outcome.set(outcome);
                    });
                }
            });
        })?;
        Ok(Self { jobs })
    }

    /// A sender to a target. Connects at the first request.
    ///
    /// # Errors
    ///
    /// When the target's settings cannot be used.
    pub fn open(&self, target: Target) -> Result<Sender, TargetError> {
        let target = Arc::new(prepare(target)?);
        let signs = Arc::default();
        let state = Arc::new(tokio::sync::Mutex::new(send::State::new(Arc::clone(&signs))));
        Ok(Sender { jobs: self.jobs.clone(), target, state, signs })
    }
}

fn prepare(target: Target) -> Result<Prepared, TargetError> {
    let invalid = || TargetError::Endpoint(target.endpoint.clone());
    let uri: Uri = target.endpoint.trim().parse().map_err(|_| invalid())?;
    let secure = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(invalid()),
    };
    let authority = uri.authority().ok_or_else(invalid)?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let default_port = match (target.protocol, secure) {
        (Protocol::Grpc, _) => 4317,
        (_, false) => 80,
        (_, true) => 443,
    };
    let port = authority.port_u16().unwrap_or(default_port);
    let path = match target.protocol {
        Protocol::Grpc => target.signal.grpc_path().to_owned(),
        _ => uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
    };
    let tls = secure.then(|| tls::Connector::new(&target, &host)).transpose()?;
    // What is before an @ is for nobody to see.
    let authority = authority.as_str().rsplit('@').next().unwrap_or_default();
    let (uri, headers) = request::head(&target, secure, authority, &path)?;
    Ok(Prepared {
        signal: target.signal,
        protocol: target.protocol,
        host,
        port,
        path,
        uri,
        headers,
        timeout: target.timeout,
        gzip: target.gzip,
        tls,
        max_request_bytes: target.max_request_bytes,
    })
}

/// Ships one signal. One request at a time; further callers wait within their budgets.
#[derive(Clone, Debug)]
pub struct Sender {
    jobs: channel::Sender<Job>,
    target: Arc<Prepared>,
    state: Arc<tokio::sync::Mutex<send::State>>,
    signs: Arc<send::Signs>,
}

impl Sender {
    /// What kept a request from being delivered, or delayed it, since the last time this was asked.
    pub fn take_trouble(&self) -> Option<Trouble> {
        self.signs.take_trouble()
    }

    /// Whether the receiver has said that it is one that shows what is open: by the header [`OBSERVE_HEADER`] of an
    /// answer, which over gRPC is its metadata.
    pub fn is_observed(&self) -> bool {
        self.signs.is_observed()
    }

    /// How often a try found nobody there so far: the connection was refused, or there is no such host.
    pub fn refusals(&self) -> u64 {
        self.signs.refusals()
    }

    /// Lets a request that pauses between two tries try at once.
    pub fn hurry(&self) {
        self.signs.hurry();
    }

    /// Begins to send an encoded export request; `waiting` is unparked when its outcome is known.
    pub fn begin(&self, body: Arc<Vec<u8>>, waiting: Thread) -> Ticket {
        let outcome = Arc::new(OnceLock::new());
        let reply = Reply { outcome: Arc::clone(&outcome), waiting };
        let (sender, target) = (Arc::clone(&self.state), Arc::clone(&self.target));
        // A job that is refused is dropped, and so its reply says that it failed.
        let _ = self.jobs.try_send(Job { sender, target, body, reply });
        Ticket { outcome }
    }

    /// Sends an encoded export request and waits for its outcome. Must not be called on a thread of a runtime.
    pub fn send(&self, body: Arc<Vec<u8>>) -> Outcome {
        self.send_or_tell(body, Duration::MAX, || {})
    }

    /// Sends as [`send`](Self::send) does, and calls `tell` once when it takes longer than `slow`.
    pub fn send_or_tell(&self, body: Arc<Vec<u8>>, slow: Duration, tell: impl FnOnce()) -> Outcome {
        let ticket = self.begin(body, std::thread::current());
        // The client keeps the budget; this only covers a thread that does not run at all.
        let patience =
            (self.target.timeout.saturating_mul(2)).saturating_add(Duration::from_secs(1));
        let begun = Instant::now();
        let mut tell = Some(tell);
        loop {
            if let Some(outcome) = ticket.outcome() {
                return outcome;
            }
            let waited = begun.elapsed();
            if waited >= slow
                && let Some(tell) = tell.take()
            {
                tell();
                // What it did may have taken the wake-up that says that there is an outcome.
                continue;
            }
            let until = if tell.is_some() { slow.min(patience) } else { patience };
            if waited >= patience {
                return Outcome::FAILED;
            }
            std::thread::park_timeout(until.saturating_sub(waited));
        }
    }
}
