//! The OTLP receiver: gRPC and HTTP, every signal, within bounds.
//!
//! It has threads of its own with single-threaded runtimes, so it neither needs nor disturbs the program's, and calls
//! its [`Intake`] straight on them (see there for what that may do).
//!
//! # Guarantees
//!
//! * A sender that was told "accepted" sent something that the intake accepted; nothing is acknowledged ahead of it.
//! * Memory is bounded by [`Limits`], whatever is sent: bodies are counted while they come, and inflation stops at its
//!   bound.
//! * Without a token only this host is listened to, unless [`Options::allow_unauthenticated_remote`] says otherwise.

mod accept;
mod address;
mod body;
mod connection;
mod counters;
mod denial;
pub mod frame;
mod grpc;
mod http_server;
pub mod inflate;
mod serve;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;

pub use address::{AddressError, ListenAddress};
pub use counters::{Reason, Received, Snapshot, Transport};

use crate::intake::Intake;
use crate::pages::{self, Pages};
use crate::prometheus::{Expose, Metrics, MetricsLimits};
use accept::{Acceptor, Other, Source, Thread};
use connection::Signal;
use serve::Shared;

/// What threads get to end after the grace time.
const BEYOND_GRACE: Duration = Duration::from_secs(2);

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
    fn is(&self, sent: &[u8]) -> bool {
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

/// The option that an address came from, as commands call it.
const fn option(transport: Transport) -> &'static str {
    match transport {
        Transport::Grpc => "--listen-grpc",
        Transport::Http => "--listen-http",
    }
}

/// Why a receiver does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A name that stands for no address.
    #[error("{address} (from {}) cannot be resolved", option(*.transport))]
    Resolve {
        /// What was to be listened on.
        address: ListenAddress,
        /// For which transport.
        transport: Transport,
        /// Why.
        source: io::Error,
    },
    /// Other hosts could send without a token.
    #[error(
        "{address} (from {}) can be reached by other hosts and there is no token; set one, or allow it \
         with --allow-unauthenticated-remote",
        option(*.transport)
    )]
    Remote {
        /// What was to be listened on.
        address: SocketAddr,
        /// For which transport.
        transport: Transport,
    },
    /// Somebody else listens there.
    #[error("{address} is in use by another process; choose another port with {}", option(*.transport))]
    InUse {
        /// What was to be listened on.
        address: SocketAddr,
        /// For which transport.
        transport: Transport,
    },
    /// It cannot be listened on for another reason.
    #[error("cannot listen on {address} (from {})", option(*.transport))]
    Bind {
        /// What was to be listened on.
        address: SocketAddr,
        /// For which transport.
        transport: Transport,
        /// Why.
        source: io::Error,
    },
    /// No thread or runtime can be had.
    #[error("no thread can be started for the receiver")]
    Thread(#[source] io::Error),
}

/// A running receiver; stops when dropped.
pub struct Receiver {
    shared: Arc<Shared>,
    signals: Arc<watch::Sender<Signal>>,
    threads: Vec<JoinHandle<()>>,
    /// Every thread has a sender as long as it lives.
    alive: Option<mpsc::Sender<()>>,
    all_ended: Mutex<mpsc::Receiver<()>>,
    grpc: Vec<SocketAddr>,
    http: Vec<SocketAddr>,
    grace: Duration,
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("grpc", &self.grpc).field("http", &self.http).finish()
    }
}

impl Receiver {
    /// Listens, and hands over what comes.
    ///
    /// # Errors
    ///
    /// [`StartError`]; then nothing is listened on.
    pub fn start(options: Options, intake: Arc<dyn Intake>) -> Result<Self, StartError> {
        let mut listeners = Vec::new();
        let grpc = bind_all(&options, Transport::Grpc, &mut listeners)?;
        let http = bind_all(&options, Transport::Http, &mut listeners)?;
        let limits = options.limits;
        let max_connections = limits.connections.min(descriptors_for_connections());
        let shared = Arc::new(Shared {
            intake,
            limits,
            max_connections,
            metrics: Metrics::new(options.metrics, options.more_metrics),
            token: options.token,
            pages: options.pages,
            counters: counters::Counters::default(),
            budget: body::Budget::new(limits.in_flight_bytes, limits.retry_after),
        });
        let signals = Arc::new(watch::Sender::new(Signal::default()));
        let (alive, all_ended) = mpsc::channel();
        let mut receiver = Self {
            shared,
            signals,
            threads: Vec::new(),
            alive: Some(alive),
            all_ended: Mutex::new(all_ended),
            grpc,
            http,
            grace: options.grace,
        };
        let mut others = Vec::new();
        for index in 1..options.threads.max(1) {
            let load = Arc::new(AtomicUsize::new(0));
            let (other, handed) = Other::new(Arc::clone(&load));
            others.push(other);
            receiver.run(index, load, Source::Handed(handed))?;
        }
        let acceptor = Acceptor {
            listeners,
            others,
            max_connections,
            idle_timeout: limits.idle_timeout,
            notify: options.notify,
        };
        receiver.run(0, Arc::default(), Source::Acceptor(acceptor))?;
        Ok(receiver)
    }

