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
mod bind;
mod body;
mod connection;
mod counters;
mod denial;
pub mod frame;
mod grpc;
mod http_server;
mod options;
mod serve;

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;

pub use address::{AddressError, ListenAddress};
pub use bind::StartError;
pub use counters::{Reason, Received, Snapshot, Transport};
pub use options::{Limits, Notice, Notify, Options, Token};

use crate::intake::Intake;
use crate::pages;
use crate::prometheus::Metrics;
use accept::{Acceptor, Other, Source, Thread};
use bind::bind_all;
use connection::Signal;
use serve::Shared;

/// What threads get to end after the grace time.
const BEYOND_GRACE: Duration = Duration::from_secs(2);

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