    fn run(
        &mut self,
        index: usize,
        load: Arc<AtomicUsize>,
        source: Source,
    ) -> Result<(), StartError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(pages::THREADS)
            .build()
            .map_err(StartError::Thread)?;
        let alive = self.alive.clone();
        let thread = Thread {
            shared: Arc::clone(&self.shared),
            signals: Arc::clone(&self.signals),
            grace: self.grace,
            load,
        };
        let handle = std::thread::Builder::new()
            .name(format!("otlp-{index}"))
            .spawn(move || {
                let _alive = alive;
                thread.run(runtime, source);
            })
            .map_err(StartError::Thread)?;
        self.threads.push(handle);
        Ok(())
    }

    /// Where it listens for OTLP/gRPC.
    pub fn grpc_addresses(&self) -> &[SocketAddr] {
        &self.grpc
    }

    /// Where it listens for OTLP/HTTP.
    pub fn http_addresses(&self) -> &[SocketAddr] {
        &self.http
    }

    /// Its counters.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.snapshot()
    }

    /// Takes no more requests, and gives those in flight [`Options::grace`]. Afterwards the intake is not called; false
    /// when it hangs in a call, whose thread is left behind.
    pub fn stop(mut self) -> bool {
        self.end()
    }

    fn end(&mut self) -> bool {
        self.signals.send_replace(Signal::Stop);
        drop(self.alive.take());
        // Nothing is ever sent: it ends when the last thread has.
        let all_ended = self.all_ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let ended = all_ended.recv_timeout(self.grace + BEYOND_GRACE);
        if ended == Err(mpsc::RecvTimeoutError::Timeout) {
            return false;
        }
        for thread in self.threads.drain(..) {
            // A panic in a thread was printed when it happened.
            let _ = thread.join();
        }
        true
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Files that the process may open, less those that others need: the store's segments, the program's own.
fn descriptors_for_connections() -> usize {
    use rustix::process::{Resource, getrlimit};
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    limit.saturating_sub((limit / 4).clamp(32, 512)).max(8)
}

fn bind_all(
    options: &Options,
    transport: Transport,
    listeners: &mut Vec<std::net::TcpListener>,
) -> Result<Vec<SocketAddr>, StartError> {
    let wanted = match transport {
        Transport::Grpc => &options.grpc,
        Transport::Http => &options.http,
    };
    let everything = options.grpc.iter().chain(&options.http);
    let also_v4: Vec<SocketAddr> = everything
        .filter_map(|address| address.resolve().ok())
        .flatten()
        .filter(SocketAddr::is_ipv4)
        .collect();
    let mut bound = Vec::new();
    for address in wanted {
        let resolved = address.resolve().map_err(|source| StartError::Resolve {
            address: address.clone(),
            transport,
            source,
        })?;
        let (mut any, mut first_error) = (false, None);
        for address in resolved {
            let is_private = address::is_loopback(&address);
            if !is_private && options.token.is_none() && !options.allow_unauthenticated_remote {
                return Err(StartError::Remote { address, transport });
            }
            // `[::]` alone means IPv4 too; beside `0.0.0.0` it must not.
            let only_v6 =
                also_v4.iter().any(|v4| v4.port() == address.port() && address.port() != 0);
            let listener = accept::listen(address, only_v6)
                .and_then(|listener| Ok((listener.local_addr()?, listener)));
            match listener {
                Ok((local, listener)) => {
                    any = true;
                    bound.push(local);
                    listeners.push(listener);
                }
                Err(source) if source.kind() == io::ErrorKind::AddrInUse => {
                    return Err(StartError::InUse { address, transport });
                }
                Err(source) => {
                    first_error.get_or_insert((address, source));
                }
            }
        }
        // A name that stands for addresses of both families works where one family is missing.
        if let (false, Some((address, source))) = (any, first_error) {
            return Err(StartError::Bind { address, transport, source });
        }
    }
    Ok(bound)
}
